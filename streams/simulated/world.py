"""A calibrated machine: delays recorded by load and contention, resampled for a simulation.

``headrace calibrate`` measures a ``World``, separately from the runs that it predicts. It holds
phases, each recorded at one rate of queries. ``WorldReplay`` resamples them by a two-stage block
bootstrap: a seed draws which phases represent their rate, and for every ``BLOCK_S`` of the run a
stretch of such a phase. So runs with different seeds differ by the calibration's own uncertainty.
Within a block each query meets the delays of a recorded one: a pause of the machine delays all its
parts at once.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import floor, inf
from statistics import median

import numpy as np

from streams.simulated.delays import (
    ANY_SIZE,
    LOCAL_BROKER,
    BatchKind,
    Delay,
    Delays,
    RecordedQueries,
    Seen,
    drawn,
    replayed,
)

# Recorded delays by the number of the machine's devices that ran a batch at that moment.
Levels = Mapping[int, Seen]
Chance = Callable[..., np.random.Generator]
Series = Callable[["Phase"], Levels]

Times = Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]

BLOCK_S = 4.0  # wall seconds that are replayed as one block


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Delays at one rate of queries, in wall seconds, at wall seconds since the phase began.

    ``rate_qps`` is in queries per wall second. ``hops``: from the end of a batch to the next
    worker's receipt; ``ways_in``: each of the two hops to the first task; ``ways_out``: from the
    last batch to the answer; ``lag_s``: mean time from the end of a batch to its worker's notice.

    For real devices: ``starts`` by task, from when a batch could begin until it did; ``stretch`` by
    task, device and batch size (``ANY_SIZE``: all), the duration over the profiled median;
    ``charged`` by task and level, the most that a worker with a part of a CPU pays for a batch, in
    multiples of its profiled median. A series with too few samples is empty.
    """

    rate_qps: float
    seconds: float
    hops: Levels = field(default_factory=dict)
    ways_in: Levels = field(default_factory=dict)
    ways_out: Levels = field(default_factory=dict)
    lag_s: float = 0.0
    starts: Mapping[str, Levels] = field(default_factory=dict)
    stretch: Mapping[BatchKind, Levels] = field(default_factory=dict)
    charged: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """The phases of a calibration, and a hop through its broker without load.

    ``broker``: (probability, wall seconds) quantiles, for delays that no phase recorded.
    """

    phases: tuple[Phase, ...]
    broker: tuple[tuple[float, float], ...] = LOCAL_BROKER

    @property
    def rates_qps(self) -> tuple[float, ...]:
        """The calibrated rates, queries per wall second, ascending."""
        return tuple(sorted({phase.rate_qps for phase in self.phases}))

    def replay(
        self,
        chance: Chance,
        *,
        now: Delay,
        rate: Callable[[float, float], float],
        busy: Callable[[], int],
        dilate: float = 1.0,
    ) -> "WorldReplay":
        """Return the world's delays for one simulated run; ``WorldReplay`` has the arguments."""
        return WorldReplay(self, chance, now=now, rate=rate, busy=busy, dilate=dilate)


class Occupancy:
    """The batches that run on the machine's own devices."""

    def __init__(self, devices: Collection[str]) -> None:
        self._devices = frozenset(devices)
        self._ends_s: dict[str, float] = {}

    def begin(self, device: str, ends_s: float) -> None:
        """Record a batch that runs until ``ends_s``; a device outside the machine is ignored."""
        if device in self._devices:
            self._ends_s[device] = ends_s

    def busy(self, now: float) -> int:
        """Return the number of devices that run a batch at ``now``."""
        return sum(ends_s > now for ends_s in self._ends_s.values())


