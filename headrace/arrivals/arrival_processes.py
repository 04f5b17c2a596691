"""Arrival times from seeded processes, rates or a recording.

Times are seconds from the start, ascending. The same arrivals serve live load and simulation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from headrace.errors import ArrivalsError

Times: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

MOST_QPS = 100_000  # more queries within a second mean that the unit is not ms
MOST_QUERIES = 100_000_000  # of one run; their times are held in memory


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
