"""Delays of a simulated broker and machine: hops, reports, fetches, commits, starts of batches.

A delay is a function that returns the seconds of the next occurrence. ``LOCAL_BROKER`` holds the
quantiles of a hop through the local Apache Kafka at 200 to 2,000 records/s
(docs/explanation/simulation.md).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import numpy as np

Delay = Callable[[], float]
Hops = Sequence[tuple[float, float]]
Seen = Sequence[tuple[float, float]]
BatchKind = tuple[str, str, int]  # task, device ("cpu", a type, ...), batch size


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayTrace:
    """Recorded delays of a machine and its broker, in wall seconds.

    Each series is (time, delay) pairs in order of time, from 0 to ``seconds``.

    - ``hops``: between two tasks (empty: the local broker's)
    - ``ways_in``: each of the two hops from the producer to the first task
    - ``ways_out``: to egress (empty: ``hops``)
    - ``lags``: from the end of a batch to its worker's notice (empty: none)

    For real devices:

    - ``starts`` by task: from when a batch could begin until it does (missing: 0)
    - ``stretch`` by kind of batch: latency over the profile's median (missing: that of
      ``ANY_SIZE``, else the profile's at the pipeline's share)
    - ``charged`` by task: the most that a worker with a part of a CPU pays for a batch, in
      multiples of its profiled median (missing: no limit)
    """

    seconds: float = 0.0
    hops: Seen = ()
    ways_in: Seen = ()
    ways_out: Seen = ()
    lags: Seen = ()
    starts: Mapping[str, Seen] = field(default_factory=dict)
    stretch: Mapping[BatchKind, Seen] = field(default_factory=dict)
    charged: Mapping[str, float] = field(default_factory=dict)


# (probability, seconds); draws interpolate linearly between them.
LOCAL_BROKER = (
    (0.0, 0.00025), (0.25, 0.0004), (0.5, 0.0005), (0.75, 0.0007), (0.9, 0.0011), (0.95, 0.0016),
    (0.99, 0.0035), (1.0, 0.006),
)  # fmt: skip
FETCH_S = 0.05  # from a slot's assignment to its first record, on the local broker
COMMIT_S = 0.02  # from the effects to their commit
STAMP_S = 0.001  # Kafka's time stamps are whole milliseconds
ANY_SIZE = 0  # key for every batch size
BLOCK = 4096  # number of draws per call of the generator
NEAR = 8  # recorded queries before a moment, and as many after it, that may stand for it
TOGETHER_S = 0.05  # queries sent within it meet what one recorded query met
SAME_S = 0.001  # values recorded so close to a moment are all of that moment
BESIDE_S = 10.0  # seconds per window: long, but within one state of the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Delays in seconds.

    ``hop``: from a write to its readers (``report``: for reports); ``fetch``: from a slot's
    assignment to its first record; ``commit``: from the effects to their commit; ``lag``: from the
    end of a batch to its worker's notice; ``starts`` by task: from the request of a batch to its
    start.

    Records that a node sends in one turn share a hop, as the client sends them together. With
    ``apart`` each has its own, as each reader has. ``began`` (None: nothing) is called with the
    node and the end of every batch that begins, for delays that depend on the devices in use, and
    ``sent`` before a producer's query is written, for those that depend on the query.
    """

    hop: Delay
    report: Delay
    fetch: Delay
    commit: Delay
    lag: Delay | None = None  # None: 0
    starts: Mapping[str, Delay] = field(default_factory=dict)
    way_in: Delay | None = None  # None: as ``hop``
    way_out: Delay | None = None
    apart: bool = False
    began: Callable[[str, float], None] | None = None
    sent: Callable[[], None] | None = None


def constant_delays(hop_s: float, commit_s: float = 0.0) -> Delays:
    """Return constant delays: every hop and fetch takes ``hop_s``."""
    hop = partial(_same, hop_s)
    return Delays(hop=hop, report=hop, fetch=hop, commit=partial(_same, commit_s))


def drawn(
    rng: np.random.Generator,
    hop: Hops = LOCAL_BROKER,
    dilate: float = 1.0,
) -> Delays:
    """Return hops and reports drawn from quantiles, and the local broker's fetches and commits.

    All are divided by ``dilate``, the factor of inner time (streams/live/dilation.py).
    """
    shorter = [(share, seconds / dilate) for share, seconds in hop]
    each = partial(next, draws(rng, shorter))
    fetch, commit = (partial(_same, seconds / dilate) for seconds in (FETCH_S, COMMIT_S))
    return Delays(hop=each, report=each, fetch=fetch, commit=commit)


