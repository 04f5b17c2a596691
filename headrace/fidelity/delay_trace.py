"""Extract the delays of a live run from its answers, for simulations on the same machine.

The delays of hops and batches depend on the machine, its other load and the record rate. A
simulation replays delays of a neighbouring time window (streams/simulated/delays.py), so that no
window predicts itself.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, pairwise

from control.per_query.batching import DUE
from headrace.fidelity.payments import RecordedRun, payments
from headrace.roles.profile_lookups import latency_of
from operators.outcomes import LATE, outcome_of
from profiles.profile_table import ProfileTable
from schemas.records import ANSWERED, Answer, Hop, Report
from schemas.variant_id import variant_id
from streams.simulated.delays import ANY_SIZE, STAMP_S, BatchKind, DelayTrace, Seen, mean

FEWEST = 100  # the fewest samples of a usable delay distribution
FREE: Mapping[str, float] = {}  # no worker pays for its batches
SizeOf = Callable[[Answer], int]  # the size of an answer's query
AtOnce = Callable[[Hop, float], bool]  # of ``read_at_once``


def of_one(_answer: Answer) -> int:
    """Return the size of a query that has none: 1."""
    return 1


def at_no_level(_at_s: float) -> int:
    """Return 0: however many devices are busy, batches are of one level."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatch:
    """An executed batch; ``received_s``: the arrival of its first known item, ``waited_s``: the
    seconds at its start in which its worker paid for earlier ones, ``free``: whether it surely paid
    for none.

    ``size`` is the sum of its items' sizes, as far as they are known: of a batch of which some
    queries have no answer yet, it is the mean of the others times the number of items.
    """

    worker: str
    variant: str  # "task/variant"
    size: int
    received_s: float
    started_s: float
    finished_s: float
    released: str = ""
    waited_s: float = 0.0
    free: bool = True

    @property
    def task(self) -> str:
        """The task of its variant."""
        return variant_id(self.variant).task


def seen(
    answers: Iterable[Answer],
    profile: ProfileTable,
    devices: Mapping[str, str],
    dilate: float,
    from_s: float,
    until_s: float,
    size_of: SizeOf = of_one,
    rates: Mapping[str, float] = FREE,
    reports: Iterable[Report] = (),
) -> DelayTrace:
    """Return the delays in these answers; a kind with fewer than ``FEWEST`` samples is empty.

    ``devices`` maps workers that run models to devices, ``size_of`` answers to the sizes of their
    queries, ``rates`` are those of ``paid_batches.own_rates`` and ``reports`` those of the workers
    in them. Times in the trace are relative to ``from_s``.
    """
    known = list(answers)
    ran, charged = paying(batches(known, size_of), profile, devices, rates, reports)
    at_once, real = read_at_once(ran), [each for each in ran if each.worker in devices]
    kinds = by_kind(real, devices)

    def relative(found: Iterable[tuple[float, float]]) -> Seen:
        ordered = tuple(sorted((at_s - from_s, value) for at_s, value in found))
        return ordered if len(ordered) >= FEWEST else ()

    def wall(found: Iterable[tuple[float, float]], less_s: float = 0.0) -> Seen:
        return relative((at_s, max(0.0, dilate * s - less_s)) for at_s, s in found)

    # After the end of a batch only the sum of the lag and the next delay (a way or a start) is
    # visible. The mean of the other is subtracted from each, so that the mean of the sum is right.
    starts = {task: wall(starts_s(of)) for task, of in by_task(real).items()}
    stretch = {kind: relative(stretches(of, profile, devices)) for kind, of in kinds.items()}
    lags = wall(lags_s(ran), mean(chain.from_iterable(starts.values())))
    lag_s = mean(lags)
    # Time stamps are half a ms early on average, which the simulation models separately.
    early_s = STAMP_S / 4  # of each of two hops
    return DelayTrace(
        seconds=until_s - from_s,
        hops=wall((each for answer in known for each in hops_s(answer, at_once)), lag_s),
        ways_in=wall((each for answer in known for each in ways_in_s(answer, at_once)), early_s),
        ways_out=wall((each for answer in known for each in ways_out_s(answer)), lag_s),
        lags=lags,
        starts={task: found for task, found in starts.items() if found},
        stretch={kind: found for kind, found in stretch.items() if found},
        charged={task: most for task, levels in charged.items() for most in levels.values()},
    )


