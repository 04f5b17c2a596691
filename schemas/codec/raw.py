"""Queries as raw values: the payload itself, with its attributes in Kafka headers."""

import math
import re
from collections.abc import Sequence

from schemas.codec.values import CodecError
from schemas.records import Garbled, Query

ID_HEADER = "headrace-id"
DEADLINE_HEADER = "headrace-deadline-ms"
SLO_CLASS_HEADER = "headrace-slo-class"
SESSION_HEADER = "headrace-session"
MAX_ID_LENGTH = 256
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # terminals interpret these characters
# The years 2000 to 2200: a time outside them has another unit or another epoch.
EARLIEST_S, LATEST_S = 946_684_800.0, 7_258_118_400.0


def query_from_raw(
    value: bytes | None,
    headers: Sequence[tuple[str, bytes]] | None,
    key: bytes | None,
    size_header: str = "",
) -> Query | Garbled:
    """Return the query of a raw value and its headers, or a ``Garbled`` with the reason.

    ``size_header`` names the header that holds the size; "": queries have none. The key chooses a
    partition and means nothing else: without an id header the id is empty.
    """
    name = ""
    named = dict(headers or ())
    # The client returns None for a header without a value, against its declared types.
    if None in named.values():
        named = {header: held or b"" for header, held in named.items()}
    try:
        name = _short_text(named, ID_HEADER)
        slo_class = _short_text(named, SLO_CLASS_HEADER)
        session = _short_text(named, SESSION_HEADER)
        deadline_s = _deadline(named.get(DEADLINE_HEADER))
        size = _size(size_header, named.get(size_header)) if size_header else 1
        if value:
            return Query(
                payload=value, id=name, deadline_s=deadline_s, slo_class=slo_class, size=size,
                session=session,
            )  # fmt: skip
        reason = "the value is empty; it must be the payload itself"
    except CodecError as problem:
        reason = str(problem)
    kept = tuple([(header, held or b"") for header, held in headers or ()])
    return Garbled(value or b"", reason, kept, name)


def query_fault(query: Query) -> str:
    """Return what is wrong with an Avro query, by the rules for raw ones, or ""."""
    for what, text in (
        ("id", query.id), ("slo_class", query.slo_class), ("session", query.session),
    ):  # fmt: skip
        wrong = unfit_name(f"the query's {what}", text)
        if wrong:
            return wrong
    if query.size < 1:
        return f"the query's size is {query.size}; it must be 1 or more"
    if query.deadline_s is None or EARLIEST_S <= query.deadline_s <= LATEST_S:
        return ""
    return (
        f"the query's deadline_s is {query.deadline_s:g}; it must be in seconds since the epoch, "
        "between the years 2000 and 2200"
    )


def _short_text(named: dict[str, bytes], header: str) -> str:
    held = named.get(header)
    if not held:
        return ""
    try:
        text = held.decode()
    except UnicodeDecodeError:
        raise CodecError(f"header {header} is not UTF-8; write it as text") from None
    wrong = unfit_name(f"header {header}", text)
    if wrong:
        raise CodecError(wrong)
    return text


def unfit_name(what: str, text: str) -> str:
    """Return what is wrong with a name, or "". Names reach terminals and logs as they are."""
    if len(text) > MAX_ID_LENGTH:
        return f"{what} has {len(text)} characters; at most {MAX_ID_LENGTH} are allowed"
    if _CONTROL.search(text):
        return f"{what} is {text!r:.60}; write it without control characters"
    return ""


def _size(header: str, held: bytes | None) -> int:
    if held is None:
        return 1
    text = held.strip()
    if text.isdigit() and 1 <= int(text[:19]) < 1 << 62:
        return int(text[:19])
    raise CodecError(
        f"header {header} is {held[:40].decode(errors='replace')!r}; it must be a whole number "
        "from 1"
    )


def _deadline(held: bytes | None) -> float | None:
    if held is None:
        return None
    try:
        seconds = float(held) / 1e3
    except ValueError:
        seconds = math.nan
    if EARLIEST_S <= seconds <= LATEST_S:
        return seconds
    raise CodecError(
        f"header {DEADLINE_HEADER} is {held[:40].decode(errors='replace')!r}; it must be a number "
        "of milliseconds since the epoch, between the years 2000 and 2200"
    )
