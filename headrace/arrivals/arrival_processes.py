"""Arrival times from seeded processes, rates or a file.

Times are seconds from the start, ascending. The same arrivals serve live load and simulation.
"""

import gzip
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from headrace.arrivals.time_units import Column, cells, epoch_unit_s, header_of, iso_s
from headrace.errors import ArrivalsError

Times: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

SUFFIXES = (".txt", ".csv", ".gz")
MS = 1e-3  # the default unit of times
LATEST_START_S = 3600.0
LIKELY_QPS, FEW = 10_000, 10  # a file of at least FEW queries above this rate has the wrong unit
RATES = "second,qps"
SIZED = {"ms,size": 1e3, "time,size": 1.0}  # header -> units per second
MOST_QPS = 100_000  # more queries within a second mean that the unit is not ms
MOST_QUERIES = 100_000_000  # of one run; their times are held in memory
_SIZE = re.compile(r"0*[1-9][0-9]{0,11}")


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded arrivals, independent of the seed; with the size of each query where recorded."""

    times_s: Times
    sizes: tuple[int, ...] = ()

    def drawn(self, rng: np.random.Generator) -> Times:
        """Return the recorded arrival times; ``rng`` is unused."""
        return self.times_s


@dataclass(frozen=True, slots=True)
class Rates:
    """A Poisson process whose rate is ``rates_qps[i]`` in second ``i``."""

    rates_qps: tuple[float, ...]

    def drawn(self, rng: np.random.Generator) -> Times:
        """Return the arrival times of one run."""
        return from_rates(self.rates_qps, rng)


@dataclass(frozen=True, slots=True)
class Renewal:
    """A renewal process: gamma gaps with coefficient of variation ``cv`` (1: a Poisson process)."""

    rate_qps: float
    seconds: float
    cv: float = 1.0

    def drawn(self, rng: np.random.Generator) -> Times:
        """Return the arrival times of one run."""
        if self.cv == 1.0:
            return poisson(self.rate_qps, self.seconds, rng)
        return gamma(self.rate_qps, self.seconds, self.cv, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """A Markov-modulated Poisson process: the rate in a burst is ``factor`` times the calm rate.

    Bursts last ``length_s`` on average and are ``apart_s`` apart on average; ``rate_qps`` is the
    mean over both.
    """

    rate_qps: float
    seconds: float
    factor: float
    length_s: float = 2.0
    apart_s: float = 20.0

    def drawn(self, rng: np.random.Generator) -> Times:
        """Return the arrival times of one run."""
        calm = (self.length_s + self.apart_s) / (self.factor * self.length_s + self.apart_s)
        now, bursting, found = 0.0, False, [np.empty(0)]
        while now < self.seconds:
            stay = rng.exponential(self.length_s if bursting else self.apart_s)
            until = min(now + stay, self.seconds)
            rate = self.rate_qps * calm * (self.factor if bursting else 1.0)
            found.append(rng.uniform(now, until, rng.poisson(rate * (until - now))))
            now, bursting = until, not bursting
        return np.sort(np.concatenate(found))


class Arrivals(Protocol):
    """Arrivals of a load or a simulation."""

    def drawn(self, rng: np.random.Generator) -> Times:
        """Return the arrival times of one run, seconds from the start, ascending."""
        ...


def poisson(rate_qps: float, seconds: float, rng: np.random.Generator) -> Times:
    """Return Poisson arrival times in [0, ``seconds``) at ``rate_qps`` on average.

    Raises ``ArrivalsError`` for a rate or a time that is not above 0, or too many queries.
    """
    _check_length(rate_qps, seconds)
    count = rng.poisson(rate_qps * seconds)
    # Given their number, the arrivals of a Poisson process are uniform.
    return np.sort(rng.uniform(0.0, seconds, count))


def ramp(from_qps: float, to_qps: float, seconds: float, rng: np.random.Generator) -> Times:
    """Return Poisson arrival times in [0, ``seconds``); the rate changes linearly."""
    count = rng.poisson((from_qps + to_qps) / 2 * seconds)
    uniform = rng.uniform(0.0, 1.0, count)
    if from_qps == to_qps:
        return np.sort(uniform * seconds)
    # The inverse of  integral of the rate up to x / integral of it up to 1.
    slope = to_qps - from_qps
    x = (np.sqrt(from_qps**2 + uniform * (to_qps**2 - from_qps**2)) - from_qps) / slope
    return np.sort(np.minimum(x, np.nextafter(1.0, 0.0)) * seconds)


def gamma(rate_qps: float, seconds: float, cv: float, rng: np.random.Generator) -> Times:
    """Return arrival times in [0, ``seconds``) with gamma gaps of coefficient of variation ``cv``.

    Raises ``ArrivalsError`` for a rate, a time or a variation that is not above 0.
    """
    _check_length(rate_qps, seconds)
    if not (cv > 0 and math.isfinite(cv)):
        raise ArrivalsError(f"the coefficient of variation is {cv:g}; it must be above 0")
    found, last = [np.empty(0)], 0.0
    while last < seconds:
        gaps = rng.gamma(cv**-2, cv**2 / rate_qps, 1 + int(1.1 * rate_qps * (seconds - last)))
        found.append(last + np.cumsum(gaps))
        last = float(found[-1][-1])
    times = np.concatenate(found)
    return times[: int(np.searchsorted(times, seconds))]


def _check_length(rate_qps: float, seconds: float) -> None:
    for name, value, unit in (("rate", rate_qps, "queries/s"), ("time", seconds, "s")):
        if not (value > 0 and math.isfinite(value)):
            raise ArrivalsError(f"the {name} is {value:g} {unit}; it must be above 0")
    check_number(rate_qps * seconds)


def check_number(queries: float) -> None:
    """Raise ``ArrivalsError`` for more queries than a run can have."""
    if queries > MOST_QUERIES:
        raise ArrivalsError(
            f"the arrivals are {queries:.3g} queries, and {MOST_QUERIES:.0e} are the most of a "
            "run; lower the rate, or shorten the time"
        )


def from_rates(rates_qps: Sequence[float], rng: np.random.Generator) -> Times:
    """Return Poisson arrival times; the rate is ``rates_qps[i]`` in second ``i``.

    Raises ``ArrivalsError`` for too many queries.
    """
    check_number(sum(rates_qps))
    counts = rng.poisson(np.asarray(rates_qps, dtype=np.float64))
    return np.sort(np.repeat(np.arange(len(counts)), counts) + rng.uniform(0, 1, counts.sum()))


def read_arrivals(path: Path, rng: np.random.Generator) -> Times:
    """Return a file's arrival times; ``rng`` draws those of rates. Raises ``ArrivalsError``."""
    return read_workload(path).drawn(rng)


def read_workload(path: Path) -> Recorded | Rates:
    """Read a file of arrivals: one time per line, ``ms,size`` or ``time,size`` (seconds) below such
    a header, or below the header ``second,qps`` the rate of every second.

    Times are in the unit that a header names, else ISO or epoch times, else ms from the start
    (``headrace/arrivals/time_units.py``). Raises ``ArrivalsError`` naming the line.
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