def by_task(ran: Iterable[RecordedBatch]) -> dict[str, list[RecordedBatch]]:
    """Return the batches by task."""
    found: dict[str, list[RecordedBatch]] = {}
    for each in ran:
        found.setdefault(each.task, []).append(each)
    return found


def by_kind(
    ran: Iterable[RecordedBatch], devices: Mapping[str, str]
) -> dict[BatchKind, list[RecordedBatch]]:
    """Return the batches by task, device and size, and by task and device alone; ``devices`` has
    the device of every worker."""
    kinds: dict[BatchKind, list[RecordedBatch]] = {}
    for each in ran:
        for size in (ANY_SIZE, each.size):
            kinds.setdefault((each.task, devices[each.worker], size), []).append(each)
    return kinds


def ways_in_s(answer: Answer, at_once: AtOnce) -> Iterator[tuple[float, float]]:
    """Yield the creation time, and half the delay from the producer to the first worker: two
    hops."""
    first = next((path[0] for path in answer.paths if path), None)
    if first is not None and at_once(first, answer.created_s):
        yield answer.created_s, (first.received_s - answer.created_s) / 2


def ways_out_s(answer: Answer) -> Iterator[tuple[float, float]]:
    """Yield the end of the last batch, and the delay from then to the answer."""
    ends = [path[-1].finished_s for path in answer.paths if path]
    if ends and outcome_of(answer) in (ANSWERED, LATE):
        yield max(ends), answer.answered_s - max(ends)


def hops_s(answer: Answer, at_once: AtOnce) -> Iterator[tuple[float, float]]:
    """Yield when items of an answered query left a worker, and their delay to the next worker."""
    ways = set()
    for path in answer.paths:
        for before, after in pairwise(path):
            way = (before.worker, before.finished_s, after.received_s)
            # Items that left and arrived together are one record.
            if at_once(after, before.finished_s) and way not in ways:
                ways.add(way)
                yield before.finished_s, after.received_s - before.finished_s


def read_at_once(ran: Sequence[RecordedBatch]) -> AtOnce:
    """Return a function of a hop and when its record was sent: whether the record waited for its
    worker nowhere but on its way. ``ran`` is by worker and time.

    A busy worker stops reading, so that records also wait on the broker. Its items count only if
    they waited in the worker no longer than their batch ran. Those of an idle worker all count, as
    whatever delays a record on its way, such as a pause of the machine, delays its batch, too. None
    counts that waited while its worker began several batches of what it held: a worker that holds
    too many items stops reading.

    Records that were sent before a worker's first batch, or while its last one was of another task,
    do not count: a worker that joins a task loads its model and reads the topic from then on, and a
    simulation plays this wait by itself.
    """
    of: dict[str, list[RecordedBatch]] = {}
    for each in ran:
        of.setdefault(each.worker, []).append(each)
    busy = {worker: occupancy(each) for worker, each in of.items()}
    begins = {worker: [batch.started_s for batch in each] for worker, each in of.items()}

    def at_once(hop: Hop, sent_s: float) -> bool:
        ran_here, begun = of[hop.worker], begins[hop.worker]
        last = bisect_left(begun, sent_s) - 1
        if last < 0 or ran_here[last].task != hop.task:
            return False
        meanwhile = ran_here[last + 1 : bisect_left(begun, hop.received_s)]
        if sum(batch.received_s < sent_s for batch in meanwhile) > 1:
            return False
        paid_s = ran_here[bisect_left(begun, hop.started_s)].waited_s
        ran_s = hop.finished_s - hop.started_s - paid_s
        return busy[hop.worker](sent_s) == 0 or hop.started_s - hop.received_s <= ran_s

    return at_once


def occupancy(ran: Sequence[RecordedBatch]) -> Callable[[float], int]:
    """Return a function of time: how many of these batches had begun before and not ended."""
    begins, ends = (sorted(s) for s in ([b.started_s for b in ran], [b.finished_s for b in ran]))

    def busy(at_s: float) -> int:
        # A batch that begins or ends just then does not count, as in the simulation.
        return max(bisect_left(begins, at_s) - bisect_right(ends, at_s), 0)

    return busy


