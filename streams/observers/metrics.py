"""Metrics: events and effects of a process's nodes, folded into counts and histograms.

``streams/observers/metric_table.py`` lists the metrics;
``headrace/roles/observability/metrics_port.py`` exports the samples to Prometheus.

Counts that a node keeps itself are taken from its reports, five times a second. Only outcomes with
their reasons, and durations, are folded from each event.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from control.estimation.accuracy.accuracy_drift import all_measured, sums_of
from control.estimation.accuracy.accuracy_sums import AccuracySums, merged_sums
from operators.drop_reasons import EGRESS_TASK
from operators.outcomes import LOST, OUTCOMES, cause_of, missed_at, outcome_of
from schemas.count_names import count_name
from schemas.effects import Arrived, Effect, Event, Failed, Inferred, Loaded, Send, Solve, Solved
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.records import (
    ANSWERED,
    AccuracyRow,
    Answer,
    CommandResult,
    DeadLetter,
    Hop,
    MeasuredAccuracy,
    Origin,
    Plan,
    Report,
    Work,
)
from schemas.variant_id import variant_id

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OTHER = "other"  # replaces a task that is not in the pipeline file

Labels = tuple[str, ...]


class TracedValue(NamedTuple):
    """An observed value of a histogram, its trace id, and its time in epoch seconds."""

    trace: str
    value: float
    at_s: float


@dataclass(slots=True)
class Observed:
    """The values of a histogram or summary: their count per bucket and their sum.

    ``exemplars`` has the newest value of each bucket, by index, where values have traces.
    """

    bounds: tuple[float, ...] = ()
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    exemplars: dict[int, TracedValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Add a value; a bucket includes its upper bound."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_traced(self, traced: TracedValue) -> None:
        """Add a value and keep it as its bucket's exemplar."""
        self.add(traced.value)
        self.exemplars[bisect_left(self.bounds, traced.value)] = traced

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)


MetricSample = tuple[str, Labels, "float | Observed"]  # metric, label values, value

# The metric of each count of a report. Workers' metrics are per task and variant.
_COUNTS = {
    "ingress": {
        "arrived": "queries_read_total", "admitted": "queries_admitted_total",
        "refused": "queries_refused_total", "regressed": "input_regressed_total",
        "missing": "input_missing_total", "decisions": "dispatch_decisions_total",
    },
    "dispatcher": {"decisions": "dispatch_decisions_total"},
    "egress": {"duplicates": "duplicates_total", "class": "class_queries_total"},
    "worker": {
        "arrived": "items_received_total", "finished": "items_finished_total",
        "dropped": "items_dropped_total", "failed": "items_failed_total",
        "busy_s": "device_busy_seconds_total", "children": "children_total",
    },
}  # fmt: skip
STATES = tuple(state for state in NodeState if state != NodeState.OTHER)


