"""Simulate workers under model selection tables with bare arrays: no nodes, topics or hops.

This is an independent implementation of what ``headrace simulate`` runs with the nodes, and the
artifact's own setting: a batch takes its planning latency and transfers take no time. Round robin:
query i goes to worker i mod K, and each worker has its own queue. Runs: several successive queries
go to the same worker, which begins when all have arrived. Central queue: idle workers take from one
queue. With ``rescue``, as under our policies (operators/serving/worker.py), the rescue batch
replaces a batch that would be late, and queries that are still late are dropped; without, as in the
artifact, late queries are served like others. With ``planned`` a query that begins a run is refused
where its worker is planned to be busy for too long (control/per_query/run_admission.py).

    seen = round_robin(times_s, 60, decided(tables, models, always), slo_s=0.15)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import inf

from control.per_query.table_lookup import for_runs, lasting
from control.policies.ramsis.burst_lengths import WAIT
from control.policies.ramsis.pareto_models import CandidateModel, extrapolated_s
from control.policies.ramsis.tables import Table

ROUNDING_S = 1e-9  # tolerance of deadlines

# Batch size, seconds, accuracy of the model.
Run = tuple[int, float, float]
# Queue length, slack of its head, time, length of the runs that the queries came in (0: any)
# -> batch to run.
Decide = Callable[[int, float, float, int], Run]
# Queue length, time -> batch to run if the table's batch would be late.
Rescue = Callable[[int, float], Run]
# Time -> index of the table in force.
InForce = Callable[[float], int]
# Time -> length of the next worker's run.
RunAt = Callable[[float], int]


@dataclass(frozen=True, slots=True)
class Planned:
    """The seconds of a worker that a query is planned to take, and the longest wait for it."""

    query_s: float
    wait_s: float


@dataclass(slots=True)
class Seen:
    """Counts of queries (dropped ones are late), and the summed accuracy of those in time."""

    served: int = 0
    late: int = 0
    batches: int = 0
    right: float = 0.0

    @property
    def violation(self) -> float:
        """The fraction of late queries; 1 if no query was served."""
        return self.late / self.served if self.served else 1.0

    @property
    def accuracy(self) -> float:
        """The mean accuracy of the queries in time; 0 if there are none."""
        in_time = self.served - self.late
        return self.right / in_time if in_time else 0.0


def round_robin(
    times_s: Sequence[float],
    workers: int,
    decide: Decide,
    slo_s: float,
    rescue: Rescue | None = None,
    most_late: float = inf,
) -> Seen:
    """Simulate workers that each get every K-th query; stop after ``most_late`` late ones."""
    seen = Seen()
    for worker in range(workers):
        own = times_s[worker::workers]
        _serve(seen, own, own, 1, decide, slo_s, rescue, most_late)
    return seen


def in_runs(
    times_s: Sequence[float],
    workers: int,
    decide: Decide,
    slo_s: float,
    rescue: Rescue | None,
    run_at: RunAt,
    planned: Planned | None = None,
    most_late: float = inf,
) -> Seen:
    """Simulate workers that get runs of queries in turn; the wait for the rest of a run is bounded
    as in the nodes."""
    seen = Seen()
    own: list[tuple[list[float], list[float], list[int]]] = [([], [], []) for _ in range(workers)]
    for turn, length, run in _sent(seen, times_s, workers, run_at, planned):
        came, there, sent_in = own[turn]
        whole_s = min(run[-1], run[0] + WAIT * slo_s)
        came.extend(run)
        there.extend(max(whole_s, each) for each in run)
        sent_in.extend([length] * len(run))
    for came, there, sent_in in own:
        _serve(seen, came, there, 1, decide, slo_s, rescue, most_late, sent_in)
    return seen


def _sent(
    seen: Seen, times_s: Sequence[float], workers: int, run_at: RunAt, planned: Planned | None
) -> Iterator[tuple[int, int, Sequence[float]]]:
    """Yield each run's worker, intended length and arrivals; count the refused queries."""
    at = turn = 0
    free_s = [0.0] * workers  # until then the worker is planned to be busy
    while at < len(times_s):
        if planned is not None and free_s[turn] > times_s[at] + planned.wait_s:
            seen.served, seen.late, at = seen.served + 1, seen.late + 1, at + 1
            continue
        length = run_at(times_s[at])
        run = times_s[at : at + length]
        if planned is not None:
            for each in run:
                free_s[turn] = max(free_s[turn], each) + planned.query_s
        yield turn, length, run
        at, turn = at + len(run), (turn + 1) % workers


def central(
    times_s: Sequence[float],
    workers: int,
    decide: Decide,
    slo_s: float,
    rescue: Rescue | None = None,
    most_late: float = inf,
) -> Seen:
    """Simulate workers with one FIFO queue; stop once more than ``most_late`` queries are late."""
    seen = Seen()
    _serve(seen, times_s, times_s, workers, decide, slo_s, rescue, most_late)
    return seen