def batches(answers: Iterable[Answer], size_of: SizeOf = of_one) -> list[RecordedBatch]:
    """Return the batches of these answers' items, by worker and time."""
    hops: dict[tuple[str, float], Hop] = {}
    sizes: dict[tuple[str, float], list[int]] = {}
    for answer in answers:
        for hop in (hop for path in answer.paths for hop in path):
            at = hop.worker, hop.started_s
            sizes.setdefault(at, []).append(size_of(answer))
            first = hops.get(at)
            if first is None or hop.received_s < first.received_s:
                hops[at] = hop
    mean_size = {at: sum(each) / len(each) for at, each in sizes.items()}
    return [
        RecordedBatch(
            worker=hop.worker, variant=hop.key, size=round(hop.batch * mean_size[at]),
            received_s=hop.received_s, started_s=hop.started_s, finished_s=hop.finished_s,
            released=hop.released,
        )
        for at, hop in sorted(hops.items())
    ]  # fmt: skip


def lags_s(ran: Sequence[RecordedBatch]) -> Iterator[tuple[float, float]]:
    """Yield the end of a batch, and the delay to the next one if its items were waiting by then."""
    for before, after in pairwise(ran):
        lag_s = after.started_s - before.finished_s
        waited = after.worker == before.worker and after.received_s <= before.finished_s
        # A lag longer than a batch is probably a batch in between without surviving items.
        if waited and 0 <= lag_s <= before.finished_s - before.started_s:
            yield before.finished_s, lag_s


def starts_s(ran: Sequence[RecordedBatch]) -> Iterator[tuple[float, float]]:
    """Yield when an idle worker received an item, and the delay until its batch began."""
    for before, after in pairwise(ran):
        idle = after.worker == before.worker and before.finished_s <= after.received_s
        if idle and after.released != DUE:
            yield after.received_s, after.started_s - after.received_s


def paying(
    ran: Sequence[RecordedBatch],
    profile: ProfileTable,
    devices: Mapping[str, str],
    rates: Mapping[str, float],
    reports: Iterable[Report],
    busy: Callable[[float], int] = at_no_level,
) -> tuple[list[RecordedBatch], Mapping[str, Mapping[int, float]]]:
    """Return the batches with the seconds in which their workers paid for earlier ones, and the
    most that a batch of a task is charged at a level of busy devices, in profiled medians.

    ``ran`` is by worker and time, and ``busy`` has the level at a time. A batch ran for its
    profiled median at least.
    """
    paid = [each for each in ran if each.worker in rates]
    median_s = _medians(profile, devices)
    runs = [
        RecordedRun(x.worker, x.task, x.started_s, x.finished_s, median_s(x), busy(x.started_s))
        for x in paid
    ]
    found = payments(runs, rates, reports)
    waited = {
        (each.worker, each.started_s): replace(each, waited_s=s, free=free)
        for each, s, free in zip(paid, found.waits_s, found.free, strict=True)
    }
    return [waited.get((each.worker, each.started_s), each) for each in ran], found.charged


def stretches(
    ran: Iterable[RecordedBatch], profile: ProfileTable, devices: Mapping[str, str]
) -> Iterator[tuple[float, float]]:
    """Yield when batches began, and the time that they ran over the profiled median.

    Those that may have waited until earlier ones were paid for do not tell how long they ran, and
    take the times of the others in turn. Without them a batch before a busy time would stand for
    all of it, and it is often a long one that made the time busy.
    """
    found, median_s = list(ran), _medians(profile, devices)
    known = [(x.finished_s - x.started_s) / median_s(x) for x in found if x.free]
    told, others = iter(known), cycle(known)
    for batch in found if known else ():
        yield batch.started_s, next(told if batch.free else others)


def _medians(profile: ProfileTable, devices: Mapping[str, str]) -> Callable[[RecordedBatch], float]:
    """Return a function of a batch to its profiled median, s; ``latency_of`` reads the profile."""
    known = {device: latency_of(profile, device) for device in set(devices.values())}
    return lambda batch: known[devices[batch.worker]](batch.variant, batch.size)
