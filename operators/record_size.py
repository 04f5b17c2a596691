"""Does a value fit a record? The broker refuses one that is too large for good."""

import numpy as np

from schemas.records import Value

# Below the broker's 8 MiB by what the rest of a record may need: ids, paths, headers.
MOST_BYTES = 7 * 1024 * 1024
MOST_REASON_BYTES = 2000
MOST_HEADER_BYTES = 64 * 1024  # of a dead letter's headers together
_SCALARS = frozenset((type(None), bool, int, float))


def record_size(value: Value) -> int:
    """About how many bytes a value needs in a record; exact for bytes and arrays."""
    kind = type(value)
    if kind in _SCALARS:
        return 8
    if kind is bytes:
        return len(value)  # type: ignore[arg-type]
    if kind is str:
        # UTF-8 needs up to four bytes for a character; counted only where that could matter.
        length = len(value)  # type: ignore[arg-type]
        return length if length * 4 <= MOST_BYTES else len(value.encode())  # type: ignore[union-attr]
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(record_size(key) + record_size(held) for key, held in value.items())
    if isinstance(value, list):
        return sum(record_size(held) for held in value)
    return 8


def excess(value: Value) -> str:
    """The sentence for a value that fits no record; "" for one that does."""
    found = record_size(value)
    if found <= MOST_BYTES:
        return ""
    return (
        f"a value of {found / 2**20:.1f} MiB fits no record (at most {MOST_BYTES / 2**20:.0f}); "
        "send it compressed, or a reference to it"
    )


def brief(reason: str) -> str:
    """Return a reason cut to ``MOST_REASON_BYTES`` of UTF-8: errors may quote all of an input."""
    if len(reason) <= MOST_REASON_BYTES and reason.isascii():
        return reason
    said = reason.encode("utf-8", "replace")
    if len(said) <= MOST_REASON_BYTES:
        return said.decode()
    mark = f"... ({len(said)} bytes in all)"
    return said[: MOST_REASON_BYTES - len(mark)].decode("utf-8", "ignore") + mark
