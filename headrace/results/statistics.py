"""Estimate means with their 95 % confidence interval, and paired differences of means.

With n values, mean m and standard deviation s, the interval is m +- t(n - 1) s / sqrt(n), t being
Student's. Runs of two policies with one seed share their arrivals and draws (common random
numbers), so paired differences vary less than the values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy.special import stdtrit

CERTAINTY = 0.95


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over ``count`` values; ``half`` is its interval's half-width, None with one value."""

    value: float
    half: float | None
    count: int

    @property
    def certain(self) -> bool:
        """Whether the interval is known and excludes 0: a difference is then significant."""
        return self.half is not None and abs(self.value) > self.half


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of values with its interval; raise ``StatisticsError`` for no values."""
    if len(values) < 2:
        return Mean(fmean(values), None, len(values))
    students = float(stdtrit(len(values) - 1, (1 + CERTAINTY) / 2))
    half = students * stdev(values) / sqrt(len(values))
    return Mean(fmean(values), half, len(values))


def difference(values: Sequence[float], against: Sequence[float]) -> Mean:
    """Return the mean of the paired differences, ``values`` minus ``against``.

    Raises ``ValueError`` for different lengths.
    """
    return mean_of([one - other for one, other in zip(values, against, strict=True)])
