"""Compute the current state of a running pipeline from its reports and plans.

Counts in reports are cumulative within one incarnation of a node, so rates are differences over
the last ``WINDOW_S``; a node that is silent for ``SILENT_AFTER_S`` does not count. The module uses
no clock and no network.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from control.estimation.accuracy.accuracy_drift import Measured, drifted_paths
from headrace.config.cluster_cost import cost_of, per_thousand
from headrace.results.label_accuracy import LabelAccuracy, label_accuracy, of_rows
from headrace.results.shadow_figures import ShadowFigure, shadow_figures
from operators.egress.latency_histogram import quantile_s
from schemas.count_names import count_name
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.pipeline_fingerprint import fingerprint
from schemas.records import DROPPED, FAILED, REFUSED, Lease, MeasuredAccuracy, Plan, Report
from schemas.variant_id import variant_key

WINDOW_S = 3.0
SILENT_AFTER_S = 1.0
GONE_S = 3600.0  # a node that is silent for longer is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRow:
    """One variant of one task. Rates are items per second.

    ``slots`` counts open slots; ``lag`` counts records on the broker that workers have not finished
    (of the whole task; None: not queried); ``queued`` counts items held by workers; ``busy`` is
    the share of time that its workers compute.
    """

    task: str
    variant: str
    workers: int
    slots: int
    lag: int | None
    queued: int
    arrived_qps: float
    finished_qps: float
    dropped_qps: float
    failed_qps: float
    batch: float | None
    busy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """The workers of one device name. ``serves`` are keys "task/variant"; ``busy`` is the mean
    share of time that a worker computes."""

    device: str
    workers: int
    ready: int
    serves: tuple[str, ...]
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node as it last reported; ``error`` is the reason if its state is failed."""

    name: str
    role: str
    state: str
    device: str
    serves: str
    epoch: int
    age_s: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A pipeline at one moment. Rates are queries per second.

    ``reasons`` are rates by "outcome/class of the reason"; ``busy`` is the mean share of time that
    a worker computes (None: no workers).
    """

    pipeline: str
    epoch: int | None = None  # None: there is no plan
    policy: str | None = None
    slo_ms: float | None = None
    paused: bool = False
    feasible: bool | None = None
    binding: str = ""
    demand_qps: float | None = None
    capacity_qps: float | None = None
    expected_accuracy: float | None = None
    arrived_qps: float
    refused_qps: float
    answered_qps: float
    late_qps: float
    dropped_qps: float
    failed_qps: float
    reasons: Mapping[str, float]
    # Quantiles over the queries answered in the window, each accurate to about 10 %.
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    workers: int
    busy: float | None
    usd_per_h: float | None  # of the workers that report; None: the cluster has no prices
    usd_per_1000_answers: float | None
    variants: tuple[VariantRow, ...]
    devices: tuple[DeviceRow, ...]
    nodes: tuple[NodeRow, ...]
    # Queries per second by SLO class ("": without one) and outcome; {} without classes.
    classes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    measured: LabelAccuracy | None = None  # None: no answer has a label
    labels: Mapping[str, int] = field(default_factory=dict)  # counts by outcome
    label_trouble: str = ""  # the newest error of the scorer
    shadows: tuple[ShadowFigure, ...] = ()  # without labels: agreement with the best path
    drifted: tuple[Measured, ...] = ()  # measured accuracies that left their profile's interval
    other_file: tuple[str, ...] = ()  # nodes that run another pipeline file than the board's

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as a JSON object."""
        return asdict(self)


Series = deque[Report]
RateKey = tuple[str, str]  # role, name of the count


