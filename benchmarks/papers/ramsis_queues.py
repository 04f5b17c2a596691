"""Workers under tables of model selection, as bare arrays: no nodes, no topics, no hops.

The second road to what ``headrace simulate`` plays with the nodes, and the artifact's own world:
a batch takes its planning latency, and a query costs nothing on its way. By round robin query i
goes to worker i mod K, and each serves its own queue; in runs several queries in a row go to the
same worker, which begins when they are all there; with a central queue an idle worker takes from
the one there is. With ``rescue``, as under our policies (operators/worker.py), that is what
runs in place of a batch that would be late, and what it would not save is dropped; without, as in
the artifact, late queries are served like others.

    seen = round_robin(times_s, 60, decided(tables, models, always), slo_s=0.15)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import inf

from control.per_query.table_lookup import for_runs, lasting
from control.policies.ramsis.burst_lengths import WAIT
from control.policies.ramsis.pareto_models import CandidateModel, extrapolated_s
from control.policies.ramsis.tables import Table

ROUNDING_S = 1e-9  # a deadline met to within this is met

# A batch, its seconds, and the accuracy of its model.
Run = tuple[int, float, float]
# A queue's length, the slack of its head, the time, and in runs of how many it came (0: no matter)
# -> what runs.
Decide = Callable[[int, float, float, int], Run]
# A queue's length -> what runs where the table's batch would be late.
Rescue = Callable[[int], Run]
# The time -> which of several tables is in force.
InForce = Callable[[float], int]
# The time -> how many in a row the next worker gets.
RunAt = Callable[[float], int]


@dataclass(slots=True)
class Seen:
    """What became of the queries: counts, dropped ones being late, and the accuracy in total of
    those in time."""

    served: int = 0
    late: int = 0
    batches: int = 0
    right: float = 0.0

    @property
    def violation(self) -> float:
        """The fraction that was late; 1 where none was served."""
        return self.late / self.served if self.served else 1.0

    @property
    def accuracy(self) -> float:
        """Mean over the queries in time; 0 where there is none."""
        in_time = self.served - self.late
        return self.right / in_time if in_time else 0.0


def round_robin(
    times_s: Sequence[float],
    workers: int,
    decide: Decide,
    slo_s: float,
    rescue: Rescue | None = None,
) -> Seen:
    """Each worker with every K-th query."""
    seen = Seen()
    for worker in range(workers):
        own = times_s[worker::workers]
        _serve(seen, own, own, 1, decide, slo_s, rescue)
    return seen


def in_runs(
    times_s: Sequence[float],
    workers: int,
    decide: Decide,
    slo_s: float,
    rescue: Rescue | None,
    run_at: RunAt,
) -> Seen:
    """Each worker with runs of queries, in turn; it waits for the rest of a run no longer than
    nodes do."""
    seen = Seen()
    own: list[tuple[list[float], list[float], list[int]]] = [([], [], []) for _ in range(workers)]
    at = turn = 0
    while at < len(times_s):
        length = run_at(times_s[at])
        run = times_s[at : at + length]
        came, there, sent_in = own[turn % workers]
        whole_s = min(run[-1], run[0] + WAIT * slo_s)
        came.extend(run)
        there.extend(max(whole_s, each) for each in run)
        sent_in.extend([length] * len(run))
        at, turn = at + len(run), turn + 1
    for came, there, sent_in in own:
        _serve(seen, came, there, 1, decide, slo_s, rescue, sent_in=sent_in)
    return seen


def central(
    times_s: Sequence[float],
    workers: int,
    decide: Decide,
    slo_s: float,
    rescue: Rescue | None = None,
    most_late: float = inf,
) -> Seen:
    """All workers with one queue, first come, first served; ends early once so many are late."""
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
    """Workers with one queue, its queries counted in ``seen``; seen from ``there_s`` on."""
    free = [0.0] * workers
    at, end, count = 0, 0, len(times_s)
    while at < count and seen.late <= most_late:
        now = max(there_s[at], free[0])
        end = bisect_right(there_s, now, max(at, end))
        slack_s = times_s[at] + slo_s - now
        run = sent_in[end - 1] if sent_in else 0
        size, seconds, accuracy = decide(end - at, slack_s, now, run)
        if rescue is not None and seconds > slack_s + ROUNDING_S:
            size, seconds, accuracy = rescue(end - at)
            saved = bisect_left(times_s, now + seconds - slo_s - ROUNDING_S, at, end)
            if saved > at:
                at = _dropped(seen, at, saved)
                continue
        done_s = now + seconds
        heapreplace(free, done_s)
        _count(seen, times_s, at, size, done_s - slo_s, accuracy)
        at += size


def _dropped(seen: Seen, at: int, saved: int) -> int:
    """Count queries that end here; where the queue goes on."""
    seen.served += saved - at
    seen.late += saved - at
    return saved


def _count(
    seen: Seen, times_s: Sequence[float], at: int, size: int, since_s: float, accuracy: float
) -> None:
    """Count a batch; queries that came before ``since_s`` are late."""
    late = bisect_left(times_s, since_s - ROUNDING_S, at, at + size) - at
    seen.served += size
    seen.late += late
    seen.batches += 1
    seen.right += accuracy * (size - late)


# ---------------------------------------------------------------------- decisions


def decided(tables: Sequence[Table], models: Sequence[CandidateModel], in_force: InForce) -> Decide:
    """Decisions by the table in force.

    A batch longer than was profiled takes what the straight line through the profile says.
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
    """The first table, whatever comes."""
    return 0


