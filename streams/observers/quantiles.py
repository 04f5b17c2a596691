"""Quantiles of a stream, in memory that does not grow with its length.

Values are counted in buckets whose bounds grow by 0.1 %, so a quantile is off by at most 0.05 % for
any distribution (as in DDSketch: Masson, Rim and Lee, VLDB 2019).
"""

from math import exp, log

GROWTH = log(1.001)
SMALLEST = 1e-9  # smaller values count as this


class Quantiles:
    """Counts of values by bucket; ``at`` returns a quantile."""

    __slots__ = ("_buckets", "count", "total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value of 0 or more."""
        bucket = round(log(value if value > SMALLEST else SMALLEST) / GROWTH)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += value

    def at(self, quantile: float) -> float | None:
        """Return the value that a share ``quantile`` (0..1) does not exceed, or None."""
        if not self.count:
            return None
        wanted, below = quantile * self.count, 0
        for bucket in sorted(self._buckets):
            below += self._buckets[bucket]
            if below >= wanted:
                break
        return exp(bucket * GROWTH)

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return self.total / self.count if self.count else None
