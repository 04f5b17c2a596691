"""In runs of how many are queries sent to workers that take turns? One by one, or several at once.

By round robin a query that comes just after its worker's batch began waits for all of it, and then
for its own. Where b consecutive queries go to a worker before the next one's turn, it has a whole
batch at once, every K b / q seconds, with a spread that falls as K b grows: workers take turns as
under a central queue. The price is that the first of a run waits for the last, (b - 1) / q.

A worker that gets whole runs is that of the paper (``selection_transitions``) with runs for
queries: one of K b arrivals ends its next run, n runs are a batch of n b, and of the SLO there is
left what the first did not wait.

No table for runs of b is more accurate than the best mixture of batches that the workers' time is
enough for (``Way.at_most``): what cannot be better than a table that is there need not be solved.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt

from control.policies.ramsis.pareto_models import CandidateModel

MANY = 1e6  # in place of a load without bound
WAIT = 0.1  # of the budget: so long a worker waits for the rest of a run
SURE = 3.0  # standard deviations within which a run must come in that time
SPARE = 0.75  # of the budget is what a run of an overrun worker may take
SAVING = 0.6  # and a batch in place of one that would be late: a shorter one saves more of a queue

Batch = tuple[int, float, float]  # size, seconds, accuracy
NOTHING: Batch = (1, 0.0, 0.0)  # is what becomes of queries that are left behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Queries on their way to workers that take turns."""

    qps: float
    workers: int
    slo_s: float

    def gathering_s(self, run: int) -> float:
        """How long the first query of a run waits for the last, on average."""
        return (run - 1) / self.qps if run > 1 else 0.0

    def gathers(self, run: int) -> bool:
        """Whether a run of so many comes together in the time that workers wait for it."""
        if run == 1:
            return True
        if self.workers == 1 or self.qps <= 0:
            return False
        return (run - 1 + SURE * sqrt(run - 1)) / self.qps <= WAIT * self.slo_s


def together(qps: float, slo_s: float) -> int:
    """How many queries at the most come, on average, in the time that workers wait for a run; 1 at
    least. A table may be in force at a load lighter than its own."""
    return 1 + int(min(qps * WAIT * slo_s, MANY))


@dataclass(frozen=True, slots=True)
class Way:
    """Runs of so many, and the accuracy that no table for them can exceed; ``alone``: if no batch
    were of more than one run and nobody were left behind, 0 where that cannot be."""

    run: int
    at_most: float
    alone: float


def ways(models: Sequence[CandidateModel], stream: Stream, runs: Iterable[int]) -> list[Way]:
    """The runs that come together and fit the SLO: first that which is best if none ever waits for
    another, then the others by what they could reach."""
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


def _mixed(batches: Sequence[Batch], stream: Stream) -> float:
    """The accuracy over all queries of the best mixture of batches, which need not wait for each
    other: a worker has K / q seconds for each of its queries."""
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


def overrun(models: Sequence[CandidateModel], stream: Stream, among: Iterable[Way]) -> Way:
    """The runs that serve most per second where no table keeps up, the shortest of equal ones."""
    left = [way for way in among if _rate(models, stream, way.run) > 0]
    return max(left, key=lambda way: (_rate(models, stream, way.run), -way.run))


def in_runs(model: CandidateModel, run: int) -> CandidateModel | None:
    """The model with runs of so many for queries; None where its largest batch is shorter."""
    latency_s = model.latency_s[run - 1 :: run]
    return CandidateModel(model.name, model.accuracy, latency_s) if latency_s else None


def gathered(levels_s: Sequence[float], slo_s: float) -> tuple[float, ...]:
    """The levels of slack of a run that is complete, with ``slo_s`` left on average."""
    return (*(level for level in levels_s if level < slo_s), slo_s)


def by_queries(rows: Sequence[Sequence[int]], run: int) -> tuple[tuple[int, ...], ...]:
    """Rows by runs queued as rows by queries queued, of which a run that is cut short counts as
    whole: [R + 1, j] becomes [R run + 1, j]."""
    *queued, full = (tuple(row) for row in rows)
    return (*(row for row in queued for _ in range(run)), full)


def batches_of(rows: Sequence[Sequence[int]], run: int) -> tuple[tuple[int, ...], ...]:
    """Batches in runs, by runs queued, as batches in queries, by queries queued: no more than are
    there. All of a full queue is still all of it."""
    whole = len(rows)
    *queued, last = by_queries(rows, run)
    shorter = (tuple(min(b * run, n) for b in row) for n, row in enumerate(queued, start=1))
    return (*shorter, tuple(len(queued) + 1 if b == whole else b * run for b in last))


def _batches(models: Sequence[CandidateModel], stream: Stream, run: int) -> list[Batch]:
    """Every batch of whole runs that is in time."""
    left_s = stream.slo_s - stream.gathering_s(run)
    return [
        (batch, model.latency_s[batch - 1], model.accuracy)
        for model in models
        for batch in range(run, len(model.latency_s) + 1, run)
        if model.latency_s[batch - 1] <= left_s
    ]


def _rate(models: Sequence[CandidateModel], stream: Stream, run: int) -> float:
    """Queries per second of a worker that serves single runs; 0 where none leaves time to spare,
    except of queries one by one."""
    rates = [
        run / model.latency_s[run - 1]
        for model in models
        if len(model.latency_s) >= run and model.latency_s[run - 1] <= SPARE * stream.slo_s
    ]
    return max(rates, default=1e-9 if run == 1 else 0.0)
