"""Latencies learned on line: what a query of a size takes on a device type, from completions.

Per type (Kairos, HPDC 2023, section 5.1: a line from a handful of queries, then a look-up table):

    line    least squares over (size, seconds); where a profile is known, the profile times the
            mean ratio of observed to profiled seconds instead
    table   per bucket of a 16th octave of size, the mean of what ran there; used from 8
            observations on, with weight n / (n + 8) against the line
    decay   every observation halves the weight of those HALF_LIFE observations before it
    p95     the mean times the 95th percentile of observed / predicted over the newest RATIOS

A type of which fewer than two sizes were seen takes what is known of another type times PRIOR; a
device that is slower than its type has a factor of its own, which follows it within a few queries.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Mapping

HALF_LIFE = 500  # observations of a type
ENOUGH = 8  # observations of a bucket
PER_OCTAVE = 16
PRIOR = 4.0  # how many times as slow as the best known type an unknown one is taken to be
RATIOS = 200
FIRST_GUESS_S = 0.1  # of anything, before anything ran
FOLLOWS = 0.25  # weight of the newest observation in a device's factor
OUTLIER = 20.0  # times the prediction: a stall, not a latency

Profiled = Callable[[str, int], float]  # type, size -> seconds

_KEEP = 0.5 ** (1 / HALF_LIFE)


def bucket_of(size: int) -> int:
    """The bucket of a size, a 16th of an octave wide."""
    return int(PER_OCTAVE * math.log2(size))


class _Sums:
    """Decayed sums of a line through (size, seconds)."""

    __slots__ = ("n", "ratio", "sizes", "x", "xx", "xy", "y")

    def __init__(self) -> None:
        self.n = self.x = self.y = self.xx = self.xy = self.ratio = 0.0
        self.sizes: tuple[int, int] = (0, 0)  # smallest, largest

    def add(self, size: int, seconds: float, ratio: float) -> None:
        self.n = self.n * _KEEP + 1
        self.x = self.x * _KEEP + size
        self.y = self.y * _KEEP + seconds
        self.xx = self.xx * _KEEP + size * size
        self.xy = self.xy * _KEEP + size * seconds
        self.ratio = self.ratio * _KEEP + ratio
        low, high = self.sizes
        self.sizes = (min(low or size, size), max(high, size))

    def line(self) -> tuple[float, float] | None:
        """Intercept and slope, neither below 0; None before two distinct sizes were seen."""
        if self.sizes[0] == self.sizes[1]:
            return None
        spread = self.n * self.xx - self.x**2
        slope = max((self.n * self.xy - self.x * self.y) / spread, 0.0) if spread > 0 else 0.0
        intercept = (self.y - slope * self.x) / self.n
        # A negative intercept would make small queries free: then the line goes through 0.
        return (intercept, slope) if intercept >= 0 else (0.0, self.xy / self.xx)


class _Learned:
    """What is known of one type."""

    __slots__ = ("newest", "ranked", "sums", "table", "version")

    def __init__(self) -> None:
        self.sums = _Sums()
        self.table: dict[
            int, tuple[float, float]
        ] = {}  # bucket -> weight, mean s per s of the prior
        self.newest: deque[float] = deque()  # ratios in order of arrival
        self.ranked: list[float] = []  # and sorted
        self.version = 0

    def note_ratio(self, ratio: float) -> None:
        self.newest.append(ratio)
        insort(self.ranked, ratio)
        if len(self.newest) > RATIOS:
            del self.ranked[bisect_left(self.ranked, self.newest.popleft())]

    def worst_ratio(self) -> float:
        """The 95th percentile of observed over predicted, 1 at least."""
        if len(self.ranked) < ENOUGH:
            return 1.0
        return max(self.ranked[int(0.95 * (len(self.ranked) - 1))], 1.0)


class LatencyModel:
    """The state. ``profiled`` gives what was measured before; None where nothing was."""

    def __init__(self, types: tuple[str, ...], profiled: Profiled | None = None) -> None:
        self._types = {name: _Learned() for name in types}
        self._profiled = profiled
        self._factors: dict[str, float] = {}

    def observe(self, type_: str, size: int, seconds: float, device: str = "") -> None:
        """Learn from a query that ran. What took ``OUTLIER`` times the prediction is a stall and
        is taken as that much."""
        learned = self._types[type_]
        predicted = self.mean_s(type_, size)
        if learned.sums.n >= ENOUGH:
            seconds = min(seconds, OUTLIER * predicted)
        prior = self._prior_s(type_, size)
        before = self._factors.get(device, 1.0)
        ratio = seconds / predicted
        self._factors[device] = before + FOLLOWS * (ratio - before)
        learned.note_ratio(ratio)
        learned.sums.add(size, seconds, seconds / prior)
        weight, mean = learned.table.get(bucket_of(size), (0.0, 0.0))
        grown = weight * _KEEP + 1
        learned.table[bucket_of(size)] = (grown, mean + (seconds / prior - mean) / grown)
        learned.version += 1

    def version(self, type_: str) -> int:
        """A number that changes when predictions for the type do."""
        return self._types[type_].version

    def mean_s(self, type_: str, size: int) -> float:
        """The predicted mean latency of a query of that size, in seconds."""
        line_s = self._line_s(type_, size)
        weight, mean = self._types[type_].table.get(bucket_of(size), (0.0, 1.0))
        if weight < ENOUGH:
            return line_s
        share = weight / (weight + ENOUGH)
        return share * mean * self._prior_s(type_, size) + (1 - share) * line_s

    def p95_s(self, type_: str, size: int) -> float:
        """The predicted 95th percentile, in seconds."""
        return self.mean_s(type_, size) * self._types[type_].worst_ratio()

    def factor(self, device: str) -> float:
        """How many times as long as its type a device takes of late."""
        return self._factors.get(device, 1.0)

    def snapshot(self) -> Mapping[str, Mapping[str, object]]:
        """The state as JSON values, for ``restored``."""
        return {name: _as_json(learned) for name, learned in self._types.items()}

    def restore(self, snapshot: Mapping[str, Mapping[str, object]]) -> None:
        """Take over the state of another model; types that this one lacks are passed over."""
        for name, values in snapshot.items():
            if name in self._types:
                self._types[name] = _from_json(values)

    def _prior_s(self, type_: str, size: int) -> float:
        return self._profiled(type_, size) if self._profiled is not None else FIRST_GUESS_S

    def _line_s(self, type_: str, size: int) -> float:
        learned = self._types[type_].sums
        if self._profiled is not None:
            ratio = (learned.ratio + ENOUGH) / (learned.n + ENOUGH)
            return self._profiled(type_, size) * ratio
        line = learned.line()
        if line is not None:
            return max(line[0] + line[1] * size, 1e-6)
        return self._like_others_s(type_, size)

    def _like_others_s(self, type_: str, size: int) -> float:
        """A guess for a type that ran at most one size: the fastest known line, PRIOR times."""
        own = self._types[type_].sums
        if own.n:
            return max(own.y / own.n, 1e-6)
        lines = [line for other in self._types.values() if (line := other.sums.line()) is not None]
        if not lines:
            return FIRST_GUESS_S
        return PRIOR * max(min(a + b * size for a, b in lines), 1e-6)


def _as_json(learned: _Learned) -> Mapping[str, object]:
    sums = learned.sums
    return {
        "line": [sums.n, sums.x, sums.y, sums.xx, sums.xy, sums.ratio],
        "sizes": list(sums.sizes),
        "table": {str(bucket): list(value) for bucket, value in sorted(learned.table.items())},
        "ratios": list(learned.newest),
    }


def _from_json(values: Mapping[str, object]) -> _Learned:
    learned = _Learned()
    sums = learned.sums
    line: list[float] = values["line"]  # type: ignore[assignment]
    sums.n, sums.x, sums.y, sums.xx, sums.xy, sums.ratio = line
    sizes: list[int] = values["sizes"]  # type: ignore[assignment]
    sums.sizes = (sizes[0], sizes[1])
    table: Mapping[str, list[float]] = values["table"]  # type: ignore[assignment]
    learned.table = {int(bucket): (w, m) for bucket, (w, m) in table.items()}
    for ratio in values["ratios"]:  # type: ignore[attr-defined]
        learned.note_ratio(ratio)
    learned.version = 1
    return learned