def _serve(
    seen: Seen,
    times_s: Sequence[float],
    there_s: Sequence[float],
    workers: int,
    decide: Decide,
    slo_s: float,
    rescue: Rescue | None,
    most_late: float = inf,
    sent_in: Sequence[int] = (),
) -> None:
    """Serve one queue and count its queries in ``seen``; query i is visible from ``there_s[i]``."""
    free = [0.0] * workers
    at, end, count = 0, 0, len(times_s)
    while at < count and seen.late <= most_late:
        now = max(there_s[at], free[0])
        end = bisect_right(there_s, now, max(at, end))
        slack_s = times_s[at] + slo_s - now
        run = sent_in[end - 1] if sent_in else 0
        size, seconds, accuracy = decide(end - at, slack_s, now, run)
        if rescue is not None and seconds > slack_s + ROUNDING_S:
            size, seconds, accuracy = rescue(end - at, now)
            saved = bisect_left(times_s, now + seconds - slo_s - ROUNDING_S, at, end)
            if saved > at:
                at = _dropped(seen, at, saved)
                continue
        done_s = now + seconds
        heapreplace(free, done_s)
        _count(seen, times_s, at, size, done_s - slo_s, accuracy)
        at += size


def _dropped(seen: Seen, at: int, saved: int) -> int:
    """Count the dropped queries; return the new head of the queue."""
    seen.served += saved - at
    seen.late += saved - at
    return saved


def _count(
    seen: Seen, times_s: Sequence[float], at: int, size: int, since_s: float, accuracy: float
) -> None:
    """Count a batch; queries that arrived before ``since_s`` are late."""
    late = bisect_left(times_s, since_s - ROUNDING_S, at, at + size) - at
    seen.served += size
    seen.late += late
    seen.batches += 1
    seen.right += accuracy * (size - late)


# ---------------------------------------------------------------------- decisions


def decided(tables: Sequence[Table], models: Sequence[CandidateModel], in_force: InForce) -> Decide:
    """Return decisions by the table in force.

    Batches beyond the profile take the latency of a straight line through it.
    """
    known = {model.name: model for model in models}
    runs = [table.run for table in tables]
    ready = [(_rows(table, known), _of_full(table, known), table.levels_s) for table in tables]

    def decide(queue: int, slack_s: float, now: float, run: int = 0) -> Run:
        at = in_force(now)
        rows, of_full, levels = ready[for_runs(runs, at, run) if run else at]
        if queue > len(rows):
            return of_full(queue)
        return rows[queue - 1][bisect_right(levels, slack_s + ROUNDING_S) - 1]

    return decide


def always(now: float) -> int:
    """Return the index of the first table."""
    return 0


def capped(model: CandidateModel, most: int) -> Rescue:
    """Return a rescue: this model, with batches of at most ``most``."""
    runs = [_run(model, batch) for batch in range(1, most + 1)]
    return lambda queue, now: runs[min(queue, most) - 1]


def as_decided(decide: Decide, slo_s: float) -> Rescue:
    """Return a rescue that runs what is decided at full slack: with the same choice for any slack
    only what it cannot save is dropped."""
    return lambda queue, now: decide(queue, slo_s, now, 0)


def by_recent_load(
    times_s: Sequence[float], loads_qps: Sequence[float], before: int, window_s: float = 0.5
) -> InForce:
    """Return the table choice by the arrivals of the last ``window_s``.

    The table is that of the lowest load that is not below them, else that of the highest load.
    During the first window it is number ``before``; if ``before`` is negative, the arrivals so far
    count as those of a whole window, as in the authors' code.
    """
    last = len(loads_qps) - 1

    def in_force(now: float) -> int:
        if now < window_s and before >= 0:
            return before
        came = bisect_right(times_s, now) - bisect_right(times_s, now - window_s)
        return min(bisect_left(loads_qps, came / window_s), last)

    return in_force


def as_ingress(tables: Sequence[Table], in_force: InForce) -> RunAt:
    """Return the run length of the table in force, or the previous one while a table for a nearby
    load has it, as in ingress. The result is stateful: call it at non-decreasing times."""
    loads, runs, before = [table.qps for table in tables], [table.run for table in tables], 1

    def run_at(now: float) -> int:
        nonlocal before
        before = lasting(loads, runs, loads[in_force(now)], before)
        return before

    return run_at


def _rows(table: Table, known: Mapping[str, CandidateModel]) -> list[list[Run]]:
    """Return the batches by [n - 1][level] up to the full queue; level -1: deadline passed."""
    rows = []
    for numbers, batches in zip(table.model[:-1], table.batch[:-1], strict=True):
        row = [
            _run(known[table.models[number]], batch)
            for number, batch in zip(numbers, batches, strict=True)
        ]
        rows.append([*row, row[0]])
    return rows


def _of_full(table: Table, known: Mapping[str, CandidateModel]) -> Callable[[int], Run]:
    """Return the batch by the length of a full queue."""
    model, batch = known[table.models[table.model[-1][0]]], table.batch[-1][0]
    if batch < len(table.batch):
        capped = _run(model, batch)
        return lambda queue: capped
    return lambda queue: _run(model, queue)


def _run(model: CandidateModel, batch: int) -> Run:
    return batch, seconds_of(model, batch), model.accuracy


def seconds_of(model: CandidateModel, batch: int) -> float:
    """Return the planning latency; beyond the profile that of a straight line through it."""
    profiled = len(model.latency_s)
    if batch <= profiled:
        return model.latency_s[batch - 1]
    mean = sum(model.latency_s) / profiled
    slope = (extrapolated_s(model.latency_s) - mean) * 2 / (profiled + 1)
    return mean + slope * (batch - (profiled + 1) / 2)
