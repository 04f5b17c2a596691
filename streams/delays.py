"""How long does the world take in a simulation? Hops, reports, fetches and commits.

Each is a function that gives the seconds of the next one. ``LOCAL_BROKER`` are the quantiles of
one hop through the local Apache Kafka at 200 to 2,000 records a second (docs/simulation.md).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

Delay = Callable[[], float]
Hops = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Quantiles of what a machine and its broker were seen to take, in wall seconds.

    ``hops`` between two tasks, ``ways_in`` each of the two from the producer to the first task,
    ``ways_out`` to egress (empty: as ``hops``); ``lags`` from the end of a batch until its worker
    knows (empty: none). ``stretch`` is what a batch takes on a real device by its median in the
    profile (empty: as the profile has it, at the pipeline's share).
    """

    hops: Hops
    ways_in: Hops = ()
    ways_out: Hops = ()
    lags: Hops = ()
    stretch: Hops = ()


# (probability, seconds): straight lines between them are drawn from.
LOCAL_BROKER = (
    (0.0, 0.00025), (0.25, 0.0004), (0.5, 0.0005), (0.75, 0.0007), (0.9, 0.0011), (0.95, 0.0016),
    (0.99, 0.0035), (1.0, 0.006),
)  # fmt: skip
FETCH_S = 0.05  # from a slot's assignment to its first record, on the local broker
COMMIT_S = 0.02  # from the effects to the commit behind them
STAMP_S = 0.001  # Kafka's time stamps are whole milliseconds
BLOCK = 4096  # draws made at a time


def _none() -> float:
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Seconds from a write until readers have the record (``hop``; ``report`` for reports), until
    a new reader of a slot gets its first one, and until what is done is committed; ``lag``: from
    the end of a batch until its worker knows.

    Records that a node sends in one turn share a hop: the client sends them together.
    """

    hop: Delay
    report: Delay
    fetch: Delay
    commit: Delay
    lag: Delay = _none
    way_in: Delay | None = None  # None: as ``hop``
    way_out: Delay | None = None


def steady(hop_s: float, commit_s: float = 0.0) -> Delays:
    """Nothing left to chance: every hop and every fetch takes ``hop_s``."""
    hop = partial(_same, hop_s)
    return Delays(hop=hop, report=hop, fetch=hop, commit=partial(_same, commit_s))


def drawn(
    rng: np.random.Generator,
    hop: Hops = LOCAL_BROKER,
    dilate: float = 1.0,
) -> Delays:
    """Hops and reports drawn from quantiles, fetches and commits as on the local broker.

    Where time goes ``dilate`` times slower (streams/dilation.py), they are that much shorter.
    """
    each = partial(next, draws(rng, _shorter(hop, dilate)))
    fetch, commit = (partial(_same, seconds / dilate) for seconds in (FETCH_S, COMMIT_S))
    return Delays(hop=each, report=each, fetch=fetch, commit=commit)


def as_seen(
    world: World, rng: np.random.Generator, dilate: float, clock: Callable[[], float]
) -> Delays:
    """The same as a machine was seen.

    A draw holds for all records that leave within the 99 % quantile of their kind: what holds one
    up on a busy machine holds up the others, too. Drawn apart, with records of a slot in order,
    one that is held up would hold up those behind it a second time.
    """

    def lasting(knots: Hops) -> Delay:
        shares, values = zip(*_shorter(knots or world.hops, dilate), strict=True)
        fresh = partial(next, draws(rng, list(zip(shares, values, strict=True))))
        return _Lasting(fresh, float(np.interp(0.99, shares, values)), clock)

    plain = drawn(rng, world.hops, dilate)
    return replace(
        plain,
        hop=lasting(world.hops),
        way_in=lasting(world.ways_in),
        way_out=lasting(world.ways_out),
        lag=partial(next, draws(rng, _shorter(world.lags, dilate))) if world.lags else _none,
    )


def _shorter(knots: Hops, dilate: float) -> Hops:
    return [(share, seconds / dilate) for share, seconds in knots]


class _Lasting:
    """The same value for ``for_s``, then another."""

    def __init__(self, fresh: Delay, for_s: float, clock: Callable[[], float]) -> None:
        self._fresh, self._for_s, self._clock = fresh, for_s, clock
        self._value, self._until_s = 0.0, float("-inf")

    def __call__(self) -> float:
        now = self._clock()
        if now >= self._until_s:
            self._value, self._until_s = self._fresh(), now + self._for_s
        return self._value


def _same(seconds: float) -> float:
    return seconds


def draws(rng: np.random.Generator, knots: Hops) -> Iterator[float]:
    """Values drawn along straight lines between quantiles (probability, value), without end."""
    # A thousand draws cost numpy little more than one.
    probabilities, seconds = zip(*knots, strict=True)
    while True:
        yield from np.interp(rng.random(BLOCK), probabilities, seconds).tolist()
