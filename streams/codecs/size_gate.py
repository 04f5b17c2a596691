"""Size gate: every encoded record stays below the broker's limit.

A record that the broker rejects for its size would end its role, which would then read the same
input again. Nodes estimate sizes, so few oversized records reach this gate. The gate splits them
(items of a query, queries of a notice), then truncates. A value too large for a record fails its
item with a reason.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from control.per_query.shadowing import is_shadow
from operators.record_size import brief
from schemas.effects import OUTPUTS, SHADOWS, Send
from schemas.enumerations import ReasonCode
from schemas.records import (
    FAILED,
    Answer,
    CommandResult,
    DeadLetter,
    End,
    Item,
    Notice,
    Work,
)
from schemas.user_errors import HeadraceError
from streams.codecs.wire import Encode
from streams.topics import MAX_RECORD_BYTES

Encoded = tuple[Send, bytes]

# The broker's limit less a reserve for key, headers and framing, which count towards it.
MOST_ENCODED_BYTES = MAX_RECORD_BYTES - 4096


class RecordTooLarge(HeadraceError):
    """A record can be neither split nor truncated; the pipeline's names are too long."""


def fitting(
    send: Send, encode: Encode, egress_partitions: int, most: int = MOST_ENCODED_BYTES
) -> Iterator[Encoded]:
    """Yield a record with its bytes, or smaller records instead, each of at most ``most`` bytes
    with its key.

    Raise ``RecordTooLarge`` for a record without a smaller form.
    """
    value = encode(send.record)
    size = len(value) + len(send.key.encode("utf-8", "replace"))
    if size <= most:
        yield send, value
        return
    smaller = _smaller(send, size, egress_partitions, most)
    if not smaller:
        raise RecordTooLarge(
            f"a {type(send.record).__name__} for {send.topic} has {size} bytes, at most "
            f"{most} fit a record; shorten the names in the pipeline file"
        )
    for each in smaller:
        yield from fitting(each, encode, egress_partitions, most)


def _smaller(send: Send, size: int, egress_partitions: int, most: int) -> list[Send]:
    """Return the replacements of a record; empty if it has no smaller form."""
    record = send.record
    if isinstance(record, Work):
        return _smaller_work(send, record, size, egress_partitions, most)
    if isinstance(record, Notice):
        return [replace(send, record=each) for each in _smaller_notice(record)]
    if isinstance(record, Answer):
        return [replace(send, record=each) for each in _smaller_answer(record, size, most)]
    if isinstance(record, DeadLetter) and (record.value or record.headers):
        cut = replace(record, value=record.value[: len(record.value) // 2], headers=())
        return [replace(send, record=cut)]
    if isinstance(record, CommandResult):
        short = replace(
            record, id=brief(record.id), action=brief(record.action), message=brief(record.message)
        )
        return [] if short == record else [replace(send, record=short, key=brief(send.key))]
    return []


def _smaller_work(
    send: Send, work: Work, size: int, egress_partitions: int, most: int
) -> list[Send]:
    if len(work.items) > 1:
        half = len(work.items) // 2
        parts = (work.items[:half], work.items[half:])
        return [replace(send, record=replace(work, items=part)) for part in parts]
    (item,) = work.items
    cut = _failed(work, item, size, most) if item.value is not None else _without_path(item)
    if cut is None:
        return []
    ended = replace(work, task="", items=(cut,), follow=0)
    if is_shadow(work):  # egress would take it for a result of the query
        return [Send(SHADOWS, ended, 0)]
    return [Send(OUTPUTS, ended, work.origin.partition % egress_partitions)]


def _failed(work: Work, item: Item, size: int, most: int) -> Item:
    """Return the item as failed: its value is too large for a record."""
    at = item.path[-1].task if item.path else work.task
    code = ReasonCode.OPERATOR if item.path else ReasonCode.BAD_INPUT
    return replace(item, value=None, end=End(FAILED, at, _too_large("a value", size, most), code))


def _without_path(item: Item) -> Item | None:
    if not item.path and (item.end is None or item.end.reason == brief(item.end.reason)):
        return None
    end = None if item.end is None else replace(item.end, reason=brief(item.end.reason))
    return replace(item, path=(), end=end)


def _smaller_notice(notice: Notice) -> list[Notice]:
    queries = notice.queries
    if len(queries) > 1:
        half = len(queries) // 2
        first = replace(notice, upto=queries[half].offset, queries=queries[:half])
        return [first, replace(notice, queries=queries[half:])]
    short = tuple(replace(query, refused=brief(query.refused)) for query in queries)
    return [] if short == queries else [replace(notice, queries=short)]


def _smaller_answer(answer: Answer, size: int, most: int) -> list[Answer]:
    if answer.paths or answer.ends:
        return [replace(answer, paths=(), ends=())]
    if answer.result is not None:
        reason = _too_large("the answer", size, most)
        return [
            replace(
                answer, outcome=FAILED, task="egress", reason=reason, late=False,
                incomplete=False, result=None, reason_code=ReasonCode.COMBINE,
            )
        ]  # fmt: skip
    short = brief(answer.reason)
    return [] if short == answer.reason else [replace(answer, reason=short)]


def _too_large(what: str, size: int, most: int) -> str:
    return (
        f"{what} of {size / 2**20:.1f} MiB fits no record (at most {most / 2**20:.0f}); return "
        "less, or a reference to it"
    )