class Metrics:
    """An observer that folds events; ``samples`` may be called from another thread.

    ``prices`` are $ per hour by device type.
    """

    def __init__(self, pipeline: Pipeline, prices: Mapping[str, float] | None = None) -> None:
        self._pipeline = pipeline.name
        self._prices = prices or {}
        self._tasks = {*pipeline.task_names, "ingress", EGRESS_TASK}
        # With the SLO as a bound, the histogram gives the share of answers within it.
        self._query_bounds = tuple(sorted({*BOUNDS_S, pipeline.slo_s}))
        self._reports: dict[str, Report] = {}
        self._epochs: dict[str, int] = {}
        self._plan: Plan | None = None
        self._measured: MeasuredAccuracy | None = None
        # Counters of alerts begin at 0: to Prometheus a series that begins at 1 has not increased.
        self._counts: Counter[tuple[str, Labels]] = Counter({("dead_letters_total", ()): 0})
        self._observed: dict[tuple[str, Labels], Observed] = {}
        self._solving: dict[int, float] = {}
        self._by_event: dict[type, Callable[[str, Any, Sequence[Effect], float], None]] = {
            Plan: self._followed, Inferred: self._inferred, Loaded: self._loaded,
            Solved: self._solved, Failed: self._solved,
        }  # fmt: skip
        self._asked: dict[type, Callable[[str, Any, float], None]] = {
            Answer: self._answer, DeadLetter: self._dead_letter, Report: self._report,
            Plan: self._planned, CommandResult: self._command, Solve: self._solve,
            MeasuredAccuracy: self._accuracy,
        }  # fmt: skip
        self.kinds = frozenset[type]((*self._by_event, *self._asked))

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        kind: type = type(event)
        if kind is Arrived:
            kind = type(event.record)  # type: ignore[union-attr]
        handle = self._by_event.get(kind)
        if handle is not None:
            handle(node, event, effects, now)
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                kind = type(effect.record)  # type: ignore[union-attr]
            asked = self._asked.get(kind)
            if asked is not None:
                asked(node, effect, now)

    # ------------------------------------------------------------------ every node

    def _report(self, node: str, effect: Any, now: float) -> None:
        if node not in self._reports and effect.record.role == "egress":
            self._counts.update(
                {("queries_total", (each,)): 0 for each in OUTCOMES if each != LOST}
            )
        self._reports[node] = effect.record

    def _followed(self, node: str, event: Any, effects: Sequence[Effect], now: float) -> None:
        plan: Plan = event.record
        if plan.pipeline == self._pipeline and plan.epoch > self._epochs.get(node, -1):
            self._epochs[node] = plan.epoch
            self._plan = plan

    def _dead_letter(self, node: str, effect: Any, now: float) -> None:
        self._counts["dead_letters_total", ()] += 1

    # ------------------------------------------------------------------ workers

    def _inferred(self, node: str, event: Any, effects: Sequence[Effect], now: float) -> None:
        first = True
        for hop in _hops(node, event, effects):
            key = (hop.task, hop.variant)
            if first:
                self._observe("compute_seconds", key, hop.finished_s - hop.started_s)
                self._counts["batches_total", (*key, hop.released)] += 1
                first = False
            self._observe("queue_seconds", key, hop.started_s - hop.received_s)

    def _loaded(self, node: str, event: Any, effects: Sequence[Effect], now: float) -> None:
        task, variant = variant_id(event.variant)
        self._observe("load_seconds", (task, variant), event.seconds, ())

    # ------------------------------------------------------------------ egress

    def _answer(self, node: str, effect: Any, now: float) -> None:
        answer: Answer = effect.record
        outcome = outcome_of(answer)
        self._counts["queries_total", (outcome,)] += 1
        if answer.outcome == ANSWERED:
            seconds = answer.answered_s - answer.created_s
            self._observe("query_seconds", (), seconds, self._query_bounds)
        if outcome != ANSWERED:
            labels = (outcome, self._known(missed_at(answer)), cause_of(answer))
            self._counts["misses_total", labels] += 1
        elif answer.expected_accuracy is not None:
            self._observe("served_accuracy_ratio", (), answer.expected_accuracy, ())

    def _known(self, task: str) -> str:
        # Records come from other processes, and the number of labels must stay small.
        return task if task in self._tasks else OTHER

    # ------------------------------------------------------------------ scorer

    def _accuracy(self, node: str, effect: Any, now: float) -> None:
        self._measured = effect.record

    # ------------------------------------------------------------------ control

    def _planned(self, node: str, effect: Any, now: float) -> None:
        self._counts["plans_total", ()] += 1
        self._plan = effect.record
        self._epochs[node] = effect.record.epoch

    def _command(self, node: str, effect: Any, now: float) -> None:
        self._counts["commands_total", ("done" if effect.record.ok else "refused",)] += 1

    def _solve(self, node: str, effect: Any, now: float) -> None:
        self._solving[effect.job] = now

    def _solved(self, node: str, event: Any, effects: Sequence[Effect], now: float) -> None:
        began_s = self._solving.pop(event.job, None)
        if began_s is not None:
            self._observe("solve_seconds", (), now - began_s, ())

    # ------------------------------------------------------------------ samples

    def _observe(
        self, name: str, labels: Labels, value: float, bounds: tuple[float, ...] = BOUNDS_S
    ) -> None:
        observed = self._observed.get((name, labels))
        if observed is None:
            observed = self._observed[name, labels] = Observed(bounds)
        observed.add(value)

    def samples(self) -> Iterator[MetricSample]:
        """Yield every current sample; counters and gauges as numbers."""
        for (name, labels), value in list(self._counts.items()):
            yield name, labels, value
        yield from ((name, labels, o) for (name, labels), o in list(self._observed.items()))
        reports = list(self._reports.values())
        yield from _reported(reports)
        if self._measured is not None:
            yield from _labelled(self._measured)
        if self._epochs:
            yield "plan_epoch", (), min(list(self._epochs.values()))
        if not reports and self._plan is not None:  # the control app sends no reports
            yield from _plan(self._plan)
            yield from _cost(self._plan, self._prices)


