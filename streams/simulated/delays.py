"""How long does the world take in a simulation? Hops, reports, fetches and commits.

Each is a function that gives the seconds of the next one. ``LOCAL_BROKER`` are the quantiles of
one hop through the local Apache Kafka at 200 to 2,000 records a second
(docs/explanation/simulation.md).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat

import numpy as np

Delay = Callable[[], float]
Hops = Sequence[tuple[float, float]]
Seen = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayTrace:
    """What a machine and its broker were seen to take, moment by moment, in wall seconds.

    Each is (when, how long), growing by when, from 0 to ``seconds``. ``hops`` between two tasks
    (empty: as on the local broker), ``ways_in`` each of the two from the producer to the first
    task, ``ways_out`` to egress (empty: as ``hops``); ``lags`` from the end of a batch until its
    worker knows (empty: none). Of real devices: ``starts`` by task, from when a batch could begin
    until it does (missing: no time); ``stretch`` by task and size of the batch, what it takes by
    its median in the profile (missing: as that of ``ANY_SIZE``, else as the profile has it, at
    the pipeline's share).
    """

    seconds: float = 0.0
    hops: Seen = ()
    ways_in: Seen = ()
    ways_out: Seen = ()
    lags: Seen = ()
    starts: Mapping[str, Seen] = field(default_factory=dict)
    stretch: Mapping[tuple[str, int], Seen] = field(default_factory=dict)


# (probability, seconds): straight lines between them are drawn from.
LOCAL_BROKER = (
    (0.0, 0.00025), (0.25, 0.0004), (0.5, 0.0005), (0.75, 0.0007), (0.9, 0.0011), (0.95, 0.0016),
    (0.99, 0.0035), (1.0, 0.006),
)  # fmt: skip
FETCH_S = 0.05  # from a slot's assignment to its first record, on the local broker
COMMIT_S = 0.02  # from the effects to the commit behind them
STAMP_S = 0.001  # Kafka's time stamps are whole milliseconds
ANY_SIZE = 0  # of a batch
BLOCK = 4096  # draws made at a time
NEAR = 8  # so many seen before a moment, and as many behind it, may stand for it
BESIDE_S = 10.0  # long, and still the same machine


def _none() -> float:
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Seconds from a write until readers have the record (``hop``; ``report`` for reports), until
    a new reader of a slot gets its first one, and until what is done is committed; ``lag``: from
    the end of a batch until its worker knows; ``starts``: by task, from when it asks for one
    until that runs.

    Records that a node sends in one turn share a hop, as the client sends them together; ``apart``:
    each has its own, as each reader has.
    """

    hop: Delay
    report: Delay
    fetch: Delay
    commit: Delay
    lag: Delay = _none
    starts: Mapping[str, Delay] = field(default_factory=dict)
    way_in: Delay | None = None  # None: as ``hop``
    way_out: Delay | None = None
    apart: bool = False


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

    Where time goes ``dilate`` times slower (streams/live/dilation.py), they are that much shorter.
    """
    shorter = [(share, seconds / dilate) for share, seconds in hop]
    each = partial(next, draws(rng, shorter))
    fetch, commit = (partial(_same, seconds / dilate) for seconds in (FETCH_S, COMMIT_S))
    return Delays(hop=each, report=each, fetch=fetch, commit=commit)


def beside(at_s: float, seconds: float) -> float:
    """The moment of a machine seen for so many seconds by which a simulation of what ran on it
    then goes at ``at_s``: as far into the ten seconds beside it, two and two taking each other's.

    So nothing is foretold by what itself took, nor by what the machine was long before or after.
    """
    at_s, span_s = at_s % seconds, min(BESIDE_S, seconds / 2)
    other_s = at_s + span_s if at_s // span_s % 2 == 0 else at_s - span_s
    return other_s if other_s < seconds else at_s - span_s


def as_seen(world: DelayTrace, rng: np.random.Generator, dilate: float, moment: Delay) -> Delays:
    """The same as a machine was seen at a moment, and again from the beginning after the end.

    What holds one record up holds up the others, too, and the batches: drawn apart, each by its
    quantiles, a machine that pauses would be one on which some things take long. With the order of
    a slot kept, what is held up would also hold up those behind it a second time.
    """
    plain = drawn(rng, dilate=dilate)
    again = partial(replayed, seconds=world.seconds, rng=rng, moment=moment, dilate=dilate)
    hop = again(world.hops, together=False) if world.hops else plain.hop
    return replace(
        plain,
        hop=hop,
        report=hop,
        way_in=again(world.ways_in) if world.ways_in else hop,
        way_out=again(world.ways_out) if world.ways_out else hop,
        # By its mean: how much it varies is in the ways, which were seen with it.
        lag=partial(_same, mean(world.lags) / dilate),
        starts={task: again(seen, together=False) for task, seen in world.starts.items()},
        apart=True,
    )


def replayed(
    seen: Seen,
    seconds: float,
    rng: np.random.Generator,
    moment: Delay,
    dilate: float = 1.0,
    *,
    together: bool = True,
) -> Delay:
    """One of the few that were seen at about a moment; ``moment`` tells it, without end.

    ``together``: what comes at one moment takes one of them, as where one process handles it.
    """
    times_s = [at_s for at_s, _ in seen]
    values = np.array([value / dilate for _, value in seen])
    if together:
        # What was seen after a pause stands for a long time: it must not always be that one.
        values = values[np.argsort(np.arange(len(seen)) + rng.uniform(-NEAR, NEAR, len(seen)))]
    known: list[float] = values.tolist()
    near = repeat(0) if together else _near(rng)

    def now() -> float:
        at = bisect_left(times_s, moment() % seconds)
        return known[(at + next(near)) % len(known)]

    return now


def _near(rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.integers(-NEAR, NEAR, BLOCK).tolist()


def mean(seen: Iterable[tuple[float, float]]) -> float:
    """How long it takes on average; 0 where nothing was seen."""
    values = [value for _, value in seen]
    return float(np.mean(values)) if values else 0.0


def _same(seconds: float) -> float:
    return seconds


def draws(rng: np.random.Generator, knots: Hops) -> Iterator[float]:
    """Values drawn along straight lines between quantiles (probability, value), without end."""
    # A thousand draws cost numpy little more than one.
    probabilities, seconds = zip(*knots, strict=True)
    while True:
        yield from np.interp(rng.random(BLOCK), probabilities, seconds).tolist()
