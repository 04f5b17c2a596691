"""Size limits of records: the broker rejects a larger record permanently."""

import numpy as np

from schemas.records import Value
from schemas.visible_text import visible

# The broker's 8 MiB less a reserve for the rest of a record: ids, paths, headers.
MOST_BYTES = 7 * 1024 * 1024
MOST_REASON_BYTES = 2000
MOST_HEADER_BYTES = 64 * 1024  # of a dead letter's headers together
_SCALARS = frozenset((type(None), bool, int, float))


def record_size(value: Value) -> int:
    """Return the approximate size of a value in a record, in bytes; exact for bytes and arrays."""
    kind = type(value)
    if kind in _SCALARS:
        return 8
    if kind is bytes:
        return len(value)  # type: ignore[arg-type]
    if kind is str:
        # UTF-8 needs up to four bytes per character; encoded only if that could exceed the limit.
        length = len(value)  # type: ignore[arg-type]
        return length if length * 4 <= MOST_BYTES else len(value.encode())  # type: ignore[union-attr]
    if isinstance(value, list):
        return sum(map(record_size, value))
    if isinstance(value, dict):
        return sum(map(record_size, value)) + sum(map(record_size, value.values()))
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    return 8


def excess(value: Value) -> str:
    """Return the error message for a value too large for a record, or ""."""
    if type(value) in _SCALARS:
        return ""
    found = record_size(value)
    if found <= MOST_BYTES:
        return ""
    return (
        f"a value of {found / 2**20:.1f} MiB fits no record (at most {MOST_BYTES / 2**20:.0f}); "
        "send it compressed, or a reference to it"
    )


def brief(reason: str) -> str:
    """Truncate a reason to ``MOST_REASON_BYTES`` of UTF-8, with control characters as escapes:
    errors may quote a whole input, and terminals would act on a producer's."""
    reason = visible(reason)
    if len(reason) <= MOST_REASON_BYTES and reason.isascii():
        return reason
    said = reason.encode("utf-8", "replace")
    if len(said) <= MOST_REASON_BYTES:
        return said.decode()
    mark = f"... ({len(said)} bytes in all)"
    return said[: MOST_REASON_BYTES - len(mark)].decode("utf-8", "ignore") + mark