class WorldReplay:
    """A world's delays for one simulated run, determined by ``chance``.

    ``chance`` returns the generator of a numbered stream, always the same one. ``now``: seconds
    since the first arrival in the run's time, each of which takes ``dilate`` wall seconds.
    ``rate``: queries per wall second in a span of wall time. ``busy``: devices that run a batch
    now. Before the first arrival the first block applies.
    """

    def __init__(
        self,
        world: World,
        chance: Chance,
        *,
        now: Delay,
        rate: Callable[[float, float], float],
        busy: Callable[[], int],
        dilate: float = 1.0,
    ) -> None:
        self._world, self._chance, self._dilate = world, chance, dilate
        self._now, self._rate, self._busy = now, rate, busy
        self._rng = chance(0)
        self._known = _resampled(world, chance(1))
        self._block, self._phase, self._offset_s = -1, 0, 0.0
        self._sent_s = [_sent_s(phase) for phase in world.phases]  # by phase
        self._queries = RecordedQueries((), self._rng, self._wall_s, self._at_s)

    def delays(self) -> Delays:
        """Return the delays of broker and machine."""
        plain = drawn(self._rng, self._world.broker, self._dilate)
        hop = self._replayed(lambda phase: _whatever(phase.hops)) or plain.hop
        tasks = dict.fromkeys(task for phase in self._world.phases for task in phase.starts)
        starts = {task: self._replayed(partial(_starts, task)) for task in tasks}
        return Delays(
            hop=hop,
            report=hop,
            fetch=plain.fetch,
            commit=plain.commit,
            lag=self._lag,
            starts={task: start for task, start in starts.items() if start is not None},
            way_in=self._replayed(lambda phase: _whatever(phase.ways_in)) or hop,
            way_out=self._replayed(lambda phase: _whatever(phase.ways_out)) or hop,
            apart=True,
            sent=self._sent,
        )

    def stretches(self, task: str, device: str) -> dict[int, Delay]:
        """Return the slow-down of a task's batches on a device by size; empty if none was
        calibrated.

        It is the median of the size and the present level, times how much longer than its own
        median the batch nearest to the recorded moment took, of whatever size and level: few
        moments have a batch of each.
        """
        phases = self._world.phases
        kinds = dict.fromkeys(kind for phase in phases for kind in phase.stretch)
        sizes = [size for *of, size in kinds if of == [task, device]]
        usual = [
            {size: _medians(phase.stretch.get((task, device, size), {})) for size in sizes}
            for phase in phases
        ]
        beyond = [
            self._again(_over(phase, (task, device), medians), phase.seconds, 1.0)
            for phase, medians in zip(phases, usual, strict=True)
        ]
        found = {
            size: self._at_level(
                [
                    {level: partial(_times, of, median) for level, median in medians[size].items()}
                    for of, medians in zip(beyond, usual, strict=True)
                ]
            )
            for size in sizes
        }
        return {size: each for size, each in found.items() if each is not None}

    def charged(self, task: str) -> Delay:
        """Return the most that a worker with a part of a CPU pays for a task's batch at the present
        rate and contention, in medians."""
        levels = [
            {level: partial(_same, most) for level, most in phase.charged.get(task, {}).items()}
            for phase in self._world.phases
        ]
        return self._at_level(levels) or partial(_same, inf)

    def _sent(self) -> None:
        self._at()
        self._queries.sent()

    def _lag(self) -> float:
        return self._world.phases[self._at()].lag_s / self._dilate

    def _replayed(self, series: Series) -> Delay | None:
        """Return a recorded delay at the present rate and contention; None if none was recorded."""
        return self._at_level(
            [
                {
                    level: self._again(seen, phase.seconds, self._dilate)
                    for level, seen in series(phase).items()
                }
                for phase in self._world.phases
            ]
        )

    def _again(self, seen: Seen, seconds: float, dilate: float) -> Delay:
        return replayed(seen, seconds, self._rng, self._moment, dilate)

    def _at_level(self, again: Sequence[Mapping[int, Delay]]) -> Delay | None:
        """Return the delay, by phase and level, at the present rate and contention."""
        stands = _substitutes(self._world.phases, [bool(levels) for levels in again])
        if not stands:
            return None

        def now() -> float:
            levels = again[stands[self._at()]]
            return levels[_nearest(levels, self._busy())]()

        return now

    def _moment(self) -> float:
        """Return the recorded moment to replay, in wall seconds since its phase began."""
        self._at()
        return self._queries.moment()

    def _at_s(self) -> float:
        """Return the moment of the block that represents now."""
        self._at()
        return self._offset_s + self._wall_s() - self._block * BLOCK_S

    def _wall_s(self) -> float:
        return max(self._now() * self._dilate, 0.0)

    def _at(self) -> int:
        """Return the index of the phase that represents now."""
        block = floor(self._wall_s() / BLOCK_S)
        if block != self._block:
            self._block = block
            self._phase, self._offset_s = self._drawn(block)
            sent_s = self._sent_s[self._phase]
            self._queries = RecordedQueries(sent_s, self._rng, self._wall_s, self._at_s)
        return self._phase

    def _drawn(self, block: int) -> tuple[int, float]:
        """Draw the phase that represents a block, and the moment at which its stretch begins.

        The first block of a run is that of a phase, as both begin with a cold start.
        Between two calibrated rates the nearer one is likelier; beyond them the outermost one
        represents all.
        """
        rng = self._chance(2, block)
        rate = self._rate(block * BLOCK_S, (block + 1) * BLOCK_S)
        choice = self._known[_drawn_rate(self._world.rates_qps, rate, float(rng.random()))]
        phase = choice[int(rng.integers(len(choice)))]
        last_s = max(self._world.phases[phase].seconds - BLOCK_S, 0.0)
        if block == 0:
            return phase, 0.0
        first_s = min(BLOCK_S, last_s)
        return phase, first_s + float(rng.random()) * (last_s - first_s)