@dataclass(slots=True)
class Board:
    """The state of one pipeline, fed with its plans and reports.

    ``variants`` are (task, variant) in display order; those that only the plan names follow.
    ``prices`` are $ per hour by device type; ``file`` is the fingerprint of the pipeline file ("":
    not known).
    """

    pipeline: str
    variants: tuple[tuple[str, str], ...] = ()
    plan: Plan | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    file: str = ""
    measured: MeasuredAccuracy | None = None
    _nodes: dict[str, Series] = field(default_factory=dict)
    # Reports of earlier incarnations than the newest, since that one last reported.
    _earlier: dict[str, Series] = field(default_factory=dict)

    def see(self, records: Iterable[object]) -> None:
        """Add plans and reports of the pipeline; ignore other records."""
        for record in records:
            if isinstance(record, Plan) and record.pipeline == self.pipeline:
                if record.supersedes(self.plan):
                    self.plan = record
            elif isinstance(record, MeasuredAccuracy) and record.pipeline == self.pipeline:
                self.measured = record
            elif isinstance(record, Report) and record.pipeline == self.pipeline:
                self._report(record)

    def _report(self, report: Report) -> None:
        node = report.node
        series = self._nodes.get(node)
        if series is None or report.incarnation >= series[-1].incarnation:
            self._earlier.pop(node, None)
            _add(self._nodes.setdefault(node, deque()), report)
            return
        # Late reports of a replaced process, or a restart after the host's clock was set back.
        _add(earlier := self._earlier.setdefault(node, deque()), report)
        if earlier[-1].sent_s - earlier[0].sent_s > SILENT_AFTER_S:
            self._nodes[node] = self._earlier.pop(node)

    def reports(self) -> dict[str, Report]:
        """Return the newest report of every node that is not gone, whether or not it is silent."""
        return {name: series[-1] for name, series in sorted(self._nodes.items())}

    def forget(self, before_s: float) -> None:
        """Forget the nodes that have not reported since ``before_s``: rented workers, and the
        ingresses of sessions at the edge, have new names each time."""
        for name in [n for n, each in self._nodes.items() if each[-1].sent_s < before_s]:
            del self._nodes[name]
            self._earlier.pop(name, None)

    def snapshot(self, now: float, lag: Mapping[str, int] | None = None) -> Snapshot:
        """Return the snapshot at ``now``; ``lag`` is the backlog on the broker by task."""
        self.forget(now - GONE_S)
        alive = {n: s for n, s in self._nodes.items() if now - s[-1].sent_s <= SILENT_AFTER_S}
        rates = _rates(alive.values())
        crew = [series for series in alive.values() if series[-1].role == "worker"]
        answered_qps = rates.get(("egress", "answered"), 0.0)
        kinds = Counter(series[-1].device for series in crew)
        usd_per_h = cost_of(self.prices, kinds) if self.prices else None
        found = Snapshot(
            pipeline=self.pipeline,
            arrived_qps=rates.get(("ingress", "arrived"), 0.0),
            refused_qps=rates.get(("egress", "refused"), 0.0),
            answered_qps=answered_qps,
            late_qps=rates.get(("egress", "late"), 0.0),
            dropped_qps=rates.get(("egress", "dropped"), 0.0),
            failed_qps=rates.get(("egress", "failed"), 0.0),
            reasons=_reasons(rates),
            p50_ms=_latency_ms(rates, 0.5),
            p95_ms=_latency_ms(rates, 0.95),
            p99_ms=_latency_ms(rates, 0.99),
            workers=len(crew),
            busy=_busy(crew) if crew else None,
            usd_per_h=usd_per_h,
            usd_per_1000_answers=per_thousand(usd_per_h, answered_qps),
            variants=tuple(self._rows(alive, rates, lag)),
            devices=tuple(_devices(crew)),
            nodes=tuple(_node(series[-1], now) for _, series in sorted(alive.items())),
            classes=_classes(rates),
            other_file=tuple(n for n, s in sorted(alive.items()) if self._differs(s[-1])),
        )
        return _with_labels(_with_plan(found, self.plan), self.measured)

    def _differs(self, report: Report) -> bool:
        """Return whether a node runs another file; those of old releases do not say."""
        return "" not in (self.file, report.file) and report.file != self.file

    def _rows(
        self,
        alive: Mapping[str, Series],
        rates: Mapping[RateKey, float],
        lag: Mapping[str, int] | None,
    ) -> Iterable[VariantRow]:
        leases = self.plan.leases if self.plan else ()
        planned = ((lease.task, lease.variant) for lease in leases)
        for task, variant in dict.fromkeys((*self.variants, *planned)):
            mine = [x for x in leases if (x.task, x.variant) == (task, variant)]
            rate = _of_variant(rates, variant_key(task, variant))
            if mine or any(rate.values()):
                waiting = None if lag is None else lag.get(task, 0)
                yield _row((task, variant), mine, alive, rate, waiting)


def _add(series: Series, report: Report) -> None:
    """Add a report to those of the window; begin anew with a new incarnation, or a clock that was
    set back."""
    if series:
        last = series[-1]
        if report.incarnation != last.incarnation or report.sent_s < last.sent_s:
            series.clear()
    series.append(report)
    while report.sent_s - series[0].sent_s > WINDOW_S:
        series.popleft()


def _with_plan(found: Snapshot, plan: Plan | None) -> Snapshot:
    if plan is None:
        return found
    return replace(
        found,
        epoch=plan.epoch,
        policy=plan.settings.policy,
        slo_ms=plan.settings.slo_s * 1e3,
        paused=plan.settings.paused,
        feasible=plan.feasible,
        binding=plan.binding,
        demand_qps=plan.demand_qps,
        capacity_qps=plan.capacity_qps,
        expected_accuracy=plan.expected_accuracy,
    )


