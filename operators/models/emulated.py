"""Emulated variants: latencies, fan-outs and correctness drawn from a profile, without a model.

Emulation itself never waits: the driver asks for a latency and waits that long.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from profiles.measurements import EMULATED, Entry, FanOut
from profiles.profile_table import ProfileTable
from schemas.pipeline import Variant
from schemas.records import Value

# The inverse distribution function is piecewise linear between these probabilities.
PROBABILITIES = (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)
BLOCK = 256  # number of draws per call of the generator


class Emulated:
    """A variant emulated from its profile.

    Without ``rng`` it is deterministic: the median latency, the likeliest fan-out, and a correct
    answer if the accuracy is at least one half. ``latency``, a quantile of the profile, fixes the
    latency of every run. ``dilate`` multiplies every latency. ``one_of``: an item goes to one child
    only (untied branches), each as often as its fan-out has any items.
    """

    def __init__(
        self,
        table: ProfileTable,
        variant: Variant,
        children: Sequence[str],
        rng: np.random.Generator | None,
        dilate: float = 1.0,
        *,
        device: str = EMULATED,
        latency: str = "",
        one_of: bool = False,
    ) -> None:
        """Raise ``ProfileError`` if the table lacks a profile of the variant on the device, or of
        its fan-out to one of the children."""
        self._table = table
        self._variant = variant
        self._chance = None if rng is None else partial(next, _uniforms(rng))
        self._dilate = dilate
        self._one_of = one_of and len(children) > 1
        self._device = device
        self._quantile = latency or ("p50" if rng is None else "")
        self._entry = table.entry(variant.task, variant.name, device)
        for child in children:
            table.children_mean(variant.task, variant.name, child)
        self._fan_outs = {child: _Draw(self._entry.children[child]) for child in children}
        self._knots: dict[int, list[float]] = {}

    @property
    def load_s(self) -> float:
        """Time to load the variant onto a device, in seconds."""
        return self._entry.load_s * self._dilate

    def latency_s(self, batch: int) -> float:
        """Return a latency of a batch in seconds; raise ``ProfileError`` above the largest
        measured batch."""
        if self._quantile or self._chance is None:
            task, name = self._variant.task, self._variant.name
            seconds = self._table.latency_s(task, name, self._device, batch, self._quantile)
            return seconds * self._dilate
        knots = self._knots.get(batch)
        if knots is None:
            knots = self._knots[batch] = latency_knots(self._table, self._entry, batch)
        return _between(knots, self._chance()) * self._dilate

    def predict(self, values: Sequence[Value]) -> list[Any]:
        """Return one output per value: {child: [None] * items}; at a leaf, True if correct."""
        chance = self._chance
        if not self._fan_outs:
            accuracy = self._entry.accuracy
            if chance is None:
                return [accuracy >= 0.5] * len(values)
            return [chance() < accuracy for _ in values]
        if self._one_of:
            return [self._to_one(chance) for _ in values]
        return [
            {child: [None] * draw.count(chance) for child, draw in self._fan_outs.items()}
            for _ in values
        ]

    def _to_one(self, chance: Callable[[], float] | None) -> dict[str, list[None]]:
        """Return items for one child, at least one, and none for the others."""
        odds = [draw.odds for draw in self._fan_outs.values()]
        if chance is None:
            at = odds.index(max(odds))
        else:
            at = min(bisect_right(list(accumulate(odds)), chance() * sum(odds)), len(odds) - 1)
        return {
            child: [None] * (draw.some(chance) if other == at else 0)
            for other, (child, draw) in enumerate(self._fan_outs.items())
        }


class Stretched:
    """A variant whose batches take its median latency times ``stretch(batch)``, the recorded
    slowdown of a shared machine."""

    def __init__(self, median: Emulated, stretch: Callable[[int], float]) -> None:
        self._median = median
        self._stretch = stretch
        self.load_s = median.load_s
        self.predict = median.predict

    def latency_s(self, batch: int) -> float:
        """Return a latency of a batch in seconds."""
        return self._median.latency_s(batch) * self._stretch(batch)


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    # A block of draws costs numpy little more than a single draw.
    while True:
        yield from rng.random(BLOCK).tolist()


def _between(knots: Sequence[float], probability: float) -> float:
    """Return the value at a probability, interpolated linearly between the knots."""
    at = bisect_right(PROBABILITIES, probability) - 1
    low, high = PROBABILITIES[at], PROBABILITIES[at + 1]
    return knots[at] + (knots[at + 1] - knots[at]) * (probability - low) / (high - low)


class _Draw:
    """A fan-out distribution to draw from."""

    def __init__(self, fan_out: FanOut) -> None:
        self._counts = sorted(fan_out.counts)
        shares = [fan_out.counts[count] for count in self._counts]
        self._bounds = np.cumsum(shares)[:-1].tolist()
        self._likeliest = max(self._counts, key=lambda count: fan_out.counts[count])
        self._none = fan_out.counts.get(0, 0.0)
        self.odds = 1.0 - self._none  # probability of at least one item
        self._likeliest_some = max(
            (count for count in self._counts if count > 0),
            key=lambda count: fan_out.counts[count],
            default=0,
        )

    def count(self, chance: Callable[[], float] | None) -> int:
        if chance is None:
            return self._likeliest
        return self._counts[bisect_right(self._bounds, chance())]

    def some(self, chance: Callable[[], float] | None) -> int:
        """Draw a number of items, given at least one."""
        if chance is None or not self.odds:
            return self._likeliest_some
        # The part of the distribution above the probability of zero items.
        return self._counts[bisect_right(self._bounds, self._none + chance() * self.odds)]


def latency_knots(table: ProfileTable, entry: Entry, batch: int) -> list[float]:
    """Return the seconds at each of ``PROBABILITIES``, undilated; draws have the measured mean.

    The extremes are not measured: the fastest run, between half the median and the median, is
    chosen to match the mean; if it cannot (a few runs were far slower than p99), the slowest is.
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
    """Return the mean of the piecewise linear distribution through the knots."""
    points = list(zip(PROBABILITIES, knots, strict=True))
    return math.fsum(
        (high - low) * (low_s + high_s) / 2 for (low, low_s), (high, high_s) in pairwise(points)
    )