def _hops(node: str, event: Inferred, effects: Sequence[Effect]) -> Iterator[Hop]:
    """Yield the hop of every item of a finished batch, from the effects."""
    seen: set[tuple[Origin, tuple[int, ...]]] = set()
    for effect in effects:
        if type(effect) is Send and type(effect.record) is Work:
            work = effect.record
            for item in work.items:
                # The children of one item share its key, so that the item counts once.
                key = (work.origin, item.branch[:-2] if work.task else item.branch)
                if item.path and key not in seen:
                    seen.add(key)
                    hop = item.path[-1]
                    # The effects also hold items dropped before the next batch.
                    if hop.worker == node and hop.started_s == event.started_s:
                        yield hop


def _reported(reports: Sequence[Report]) -> Iterator[MetricSample]:
    sums: Counter[tuple[str, Labels]] = Counter()
    states: Counter[str] = Counter()
    for report in reports:
        states[report.state] += 1
        names = _COUNTS.get(report.role, {})
        for key, value in report.counts.items():
            name = count_name(key)
            if name.what in names:
                sums[names[name.what], name.labels] += value  # type: ignore[assignment]
        for slot in report.slots:
            sums["items_queued", (slot.task,)] += slot.queued
    yield from ((name, labels, value) for (name, labels), value in sums.items())
    if reports:
        yield from (("nodes", (state,), float(states[state])) for state in STATES)


def _labelled(measured: MeasuredAccuracy) -> Iterator[MetricSample]:
    """Yield labels by outcome and, over all hours, the accuracy by path and class."""
    for outcome, count in measured.counts.items():
        if outcome != "labels":
            yield "labels_total", (outcome,), float(count)
    for labels, sums in _summed(((row.path, row.slo_class), row) for row in measured.rows):
        low, high = sums.interval()
        yield "measured_accuracy_ratio", labels, sums.accuracy or 0.0
        yield "measured_accuracy_low_ratio", labels, low
        yield "measured_accuracy_high_ratio", labels, high
        yield "measured_accuracy_labels", labels, float(sums.queries)
    yield from _shadowed(measured)


def _shadowed(measured: MeasuredAccuracy) -> Iterator[MetricSample]:
    """Yield the newest accuracies and, over all classes and hours, agreement with shadows."""
    for found in all_measured(measured.recent):
        newest = (found.path, found.reference)
        yield "recent_accuracy_ratio", newest, found.accuracy
        yield "accuracy_drifted", newest, float(found.drifted)
    for outcome, count in measured.shadow_counts.items():
        yield "shadows_total", (outcome,), float(count)
    for labels, sums in _summed(((row.path, row.reference), row) for row in measured.shadows):
        low, high = sums.interval()
        yield "shadow_agreement_ratio", labels, sums.accuracy or 0.0
        yield "shadow_agreement_low_ratio", labels, low
        yield "shadow_agreement_high_ratio", labels, high


def _summed(rows: Iterable[tuple[Labels, AccuracyRow]]) -> Iterator[tuple[Labels, AccuracySums]]:
    """Yield the sums of the rows of each label."""
    groups: dict[Labels, list[AccuracySums]] = {}
    for labels, row in rows:
        groups.setdefault(labels, []).append(sums_of(row))
    for labels, parts in groups.items():
        yield labels, merged_sums(parts)


def _plan(plan: Plan) -> Iterator[MetricSample]:
    yield "plan_feasible", (), float(plan.feasible)
    yield "plan_demand_queries_per_second", (), plan.demand_qps
    if plan.capacity_qps is not None:
        yield "plan_capacity_queries_per_second", (), plan.capacity_qps
    if plan.expected_accuracy is not None:
        yield "plan_accuracy_ratio", (), plan.expected_accuracy
    workers = Counter((lease.task, lease.variant) for lease in plan.leases if lease.open_slot >= 0)
    yield from (("workers_wanted", (name,), float(n)) for name, n in plan.mix.items())
    yield from (("plan_workers", labels, float(count)) for labels, count in workers.items())


def _cost(plan: Plan, prices: Mapping[str, float]) -> Iterator[MetricSample]:
    """Yield the cost of the plan's workers by type, for types that have a price."""
    types = {lease.worker: lease.type for lease in plan.leases}
    for name, count in Counter(types.values()).items():
        if name in prices:
            yield "cost_dollars_per_hour", (name,), count * prices[name]
