"""Read arrival times from a file, and find the unit of its times.

A header is a line such as ``seconds`` or ``ms``, or the column names of a CSV, of which one names
a time (``time_s``, ``timestamp``, ``arrival_ms``). Without a unit in the header, the first time
decides: ISO 8601, or an epoch time in s, ms, us or ns; a smaller number is milliseconds from the
start. ISO and epoch times are relative to the first one.
"""

import gzip
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from headrace.arrivals.arrival_processes import MOST_QPS, Rates, Recorded, Times
from headrace.errors import ArrivalsError

SUFFIXES = (".txt", ".csv", ".gz")
MS = 1e-3  # the default unit of times
LATEST_START_S = 3600.0
LIKELY_QPS, FEW = 10_000, 10  # a file of at least FEW queries above this rate has the wrong unit
RATES = "second,qps"
SIZED = {"ms,size": 1e3, "time,size": 1.0}  # header -> units per second
UNITS_S = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6,
    "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip
COLUMNS = ("time", "timestamp", "arrival", "arrivals", "arrived", "at", "t", "created")
# The least epoch time of this century in each unit: ns, us, ms, s.
EPOCHS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e9, 1.0))
_SIZE = re.compile(r"0*[1-9][0-9]{0,11}")


@dataclass(frozen=True, slots=True)
class Column:
    """The column of the times, and their unit in seconds (None: inferred from the first time)."""

    index: int = 0
    unit_s: float | None = None


def read_workload(path: Path) -> Recorded | Rates:
    """Read a file of arrivals: one time per line, ``ms,size`` or ``time,size`` (seconds) below such
    a header, or below the header ``second,qps`` the rate of every second.

    Times are in the unit that a header names, else ISO or epoch times, else ms from the start.
    Raises ``ArrivalsError`` naming the line.
    """
    lines = _lines(path)
    sized = SIZED.get(lines[0].replace(" ", "").lower())
    if sized is not None:
        return _sized(path, lines, sized)
    column = header_of(lines[0])
    if lines[0].replace(" ", "").lower() == RATES:
        return Rates(tuple(_rates(path, lines)))
    if column is None and "," in lines[0]:
        raise ArrivalsError(
            f"{path}:1: {lines[0][:40]!r} has several columns and no header says which; write one "
            f"above it: {RATES} (the rate of every second), {' or '.join(SIZED)} (queries)"
        )
    first = 1 if column is None else 2  # the line of the first time
    if len(lines) < first:
        raise ArrivalsError(f"{path} has a header only; add a line for every arrival")
    texts = cells(lines[first - 1 :], column or Column())
    numbers, unit_s = _timed(path, first, texts, column.unit_s if column else None)
    times = numbers * unit_s if unit_s != MS else numbers / 1e3
    _check_density(path, first, times)
    if column is None or column.unit_s is None:
        _check_unit(path, times, numbers)
    return Recorded(times)


def _timed(path: Path, first: int, texts: list[str], unit_s: float | None) -> tuple[Times, float]:
    """Return the times as numbers and their unit; ISO and epoch times are relative to the first."""
    if iso_s(texts[0]) is not None and not _is_number(texts[0]):
        numbers, unit_s = _dated(path, first, texts), 1.0
        epoch = True
    else:
        numbers = _ascending(path, first, texts)
        epoch_s = epoch_unit_s(float(numbers[0]))
        epoch = epoch_s is not None
        unit_s = unit_s or epoch_s or MS
    start = float(numbers[0])
    if not epoch and start * unit_s > LATEST_START_S:
        raise _wrong(
            path, first,
            f"the first query comes {start * unit_s / 3600:.1f} h after the start; subtract it "
            "from every time, or name the unit in a first line such as: ms",
        )  # fmt: skip
    return (numbers - start if epoch else numbers), unit_s


def _dated(path: Path, first: int, texts: list[str]) -> Times:
    times: list[float] = []
    for at, text in enumerate(texts, first):
        seconds = iso_s(text)
        if seconds is None:
            raise _wrong(path, at, f"{text!r} is no ISO time, as the first one is")
        if times and seconds < times[-1]:
            raise _wrong(path, at, "the time comes before the one above it; sort the file")
        times.append(seconds)
    return np.array(times)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _ascending(path: Path, first: int, texts: list[str]) -> Times:
    try:
        times = np.array([float(text) for text in texts])
    except ValueError:
        times = np.array([math.nan])
    if not np.isfinite(times).all() or times[0] < 0 or (np.diff(times) < 0).any():
        _find_wrong(path, first, texts)
    return times