def _sent_s(phase: Phase) -> list[float]:
    return sorted(at_s for seen in phase.ways_in.values() for at_s, _ in seen)


def _whatever(levels: Levels) -> Levels:
    """Return the samples of all levels as one: the recorded moment has its own contention."""
    return {0: sorted(chain.from_iterable(levels.values()))} if levels else {}


def _starts(task: str, phase: Phase) -> Levels:
    return phase.starts.get(task, {})


def _medians(levels: Levels) -> dict[int, float]:
    return {level: median([value for _, value in seen]) for level, seen in levels.items()}


def _over(phase: Phase, of: tuple[str, str], medians: Mapping[int, Mapping[int, float]]) -> Seen:
    """Return how long the batches of a task on a device took over the usual ones of their size and
    level, in order of time; the batches of rare sizes only if there are no others."""
    sizes = [size for size, levels in medians.items() if size != ANY_SIZE and levels] or [ANY_SIZE]
    return sorted(
        (at_s, value / medians[size][level])
        for size in sizes
        for level, seen in phase.stretch.get((*of, size), {}).items()
        for at_s, value in seen
    )


def _same(value: float) -> float:
    return value


def _times(of: Delay, factor: float) -> float:
    return of() * factor


def _resampled(world: World, rng: np.random.Generator) -> dict[float, list[int]]:
    """Return, for each rate, as many of its phases as it has, drawn with replacement."""
    found = {}
    for rate in world.rates_qps:
        there = [at for at, phase in enumerate(world.phases) if phase.rate_qps == rate]
        found[rate] = [there[at] for at in rng.integers(len(there), size=len(there)).tolist()]
    return found


def _drawn_rate(rates: Sequence[float], rate: float, chance: float) -> float:
    """Return one of the two calibrated rates around ``rate``, by linear interpolation."""
    for low, high in itertools.pairwise(rates):
        if rate < high:
            return high if chance < (rate - low) / (high - low) else low
    return rates[-1]


def _nearest(levels: Collection[int], busy: int) -> int:
    """Return the recorded level nearest to the present one; of two equally near, the lower."""
    return min(levels, key=lambda level: (abs(level - busy), level))


def _substitutes(phases: Sequence[Phase], has: Sequence[bool]) -> list[int]:
    """Return, for each phase, the index of the one to replay: itself if it has the series, else the
    nearest by rate that has; empty if none has."""
    there = [at for at, known in enumerate(has) if known]
    return [
        min(there, key=lambda at: (at != own, abs(phases[at].rate_qps - phase.rate_qps), at))
        for own, phase in enumerate(phases)
        if there
    ]


def rate_of(times_s: Times, dilate: float) -> Callable[[float, float], float]:
    """Return the rate of these arrivals (seconds of the run's time) in a span of wall time."""
    wall_s = np.asarray(times_s, dtype=np.float64) * dilate

    def rate(from_s: float, until_s: float) -> float:
        # A run may end within the span.
        until_s = min(until_s, float(wall_s[-1])) if len(wall_s) else until_s
        if until_s <= from_s:
            return 0.0
        count = np.searchsorted(wall_s, until_s) - np.searchsorted(wall_s, from_s)
        return float(count) / (until_s - from_s)

    return rate
