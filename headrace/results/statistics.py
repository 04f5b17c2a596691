"""How sure is a mean over a few runs? Means with their 95 % interval, and paired differences.

With n values, mean m and standard deviation s, the interval is m +- t(n - 1) s / sqrt(n), t being
Student's. Runs of two policies with one seed share their arrivals and draws, so the differences
of pairs sway less than the values do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy.special import stdtrit

CERTAINTY = 0.95


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over ``count`` values; ``half`` is half of its interval, None with one value."""

    value: float
    half: float | None
    count: int

    @property
    def certain(self) -> bool:
        """Whether the interval is known and leaves out 0: as a difference, one beyond chance."""
        return self.half is not None and abs(self.value) > self.half


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of some values; raises ``StatisticsError`` where there is none."""
    if len(values) < 2:
        return Mean(fmean(values), None, len(values))
    students = float(stdtrit(len(values) - 1, (1 + CERTAINTY) / 2))
    half = students * stdev(values) / sqrt(len(values))
    return Mean(fmean(values), half, len(values))


def difference(values: Sequence[float], against: Sequence[float]) -> Mean:
    """The mean of the differences of pairs, in order."""
    return mean_of([one - other for one, other in zip(values, against, strict=True)])