def _with_labels(found: Snapshot, measured: MeasuredAccuracy | None) -> Snapshot:
    if measured is None:
        return found
    return replace(
        found,
        measured=label_accuracy(of_rows(measured.rows)),
        labels=dict(measured.counts),
        label_trouble=measured.trouble,
        shadows=shadow_figures(measured.shadows),
        drifted=drifted_paths(measured.recent),
    )


def board_of(pipeline: Pipeline, prices: Mapping[str, float] | None = None) -> Board:
    """Return a board that shows variants in the order of the pipeline file.

    ``prices`` are $ per hour by device type.
    """
    shown = tuple((task.name, v.name) for task in pipeline.tasks for v in task.variants)
    return Board(pipeline.name, shown, prices=prices or {}, file=fingerprint(pipeline))


def _row(
    of: tuple[str, str],
    leases: Iterable[Lease],
    alive: Mapping[str, Series],
    rate: Mapping[str, float],
    lag: int | None,
) -> VariantRow:
    held = list(leases)
    last = [alive[lease.worker][-1] for lease in held if lease.worker in alive]
    return VariantRow(
        task=of[0],
        variant=of[1],
        workers=len(last),
        slots=sum(lease.open_slot >= 0 for lease in held),
        lag=lag,
        queued=sum(slot.queued for report in last for slot in report.slots),
        arrived_qps=rate["arrived"],
        finished_qps=rate["finished"],
        dropped_qps=rate["dropped"],
        failed_qps=rate["failed"],
        batch=rate["finished"] / rate["batches"] if rate["batches"] else None,
        busy=rate["busy_s"] / len(last) if last else None,
    )


def _rates(every: Iterable[Series]) -> dict[RateKey, float]:
    """Return the growth per second of every count, summed over the nodes of a role."""
    found: dict[RateKey, float] = {}
    for series in every:
        first, last = series[0], series[-1]
        seconds = last.sent_s - first.sent_s
        if seconds <= 0:
            continue
        for name, value in last.counts.items():
            key = (last.role, name)
            grown = (value - first.counts.get(name, 0.0)) / seconds
            found[key] = found.get(key, 0.0) + grown
    return found


def _of_variant(rates: Mapping[RateKey, float], key: str) -> dict[str, float]:
    names = ("arrived", "finished", "dropped", "failed", "batches", "busy_s")
    return {name: rates.get(("worker", f"{name}/{key}"), 0.0) for name in names}


def _reasons(rates: Mapping[RateKey, float]) -> dict[str, float]:
    """Return the rates of the reasons that occur, the most frequent first."""
    counted = [
        (name, rate) for name, rate in _of_egress(rates).items() if rate and _has_reason(name)
    ]
    return dict(sorted(counted, key=lambda pair: (-pair[1], pair[0])))


def _classes(rates: Mapping[RateKey, float]) -> dict[str, dict[str, float]]:
    """Return the rates of outcomes by SLO class."""
    found: dict[str, dict[str, float]] = {}
    for name, rate in sorted(_of_egress(rates).items()):
        counted = count_name(name)
        if counted.what == "class":
            slo_class, outcome = counted.labels
            found.setdefault(slo_class, {})[outcome] = rate
    return found


def _has_reason(name: str) -> bool:
    what, reason = count_name(name)
    return what in (DROPPED, FAILED, REFUSED) and reason != ""


def _of_egress(rates: Mapping[RateKey, float]) -> dict[str, float]:
    return {name: rate for (role, name), rate in rates.items() if role == "egress"}


def _latency_ms(rates: Mapping[RateKey, float], quantile: float) -> float | None:
    seconds = quantile_s(_of_egress(rates), quantile)
    return None if seconds is None else 1e3 * seconds


def _busy(crew: list[Series]) -> float:
    rates = _rates(crew)
    computing = sum(v for (_, name), v in rates.items() if count_name(name).what == "busy_s")
    return computing / len(crew)


def _devices(crew: Iterable[Series]) -> Iterable[DeviceRow]:
    found: dict[str, list[Series]] = {}
    for series in crew:
        found.setdefault(series[-1].device, []).append(series)
    for device, here in sorted(found.items()):
        last = [series[-1] for series in here]
        yield DeviceRow(
            device=device,
            workers=len(here),
            ready=sum(report.state == NodeState.READY for report in last),
            serves=tuple(sorted({_serves(report) for report in last} - {""})),
            busy=_busy(here),
        )


def _serves(report: Report) -> str:
    """Return the variant of a worker that has a task; one without keeps its last variant loaded."""
    return variant_key(report.task, report.variant) if report.task and report.variant else ""


def _node(report: Report, now: float) -> NodeRow:
    return NodeRow(
        name=report.node,
        role=report.role,
        state=report.state,
        device=report.device,
        serves=_serves(report),
        epoch=report.epoch,
        age_s=round(now - report.sent_s, 3),
        error=report.error,
    )
