"""Which value do so many lie below? Quantiles of a stream, in memory that does not grow with it.

Values are counted in buckets whose bounds grow by 0.1 %, so a quantile is off by 0.05 % at most,
whatever the distribution (the idea of DDSketch: Masson, Rim and Lee, VLDB 2019).
"""

import math

GROWTH = math.log(1.001)
SMALLEST = 1e-9  # what is less counts as this


class Quantiles:
    """Counts values; ``at`` tells the value at a quantile."""

    __slots__ = ("_buckets", "count", "total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value of 0 or more."""
        bucket = round(math.log(max(value, SMALLEST)) / GROWTH)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += value

    def at(self, quantile: float) -> float | None:
        """The value that a share of ``quantile`` (0..1) does not exceed; None without values."""
        if not self.count:
            return None
        wanted, below = quantile * self.count, 0
        for bucket in sorted(self._buckets):
            below += self._buckets[bucket]
            if below >= wanted:
                break
        return math.exp(bucket * GROWTH)

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return self.total / self.count if self.count else None
