"""Online latency model: predict the latency of a query size on a device type from completions.

Per type (Kairos, HPDC 2023, section 5.1: a line from a handful of queries, then a look-up table):

    line    least squares over (size, seconds); where a profile is known, the profile times the
            mean ratio of observed to profiled seconds instead, unless the squared errors of the
            line are less than ``BETTER`` of those of the profile
    table   mean of the observations per bucket (a 16th of an octave of size); used from 8
            observations on, with weight n / (n + 8) against the line
    decay   an observation's weight halves every HALF_LIFE observations
    p95     the mean times the 95th percentile of observed / predicted over the newest RATIOS

A type with fewer than two observed sizes uses the line of the fastest known type times PRIOR.
Each device has a slowdown factor against its type, which adapts within a few queries.

The state is not stored: a dispatcher that starts reads the completions of the last minutes again.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

HALF_LIFE = 500  # observations of a type
ENOUGH = 8  # observations of a bucket
PER_OCTAVE = 16
PRIOR = 4.0  # assumed slowdown of an unknown type against the fastest known one
RATIOS = 200
FIRST_GUESS_S = 0.1  # predicted latency before the first observation
FOLLOWS = 0.25  # weight of the newest observation in a device's factor
BETTER = 0.5  # share of the profile's squared errors below which a line through sizes replaces it
OUTLIER = 20.0  # times the prediction: longer observations are stalls and are capped

Profiled = Callable[[str, int], float]  # type, size -> seconds

_KEEP = 0.5 ** (1 / HALF_LIFE)


def bucket_of(size: int) -> int:
    """Return the bucket of a size; buckets are a 16th of an octave wide."""
    return int(PER_OCTAVE * math.log2(size))


class _LineSums:
    """Decayed sums for the least-squares line through (size, seconds)."""

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

    @property
    def mean_ratio(self) -> float:
        """The mean of observed / profiled, with ``ENOUGH`` observations of 1 before the first."""
        return (self.ratio + ENOUGH) / (self.n + ENOUGH)

    def line(self) -> tuple[float, float] | None:
        """Return intercept and slope, both at least 0; None before two distinct sizes."""
        if self.sizes[0] == self.sizes[1]:
            return None
        spread = self.n * self.xx - self.x**2
        slope = max((self.n * self.xy - self.x * self.y) / spread, 0.0) if spread > 0 else 0.0
        intercept = (self.y - slope * self.x) / self.n
        # A negative intercept would make small queries free: force the line through the origin.
        return (intercept, slope) if intercept >= 0 else (0.0, self.xy / self.xx)


class _Learned:
    """Learned state of one type."""

    __slots__ = ("line_error", "newest", "profile_error", "ranked", "sums", "table", "version")

    def __init__(self) -> None:
        self.line_error = self.profile_error = 0.0  # decayed sums of squares, of predictions
        self.sums = _LineSums()
        self.table: dict[
            int, tuple[float, float]
        ] = {}  # bucket -> weight, mean s per s of the prior
        self.newest: deque[float] = deque()  # observed / predicted, in order of arrival
        self.ranked: list[float] = []  # the same ratios, sorted
        self.version = 0

    def note_ratio(self, ratio: float) -> None:
        self.newest.append(ratio)
        insort(self.ranked, ratio)
        if len(self.newest) > RATIOS:
            del self.ranked[bisect_left(self.ranked, self.newest.popleft())]

    def worst_ratio(self) -> float:
        """Return the 95th percentile of observed / predicted, at least 1."""
        if len(self.ranked) < ENOUGH:
            return 1.0
        return max(self.ranked[int(0.95 * (len(self.ranked) - 1))], 1.0)


class LatencyModel:
    """Learned latencies per type. ``profiled`` maps (type, size) to profiled seconds; None: no
    profile."""

    def __init__(self, types: tuple[str, ...], profiled: Profiled | None = None) -> None:
        self._types = {name: _Learned() for name in types}
        self._profiled = profiled
        self._factors: dict[str, float] = {}

    def observe(self, type_: str, size: int, seconds: float, device: str = "") -> None:
        """Learn from a completed query; cap its seconds at ``OUTLIER`` times the prediction."""
        learned = self._types[type_]
        predicted = self.mean_s(type_, size)
        if self._profiled is not None or learned.sums.n >= ENOUGH:
            seconds = min(seconds, OUTLIER * predicted)
        prior = self._prior_s(type_, size)
        before = self._factors.get(device, 1.0)
        ratio = seconds / predicted
        self._factors[device] = before + FOLLOWS * (ratio - before)
        self._compare(learned, prior, size, seconds)
        learned.note_ratio(ratio)
        learned.sums.add(size, seconds, seconds / prior)
        weight, mean = learned.table.get(bucket_of(size), (0.0, 0.0))
        grown = weight * _KEEP + 1
        learned.table[bucket_of(size)] = (grown, mean + (seconds / prior - mean) / grown)
        learned.version += 1

    def forget(self, type_: str) -> None:
        """Discard the learned state of a type."""
        self._types[type_] = _Learned()

    def version(self, type_: str) -> int:
        """Return a number that changes whenever the predictions of the type change."""
        return self._types[type_].version

    def mean_s(self, type_: str, size: int) -> float:
        """Return the predicted mean latency of a query size, in seconds."""
        line_s = self._line_s(type_, size)
        weight, mean = self._types[type_].table.get(bucket_of(size), (0.0, 1.0))
        if weight < ENOUGH:
            return line_s
        share = weight / (weight + ENOUGH)
        return share * mean * self._prior_s(type_, size) + (1 - share) * line_s

    def p95_s(self, type_: str, size: int) -> float:
        """Return the predicted 95th percentile of the latency, in seconds."""
        return self.mean_s(type_, size) * self._types[type_].worst_ratio()

    def factor(self, device: str) -> float:
        """Return the recent slowdown of a device against its type."""
        return self._factors.get(device, 1.0)

    def _prior_s(self, type_: str, size: int) -> float:
        return self._profiled(type_, size) if self._profiled is not None else FIRST_GUESS_S

    def _compare(self, learned: _Learned, prior_s: float, size: int, seconds: float) -> None:
        """Add the errors with which the profile and the line would have predicted a query."""
        line = learned.sums.line() if learned.sums.n >= ENOUGH else None
        if self._profiled is None or line is None:
            return
        off_s = (prior_s * learned.sums.mean_ratio - seconds, line[0] + line[1] * size - seconds)
        learned.profile_error = learned.profile_error * _KEEP + off_s[0] ** 2
        learned.line_error = learned.line_error * _KEEP + off_s[1] ** 2

    def _line_s(self, type_: str, size: int) -> float:
        learned = self._types[type_].sums
        line = learned.line()
        if self._profiled is not None:
            errors = self._types[type_]
            if line is None or errors.line_error >= BETTER * errors.profile_error:
                return self._profiled(type_, size) * learned.mean_ratio
        if line is not None:
            return max(line[0] + line[1] * size, 1e-6)
        return self._like_others_s(type_, size)

    def _like_others_s(self, type_: str, size: int) -> float:
        """Return a guess for a type with at most one observed size: the type's own mean, else PRIOR
        times the fastest known line."""
        own = self._types[type_].sums
        if own.n:
            return max(own.y / own.n, 1e-6)
        lines = [line for other in self._types.values() if (line := other.sums.line()) is not None]
        if not lines:
            return FIRST_GUESS_S
        return PRIOR * max(min(a + b * size for a, b in lines), 1e-6)
