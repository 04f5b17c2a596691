"""When do queries arrive? Arrival times from a seeded Poisson process, rates or a file.

Times are seconds from the start, ascending. The same arrivals serve live load and simulation.
"""

import gzip
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

Times: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

SUFFIXES = (".txt", ".csv", ".gz")


class ArrivalsError(ValueError):
    """An arrivals file or a rate that cannot be used; one sentence with the line."""


def poisson(rate_qps: float, seconds: float, rng: np.random.Generator) -> Times:
    """Arrival times in [0, ``seconds``) at ``rate_qps`` on average.

    Raises ``ArrivalsError`` for a rate or a time that is not above 0.
    """
    for name, value, unit in (("rate", rate_qps, "queries/s"), ("time", seconds, "s")):
        if not (value > 0 and math.isfinite(value)):
            raise ArrivalsError(f"the {name} is {value:g} {unit}; it must be above 0")
    count = rng.poisson(rate_qps * seconds)
    # Given their number, the arrivals of a Poisson process are uniform.
    return np.sort(rng.uniform(0.0, seconds, count))


def from_rates(rates_qps: Sequence[float], rng: np.random.Generator) -> Times:
    """Arrival times of a Poisson process whose rate is ``rates_qps[i]`` in second ``i``."""
    counts = rng.poisson(np.asarray(rates_qps, dtype=np.float64))
    return np.sort(np.repeat(np.arange(len(counts)), counts) + rng.uniform(0, 1, counts.sum()))


def read_arrivals(path: Path, rng: np.random.Generator) -> Times:
    """The arrival times in a file: one time in ms a line, or ``second,qps`` for every second.

    ``rng`` draws the arrivals of the second form only. Raises ``ArrivalsError`` naming the line.
    """
    lines = _lines(path)
    if "," in lines[0]:
        return from_rates(_rates(path, lines), rng)
    times = [_number(path, at, line, "a time in ms") for at, line in enumerate(lines, 1)]
    for at, (before, after) in enumerate(pairwise(times), 2):
        if after < before:
            raise _wrong(path, at, f"{after:g} ms comes after {before:g} ms; sort the file")
    return np.asarray(times, dtype=np.float64) / 1e3


def _rates(path: Path, lines: list[str]) -> list[float]:
    header = lines[0].replace(" ", "").lower() == "second,qps"
    rates: list[float] = []
    for at, line in list(enumerate(lines, 1))[header:]:
        second, _, qps = line.partition(",")
        if _number(path, at, second, "a second") != len(rates):
            raise _wrong(path, at, f"second {second} where {len(rates)} is due; list every second")
        rates.append(_number(path, at, qps, "a rate in queries/s"))
    if not rates:
        raise ArrivalsError(f"{path} has a header only; add a line for every second, as in 0,20")
    return rates


def _lines(path: Path) -> list[str]:
    if path.suffix not in SUFFIXES:
        raise ArrivalsError(f"{path}: arrivals are read from {', '.join(SUFFIXES)} files")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = raw.decode("utf-8-sig").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
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
