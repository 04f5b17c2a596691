"""The unit of recorded arrival times: from the header, else inferred from the first time.

A header is a line such as ``seconds`` or ``ms``, or the column names of a CSV, of which one names
a time (``time_s``, ``timestamp``, ``arrival_ms``). Without a unit in the header, the first time
decides: ISO 8601, or an epoch time in s, ms, us or ns; a smaller number is milliseconds from the
start. ISO and epoch times are relative to the first one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

UNITS_S = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6,
    "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip
COLUMNS = ("time", "timestamp", "arrival", "arrivals", "arrived", "at", "t", "created")
# The least epoch time of this century in each unit: ns, us, ms, s.
EPOCHS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e9, 1.0))


@dataclass(frozen=True, slots=True)
class Column:
    """The column of the times, and their unit in seconds (None: inferred from the first time)."""

    index: int = 0
    unit_s: float | None = None


def header_of(line: str) -> Column | None:
    """Return the time column that a header line names; None if the line is no header."""
    names = [part.strip().strip('"').lower() for part in line.split(",")]
    for index, name in enumerate(names):
        unit_s = UNITS_S.get(name) if len(names) == 1 else None
        stem, _, suffix = name.rpartition("_")
        if unit_s is None and stem in COLUMNS:
            unit_s = UNITS_S.get(suffix)
        if unit_s is not None or name in COLUMNS:
            return Column(index, unit_s)
    return None


def cells(lines: Sequence[str], column: Column) -> list[str]:
    """Return the text of each line's time; "" for a line with too few columns."""
    if column.index == 0 and "," not in lines[0]:
        return [line.strip() for line in lines]
    parts = [line.split(",") for line in lines]
    return [p[column.index].strip() if column.index < len(p) else "" for p in parts]


def iso_s(text: str) -> float | None:
    """Return the epoch seconds of an ISO 8601 time (UTC without a zone); None for other text."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def epoch_unit_s(first: float) -> float | None:
    """Return the unit of an epoch time in seconds; None for a time relative to the start."""
    return next((unit_s for least, unit_s in EPOCHS if first >= least), None)
