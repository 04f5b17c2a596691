"""Machines that are known: their pauses, slow spells, contention and delays are given.

A simulation plays on one as it plays on a calibrated ``World``. So what a calibration of it
predicts can be compared with what is true, in virtual time and with as many runs as needed.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, inf

import numpy as np

from streams.simulated.delays import ANY_SIZE, Delay, Delays, drawn

MOST_S = 400.0  # of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorld:
    """A machine. Times are seconds of work, which takes longer in a pause or a slow spell.

    ``hop_s`` and ``start_s`` are medians of lognormal delays, with ``by_rate`` more hop for each
    query per second, and one hop in ``long_hops`` longer by ``long_hop_s`` on average. A batch
    takes ``stretch`` times its profiled median, with ``contention`` more for each other device that
    runs a batch; its start takes ``start_contention`` more. After ``warm_s`` without a batch of its
    task it takes, and is charged, ``cold`` times as much. Pauses and slow spells come at random:
    every ``_every_s``, for ``_for_s``, on average. ``medians_s``: by task, the profiled median of a
    batch of 1, 2, ...
    """

    name: str
    medians_s: Mapping[str, Sequence[float]]
    hop_s: float = 0.0012
    hop_sigma: float = 0.5
    by_rate: float = 0.0
    long_hops: float = 0.0
    long_hop_s: float = 0.05
    start_s: float = 0.0005
    start_contention: float = 0.0
    stretch: float = 1.6
    stretch_sigma: float = 0.12
    contention: float = 0.0
    cold: float = 1.0
    warm_s: float = 0.01
    pause_every_s: float = inf
    pause_for_s: float = 0.0
    slow_every_s: float = inf
    slow_for_s: float = 0.0
    slow: float = 1.0  # factor of all work in a slow spell
    lag_s: float = 0.0
    commit_s: float = 0.02
    charged: float = 2.0  # the most that a batch is charged, in medians
    charged_sigma: float = 0.0

    def replay(
        self, chance: Callable[..., np.random.Generator], *, now: Delay,
        rate: Callable[[float, float], float], busy: Callable[[], int], dilate: float = 1.0,
    ) -> "KnownMachine":  # fmt: skip
        """Return the machine of one run, as ``World.replay`` does; ``dilate`` must be 1."""
        if dilate != 1.0:
            raise ValueError("a known machine is not dilated")
        return KnownMachine(self, chance, now, rate, busy)


class KnownMachine:
    """The machine of one run."""

    def __init__(
        self, world: KnownWorld, chance: Callable[..., np.random.Generator], now: Delay,
        rate: Callable[[float, float], float], busy: Callable[[], int],
    ) -> None:  # fmt: skip
        self._world, self._now, self._rate, self._busy = world, now, rate, busy
        self._rng = chance(0)
        self._normal = partial(next, _normals(self._rng))
        self._cuts, self._speeds = _speeds(world, chance(1))
        self._start_s: dict[str, float] = {}  # of the batch that is about to begin, by task
        self._ended_s = dict.fromkeys(world.medians_s, -inf)  # the last batch, by task
        self._cold = dict.fromkeys(world.medians_s, 1.0)  # the factor of that batch

    def delays(self) -> Delays:
        """Return the delays of broker and machine."""
        plain, world = drawn(self._rng), self._world
        return Delays(
            hop=self._hop,
            report=self._hop,
            fetch=plain.fetch,
            commit=lambda: world.commit_s,
            lag=lambda: world.lag_s,
            starts={task: partial(self._start, task) for task in world.medians_s},
            apart=True,
        )

    def stretches(self, task: str, _device: str) -> dict[int, Delay]:
        """Return the durations of batches over their medians by size."""
        medians_s = self._world.medians_s.get(task, ())
        sizes = dict(enumerate(medians_s, 1)) | ({ANY_SIZE: medians_s[-1]} if medians_s else {})
        return {size: partial(self._stretch, task, median_s) for size, median_s in sizes.items()}

    def charged(self, task: str) -> Delay:
        """Return the most that a worker with a part of a CPU pays for a batch, in medians."""
        world = self._world
        if not world.charged_sigma:
            return lambda: world.charged * self._cold[task]
        return lambda: self._varied(world.charged, world.charged_sigma) * self._cold[task]

    def _hop(self) -> float:
        world, now = self._world, self._now()
        rate = self._rate(max(now - 2.0, 0.0), now + 2.0) if world.by_rate else 0.0
        work_s = self._varied(world.hop_s * (1 + world.by_rate * rate), world.hop_sigma)
        if world.long_hops and self._rng.random() < world.long_hops:
            work_s += self._rng.exponential(world.long_hop_s)
        return self._takes_s(work_s, now)

    def _start(self, task: str) -> float:
        return self._start_s.pop(task)

    def _stretch(self, task: str, median_s: float) -> float:
        world, now, busy = self._world, self._now(), self._busy()
        start_s = self._varied(world.start_s * (1 + world.start_contention * busy), 0.5)
        self._start_s[task] = start_s = self._takes_s(start_s, now)
        self._cold[task] = cold = world.cold if now - self._ended_s[task] > world.warm_s else 1.0
        work_s = self._varied(world.stretch * median_s, world.stretch_sigma) * cold
        takes_s = self._takes_s(work_s * (1 + world.contention * busy), now + start_s)
        self._ended_s[task] = now + start_s + takes_s
        return takes_s / median_s

    def _varied(self, median_s: float, sigma: float) -> float:
        return median_s * exp(sigma * self._normal())

    def _takes_s(self, work_s: float, now: float) -> float:
        """Return the seconds that work takes which begins now."""
        at, at_s = bisect_right(self._cuts, now), now
        while True:
            speed, ends_s = self._speeds[at], self._cuts[at]
            if speed and at_s + work_s / speed <= ends_s:
                return at_s + work_s / speed - now
            work_s -= (ends_s - at_s) * speed
            at_s, at = ends_s, at + 1


def _speeds(world: KnownWorld, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Return when the machine's speed changes, and the speed until then."""
    spans = [
        *((span, 0.0) for span in _spans(world.pause_every_s, world.pause_for_s, rng)),
        *((span, 1 / world.slow) for span in _spans(world.slow_every_s, world.slow_for_s, rng)),
    ]
    cuts = sorted({at_s for span, _ in spans for at_s in span})
    speeds = [1.0] * (len(cuts) + 1)
    for (from_s, until_s), speed in spans:
        for at in range(bisect_right(cuts, from_s), bisect_right(cuts, until_s)):
            speeds[at] = min(speeds[at], speed)
    return [*cuts, inf], speeds


def _spans(every_s: float, for_s: float, rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    at_s = 0.0
    while for_s and at_s < MOST_S:
        at_s += rng.exponential(every_s)
        until_s = at_s + rng.exponential(for_s)
        yield at_s, until_s
        at_s = until_s


def _normals(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.normal(size=1024).tolist()
