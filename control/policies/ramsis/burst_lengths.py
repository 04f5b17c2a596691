"""Lengths of the runs in which queries go to workers by round robin.

With round robin, a query that arrives just after its worker's batch began waits for the whole batch
and then for its own. If b consecutive queries go to a worker before the next worker's turn, the
worker gets a whole batch at once, every K b / q seconds, with a spread that falls as K b grows:
workers take turns as under a central queue. The cost is that the first query of a run waits
(b - 1) / q for the last.

A worker that gets whole runs is the worker of the paper (``transitions``) with runs in place of
queries: one of K b arrivals ends its next run, n runs are a batch of n b, and the SLO is reduced by
the wait of the first query.

No table for runs of b is more accurate than the best mixture of batches for which the workers have
time (``Way.at_most``). Run lengths that cannot beat an existing table are not solved for.

If no table keeps up, the objective is the throughput in time. Ingress then lets as many queries
wait as the workers can serve in time (control/per_query/run_admission.py): B = C w, with C the
capacity in whole batches of b, and w the budget less the times of a batch and of gathering its run.
At arrivals near C, a queue with room for B is empty for a fraction 1 / (2 B) of the time (M/D/1
with room for B at its critical load), so that

    C (1 - 1 / (2 B))

queries per second are served. Long batches serve more per second but leave less room to wait.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

from control.per_query.run_admission import wait_s
from control.policies.ramsis.pareto_models import CandidateModel

MANY = 1e6  # in place of an unbounded load
WAIT = 0.1  # fraction of the budget that a worker waits for the rest of a run
SURE = 3.0  # standard deviations within which a run must arrive in that time
SAVING = 0.6  # fraction of the budget for a batch in place of a late one, without admission

Batch = tuple[int, float, float]  # size, seconds, accuracy
NOTHING: Batch = (1, 0.0, 0.0)  # stands for queries that are not served


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalStream:
    """The stream of queries to workers that take turns."""

    qps: float
    workers: int
    slo_s: float

    def gathering_s(self, run: int) -> float:
        """Return how long the first query of a run waits for the last, on average, in seconds."""
        return (run - 1) / self.qps if run > 1 else 0.0

    def gathers(self, run: int) -> bool:
        """Return whether a run of that length arrives in the time that workers wait for it."""
        if run == 1:
            return True
        if self.workers == 1 or self.qps <= 0:
            return False
        return (run - 1 + SURE * sqrt(run - 1)) / self.qps <= WAIT * self.slo_s


def gathered_arrivals(qps: float, slo_s: float) -> int:
    """Return the mean number of arrivals in the time that workers wait for a run, at least 1.

    A table may be in force at a load below its own.
    """
    return 1 + int(min(qps * WAIT * slo_s, MANY))


@dataclass(frozen=True, slots=True)
class Way:
    """A run length and an upper bound on its table's accuracy.

    ``alone``: the bound when each batch serves one whole run, or 0.
    """

    run: int
    at_most: float
    alone: float


def ways(models: Sequence[CandidateModel], stream: ArrivalStream, runs: Iterable[int]) -> list[Way]:
    """Return the runs that arrive in time and fit the SLO.

    The first is the best if no run waits for another; the others follow by their bounds.
    """
    found = [
        Way(
            run,
            _mixed([NOTHING, *batches], stream),
            _mixed([batch for batch in batches if batch[0] == run], stream),
        )
        for run in sorted(set(runs))
        if stream.gathers(run) and (batches := _batches(models, stream, run))
    ]
    first = max(found, key=lambda way: (way.alone, -way.run), default=None)
    return sorted(found, key=lambda way: (way is not first, -way.at_most, way.run))


def _mixed(batches: Sequence[Batch], stream: ArrivalStream) -> float:
    """Return the accuracy over all queries of the best mixture of batches if none waits for
    another: a worker has K / q seconds for each of its queries."""
    timed = [(seconds / size, accuracy) for size, seconds, accuracy in batches]
    share_s = stream.workers / stream.qps if stream.qps > 0 else inf
    within = [(s, a) for s, a in timed if s <= share_s]
    beyond = [(s, a) for s, a in timed if s > share_s]
    mixed = (
        low + (high - low) * (share_s - quick_s) / (slow_s - quick_s)
        for quick_s, low in within
        for slow_s, high in beyond
    )
    return max([*(a for _, a in within), *mixed], default=0.0)


def overrun(models: Sequence[CandidateModel], stream: ArrivalStream, among: Iterable[Way]) -> Way:
    """Return the runs with the most throughput if no table keeps up, the shortest in a tie."""
    return max(among, key=lambda way: (_sustained(models, stream, way.run), -way.run))


def sustained_qps(stream: ArrivalStream, batch: int, batch_s: float) -> float:
    """Return the queries per second served in time in an overload, in runs of a whole batch."""
    capacity_qps = stream.workers * batch / batch_s
    if capacity_qps <= 0:
        return 0.0
    waiting = capacity_qps * wait_s(stream.slo_s, batch, batch_s, capacity_qps)
    return capacity_qps * max(0.0, 1 - 0.5 / waiting) if waiting > 0 else 0.0


def in_runs(model: CandidateModel, run: int) -> CandidateModel | None:
    """Return the model with runs in place of queries; None if its largest batch is shorter."""
    latency_s, occupied_s = (each[run - 1 :: run] for each in (model.latency_s, model.occupied_s))
    return replace(model, latency_s=latency_s, occupied_s=occupied_s) if latency_s else None


def gathered(levels_s: Sequence[float], slo_s: float) -> tuple[float, ...]:
    """Return the levels of slack of a complete run, with ``slo_s`` left on average."""
    return (*(level for level in levels_s if level < slo_s), slo_s)


def by_queries(rows: Sequence[Sequence[int]], run: int) -> tuple[tuple[int, ...], ...]:
    """Return rows by runs queued as rows by queries queued: [R + 1, j] becomes [R run + 1, j].

    An incomplete run counts as whole.
    """
    *queued, full = (tuple(row) for row in rows)
    return (*(row for row in queued for _ in range(run)), full)


def batches_of(rows: Sequence[Sequence[int]], run: int) -> tuple[tuple[int, ...], ...]:
    """Return batches in runs, by runs queued, as batches in queries, by queries queued.

    A batch is at most the queued queries; a batch of the whole full queue stays that.
    """
    whole = len(rows)
    *queued, last = by_queries(rows, run)
    shorter = (tuple(min(b * run, n) for b in row) for n, row in enumerate(queued, start=1))
    return (*shorter, tuple(len(queued) + 1 if b == whole else b * run for b in last))


def _batches(models: Sequence[CandidateModel], stream: ArrivalStream, run: int) -> list[Batch]:
    """Return every batch of whole runs that is in time, with the seconds that it takes a worker."""
    left_s = stream.slo_s - stream.gathering_s(run)
    return [
        (batch, model.busy_s[batch - 1], model.accuracy)
        for model in models
        for batch in range(run, len(model.latency_s) + 1, run)
        if model.latency_s[batch - 1] <= left_s
    ]


def _sustained(models: Sequence[CandidateModel], stream: ArrivalStream, run: int) -> float:
    """Return the highest throughput in time of any model in runs of that length."""
    return max(
        (
            sustained_qps(stream, run, model.latency_s[run - 1])
            for model in models
            if len(model.latency_s) >= run
        ),
        default=0.0,
    )
