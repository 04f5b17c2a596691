"""What would the variant have done? Draws from its profile instead of computing.

Nothing waits here: the driver asks for the latency and waits it out.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from profiles.table import EMULATED, Entry, FanOut, ProfileTable
from schemas.pipeline import Variant
from schemas.records import Value

# The inverse distribution function is drawn as straight lines between these probabilities.
PROBABILITIES = (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)


class Emulated:
    """A variant as its profile knows it.

    Without ``rng`` nothing is left to chance: the median latency, the likeliest fan-out, and
    an answer that is right if most are. ``dilate`` stretches every latency.
    """

    def __init__(
        self,
        table: ProfileTable,
        variant: Variant,
        children: Sequence[str],
        rng: np.random.Generator | None,
        dilate: float = 1.0,
    ) -> None:
        """Raises ``ProfileError`` where the table has no profile of the variant, or none of its
        fan-out to one of the children."""
        self._table = table
        self._variant = variant
        self._rng = rng
        self._dilate = dilate
        self._entry = table.entry(variant.task, variant.name, EMULATED)
        for child in children:
            table.children_mean(variant.task, variant.name, child)
        self._fan_outs = {child: _Draw(self._entry.children[child]) for child in children}
        self._knots: dict[int, list[float]] = {}

    @property
    def load_s(self) -> float:
        """Seconds that bringing the variant to a device takes."""
        return self._entry.load_s * self._dilate

    def latency_s(self, batch: int) -> float:
        """Seconds that this run of a batch takes; raises ``ProfileError`` above the largest
        measured batch."""
        knots = self._knots.get(batch)
        if knots is None:
            knots = self._knots[batch] = latency_knots(self._table, self._entry, batch)
        if self._rng is None:
            return knots[1] * self._dilate
        return float(np.interp(self._rng.random(), PROBABILITIES, knots)) * self._dilate

    def predict(self, values: Sequence[Value]) -> list[Any]:
        """One output per value: {child: placeholder items}, or {"right": bool} at a leaf."""
        if not self._fan_outs:
            return [{"right": right} for right in self._rights(len(values))]
        counts = {
            child: draw.counts(len(values), self._rng) for child, draw in self._fan_outs.items()
        }
        return [
            {child: list(range(count[at])) for child, count in counts.items()}
            for at in range(len(values))
        ]

    def _rights(self, count: int) -> list[bool]:
        if self._rng is None:
            return [self._entry.accuracy >= 0.5] * count
        return [bool(right) for right in self._rng.random(count) < self._entry.accuracy]


class _Draw:
    """A fan-out distribution, ready to be drawn from."""

    def __init__(self, fan_out: FanOut) -> None:
        self._counts = sorted(fan_out.counts)
        self._bounds = np.cumsum([fan_out.counts[count] for count in self._counts])[:-1]
        self._likeliest = max(self._counts, key=lambda count: fan_out.counts[count])

    def counts(self, number: int, rng: np.random.Generator | None) -> list[int]:
        if rng is None:
            return [self._likeliest] * number
        drawn = np.searchsorted(self._bounds, rng.random(number), "right")
        return [self._counts[at] for at in drawn]


def latency_knots(table: ProfileTable, entry: Entry, batch: int) -> list[float]:
    """Seconds at each of ``PROBABILITIES``, undilated, drawn from with the measured mean.

    Nothing was measured of the fastest and the slowest run: the fastest, between half the
    median and the median, is chosen to give the mean, and where that cannot (a few runs were
    far slower than p99), the slowest is.
    """
    mean, p50, p90, p95, p99 = (
        table.latency_s(entry.task, entry.variant, entry.device, batch, quantile)
        for quantile in ("mean", "p50", "p90", "p95", "p99")
    )
    # From 0 to the median the average is (fastest + p50) / 2, with weight 1/2.
    above_median = _mean([p50, p50, p90, p95, p99, p99]) - p50 / 2
    fastest = min(max((mean - above_median) * 4 - p50, p50 / 2), p50)
    missing = max(0.0, mean - _mean([fastest, p50, p90, p95, p99, p99]))
    return [fastest, p50, p90, p95, p99, p99 + missing * 2 / (1 - PROBABILITIES[4])]


def _mean(knots: Sequence[float]) -> float:
    """Mean of what is drawn along straight lines between the knots."""
    points = list(zip(PROBABILITIES, knots, strict=True))
    return math.fsum(
        (high - low) * (low_s + high_s) / 2 for (low, low_s), (high, high_s) in pairwise(points)
    )
