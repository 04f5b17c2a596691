"""The unit of recorded arrival times: named by a header, or recognised by the first time.

A header is a line such as ``seconds`` or ``ms``, or the column names of a CSV, of which one names
a time (``time_s``, ``timestamp``, ``arrival_ms``). Without a unit there, the first time decides:
ISO 8601, or an epoch time in s, ms, us or ns; anything smaller is milliseconds from the start.
Times of the day count from the first one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

UNITS_S = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6,
    "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip
COLUMNS = ("time", "timestamp", "arrival", "arrivals", "arrived", "at", "t", "created")
# Epoch times of this century by their size: seconds, ms, us, ns.
EPOCHS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e9, 1.0))
EPOCH_FROM = 1e9  # as milliseconds from the start the first query would come after eleven days


@dataclass(frozen=True, slots=True)
class Column:
    """Where the times stand in each line, and their unit in seconds (None: to be recognised)."""

    index: int = 0
    unit_s: float | None = None


def header_of(line: str) -> Column | None:
    """What a first line says of the times below it; None where it is no header of theirs."""
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
    """The times as they stand in the lines; "" where a line has too few columns."""
    if column.index == 0 and "," not in lines[0]:
        return [line.strip() for line in lines]
    parts = [line.split(",") for line in lines]
    return [p[column.index].strip() if column.index < len(p) else "" for p in parts]


def iso_s(text: str) -> float | None:
    """Epoch seconds of an ISO 8601 time, UTC where it names no zone; None for anything else."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def epoch_unit_s(first: float) -> float | None:
    """The unit of an epoch time; None for a time that counts from the start of the recording."""
    return next((unit_s for least, unit_s in EPOCHS if first >= least), None)