def _check_unit(path: Path, times_s: Times, numbers: Times) -> None:
    """Raise for times that are probably in seconds: fractions whose rate in ms is implausible."""
    span_s = float(times_s[-1] - times_s[0])
    fractions = bool((numbers != np.floor(numbers)).any())
    if fractions and len(times_s) >= FEW and len(times_s) > LIKELY_QPS * span_s:
        raise ArrivalsError(
            f"{path}: {len(times_s)} queries within {span_s * 1e3:.3g} ms, if these are "
            "milliseconds; write the unit in a first line: seconds, or ms"
        )


def _sized(path: Path, lines: list[str], per_s: float) -> Recorded:
    """Return the times and sizes below a header."""
    rows = [line.partition(",") for line in lines[1:]]
    if not rows:
        raise ArrivalsError(f"{path} has a header only; add a line for every query, as in 12.5,40")
    for at, (_, comma, size) in enumerate(rows, 2):
        if not comma or not _SIZE.fullmatch(size.strip()):
            raise _wrong(
                path, at, f"{size.strip()[:40]!r} is no size; a whole number from 1 is wanted"
            )
    times = [_number(path, at, time, "a time") for at, (time, _, _) in enumerate(rows, 2)]
    for at, (before, after) in enumerate(pairwise(times), 3):
        if after < before:
            raise _wrong(path, at, f"{after:g} comes after {before:g}; sort the file")
    seconds = np.array(times) / per_s
    _check_density(path, 2, seconds)
    return Recorded(seconds, tuple(int(size) for _, _, size in rows))


def _find_wrong(path: Path, first: int, texts: list[str]) -> None:
    """Raise for the first line that is no time or is before its predecessor."""
    times = [_number(path, at, text, "a time in ms") for at, text in enumerate(texts, first)]
    for at, (before, after) in enumerate(pairwise(times), first + 1):
        if after < before:
            raise _wrong(path, at, f"{after:g} comes after {before:g}; sort the file")


def _check_density(path: Path, first: int, times_s: Times) -> None:
    crowd = times_s[MOST_QPS:] - times_s[: max(len(times_s) - MOST_QPS, 0)] < 1.0
    if crowd.any():
        at = int(np.argmax(crowd))
        count = int(np.searchsorted(times_s, times_s[at] + 1.0)) - at
        raise _wrong(
            path, at + first,
            f"{count} queries arrive within the second from here, and {MOST_QPS} are the most; "
            "write the times in milliseconds, or their unit in a first line such as: seconds",
        )  # fmt: skip


def _rates(path: Path, lines: list[str]) -> list[float]:
    rates: list[float] = []
    for at, line in enumerate(lines[1:], 2):
        second, _, qps = line.partition(",")
        if _number(path, at, second, "a second") != len(rates):
            raise _wrong(path, at, f"second {second} where {len(rates)} is due; list every second")
        rates.append(_number(path, at, qps, "a rate in queries/s"))
        if rates[-1] > MOST_QPS:
            raise _wrong(path, at, f"{rates[-1]:g} queries/s; {MOST_QPS} are the most")
    if not rates:
        raise ArrivalsError(f"{path} has a header only; add a line for every second, as in 0,20")
    return rates


def _lines(path: Path) -> list[str]:
    if path.suffix not in SUFFIXES:
        raise ArrivalsError(f"{path}: arrivals are read from {', '.join(SUFFIXES)} files")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = raw.decode("utf-8-sig").splitlines()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ArrivalsError(f"the arrivals {path} cannot be read ({why}); name another") from error
    if not lines:
        raise ArrivalsError(f"{path} is empty; write one arrival time in ms on each line")
    for at, line in enumerate(lines, 1):
        if not line.strip():
            raise _wrong(path, at, "the line is empty; remove it")
    return lines


def _number(path: Path, at: int, text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _wrong(path, at, f"{text.strip()!r} is no number; {what} is wanted")
    if value < 0:
        raise _wrong(path, at, f"{text.strip()} is negative; {what} is 0 or more")
    return value


def _wrong(path: Path, line: int, sentence: str) -> ArrivalsError:
    return ArrivalsError(f"{path}:{line}: {sentence}")


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