def beside(at_s: float, seconds: float) -> float:
    """Map ``at_s`` to the recorded moment to replay, in a recording of ``seconds``.

    The moment has the same offset in the neighbouring window of ``BESIDE_S``; windows swap in
    pairs. So no window predicts itself, and the machine's state is from about the same time.
    """
    at_s, span_s = at_s % seconds, min(BESIDE_S, seconds / 2)
    other_s = at_s + span_s if at_s // span_s % 2 == 0 else at_s - span_s
    return other_s if other_s < seconds else at_s - span_s


class RecordedQueries:
    """Draws recorded queries that stand for those of a run, and thus the moments to replay.

    A pause or a slow spell of the machine meets a query at several of its tasks, and its parts at
    the same time. Delays that are drawn one by one would meet it at few of them: the sums along
    its paths would vary too little, and the longest of its parts too much. So a query meets what
    one recorded query met, and those sent within ``TOGETHER_S`` share it.

    ``sent_s``: when the recorded queries were sent. ``now`` is the time of the run, ``at`` the
    recorded moment around which queries are drawn. Such a moment itself would too often be that of
    a query without others beside it.
    """

    def __init__(
        self, sent_s: Sequence[float], rng: np.random.Generator, now: Delay, at: Delay
    ) -> None:
        self._sent_s, self._rng, self._now, self._at = sent_s, rng, now, at
        self._since_s, self._stands_s = -inf, 0.0

    def sent(self) -> None:
        """Begin the replay of a recorded query, as a query is sent now."""
        now_s = self._now()
        if self._sent_s and now_s - self._since_s >= TOGETHER_S:
            drawn = int(self._rng.integers(-NEAR, NEAR))
            at = (bisect_left(self._sent_s, self._at()) + drawn) % len(self._sent_s)
            self._since_s, self._stands_s = now_s, self._sent_s[at]

    def moment(self) -> float:
        """Return the recorded moment to replay now."""
        if self._since_s == -inf:
            return self._at()
        return self._stands_s + (self._now() - self._since_s)


def as_seen(
    world: DelayTrace, rng: np.random.Generator, dilate: float, queries: RecordedQueries
) -> Delays:
    """Return the recorded delays at the moments of ``queries``, repeated cyclically.

    Each record has its own hop (``apart``).
    """
    plain = drawn(rng, dilate=dilate)
    again = partial(replayed, seconds=world.seconds, rng=rng, moment=queries.moment, dilate=dilate)
    hop = again(world.hops) if world.hops else plain.hop
    return replace(
        plain,
        hop=hop,
        report=hop,
        way_in=again(world.ways_in) if world.ways_in else hop,
        way_out=again(world.ways_out) if world.ways_out else hop,
        # The mean only: the recorded ways include the variation of the lag.
        lag=partial(_same, mean(world.lags) / dilate),
        starts={task: again(seen) for task, seen in world.starts.items()},
        apart=True,
        sent=queries.sent,
    )


def replayed(
    seen: Seen, seconds: float, rng: np.random.Generator, moment: Delay, dilate: float = 1.0
) -> Delay:
    """Return a delay that replays the value recorded nearest to ``moment()``, modulo ``seconds``.

    If several were recorded within ``SAME_S`` of it, as of the parts of a query, those that are
    asked for at one moment take one after the other.
    """
    times_s = [at_s for at_s, _ in seen]
    values = [value / dilate for _, value in seen]
    last, before_s, turn = len(seen) - 1, -1.0, 0

    def now() -> float:
        nonlocal before_s, turn
        at_s = moment() % seconds
        at = min(bisect_left(times_s, at_s), last)
        if at and at_s - times_s[at - 1] < times_s[at] - at_s:
            at -= 1
        near_s = times_s[at]
        low, high = bisect_left(times_s, near_s - SAME_S), bisect_right(times_s, near_s + SAME_S)
        if high == low + 1:
            return values[low]
        turn = turn + 1 if at_s == before_s else int(rng.integers(high - low))
        before_s = at_s
        return values[low + turn % (high - low)]

    return now


def mean(seen: Iterable[tuple[float, float]]) -> float:
    """Return the mean of the recorded values; 0 without any."""
    values = [value for _, value in seen]
    return float(np.mean(values)) if values else 0.0


def _same(seconds: float) -> float:
    return seconds


def draws(rng: np.random.Generator, knots: Hops) -> Iterator[float]:
    """Yield draws by linear interpolation between quantiles (probability, value), without end."""
    # A thousand draws cost numpy little more than a single draw.
    probabilities, seconds = zip(*knots, strict=True)
    while True:
        yield from np.interp(rng.random(BLOCK), probabilities, seconds).tolist()