def capped(model: CandidateModel, most: int) -> Rescue:
    """A rescue: this model, at most so many together."""
    runs = [_run(model, batch) for batch in range(1, most + 1)]
    return lambda queue: runs[min(queue, most) - 1]


def by_recent_load(
    times_s: Sequence[float], loads_qps: Sequence[float], before: int, window_s: float = 0.5
) -> InForce:
    """The table of the lowest load that is not below the arrivals of the last half second.

    Else that of the highest. Until a whole window was seen it is number ``before``, or, where
    that is negative, what has come counts as a whole window's, as in the authors' code.
    """
    last = len(loads_qps) - 1

    def in_force(now: float) -> int:
        if now < window_s and before >= 0:
            return before
        came = bisect_right(times_s, now) - bisect_right(times_s, now - window_s)
        return min(bisect_left(loads_qps, came / window_s), last)

    return in_force


def as_ingress(tables: Sequence[Table], in_force: InForce) -> RunAt:
    """The runs of the table in force, or those before while a table for a load close by has them,
    as ingress does. To be asked once, at growing times."""
    loads, runs, before = [table.qps for table in tables], [table.run for table in tables], 1

    def run_at(now: float) -> int:
        nonlocal before
        before = lasting(loads, runs, loads[in_force(now)], before)
        return before

    return run_at


def _rows(table: Table, known: Mapping[str, CandidateModel]) -> list[list[Run]]:
    """What runs by [n - 1][level] up to the full queue; index -1 is a deadline that has passed."""
    rows = []
    for numbers, batches in zip(table.model[:-1], table.batch[:-1], strict=True):
        row = [
            _run(known[table.models[number]], batch)
            for number, batch in zip(numbers, batches, strict=True)
        ]
        rows.append([*row, row[0]])
    return rows


def _of_full(table: Table, known: Mapping[str, CandidateModel]) -> Callable[[int], Run]:
    """What runs by the length of a queue that is full."""
    model, batch = known[table.models[table.model[-1][0]]], table.batch[-1][0]
    if batch < len(table.batch):
        capped = _run(model, batch)
        return lambda queue: capped
    return lambda queue: _run(model, queue)


def _run(model: CandidateModel, batch: int) -> Run:
    return batch, seconds_of(model, batch), model.accuracy


def seconds_of(model: CandidateModel, batch: int) -> float:
    """Planning latency; beyond the profile that of the straight line through it."""
    profiled = len(model.latency_s)
    if batch <= profiled:
        return model.latency_s[batch - 1]
    mean = sum(model.latency_s) / profiled
    slope = (extrapolated_s(model) - mean) * 2 / (profiled + 1)
    return mean + slope * (batch - (profiled + 1) / 2)
