"""Membership: the live workers by their reports, and which are new, lost or drained.

The age of a report is computed without synchronised clocks. A report's lag is the controller's
clock at arrival less the sender's clock at sending: the transport time plus the clock offset. The
smallest recent lag of a node is that of its fastest report; a report's age is its lag beyond that.
After a silence the lag from before applies, because a network that recovers first delivers delayed
reports.

Estimates and the membership get each report with its times by the controller's clock
(``ReportAges.dated``). A node's incarnation is the start of its process, and a later one replaces
an earlier one at once. An earlier one is a delayed report of the replaced process, unless the later
process has been silent for ``DEAD_AFTER_S``: then it is a new process on a host whose clock was set
back. By the controller's clock each new process starts after the one that it replaces.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, nextafter

from msgspec.structs import replace

from control.controller.departures import GONE_S
from control.problem.plan_reasons import PlanReason, about_worker
from control.rollout.placement import Member
from schemas.effects import Heartbeat
from schemas.enumerations import NodeState, PlanCause
from schemas.records import Lease, Plan, Report
from schemas.variant_id import variant_key

REPORT_AGE_S = 2.0  # an older report is out of date
DEAD_AFTER_S = 0.8  # reports come every 0.2 s: three missed, plus jitter
LOADING_S = 5.0  # importing a library can block a process for seconds before it serves
GRACE_S = 2.0  # for the workers of a plan that outlived its control app
# A draining worker with empty queues for this long (two reports) is drained. Other workers of the
# task read its slots from its committed offsets, and so get items that arrive later.
QUIET_S = 0.3
STALL_S = 0.5  # a controller without any report for this long cannot judge which workers are alive
RETURN_S = 3.0  # clients reconnect one by one within this time after a broker outage


@dataclass(slots=True)
class _KnownWorker:
    device: str = ""
    loaded: str = ""
    serves: str = ""
    loading: bool = False  # leased, not serving yet
    incarnation: float = float("-inf")
    known_s: float = 0.0  # last time known to be alive
    closed_in: int | None = None  # the epoch of the plan that drains it
    quiet_s: float | None = None  # time since when nothing is queued
    unreported: bool = False  # known from a plan only
    leaving: bool = False  # its process ends after draining


class Membership:
    """The live workers.

    A worker's silence counts only while reports arrive from other nodes. After a stall of the
    controller or of the broker, a worker has ``DEAD_AFTER_S``, or the length of the silence if that
    is longer, up to ``RETURN_S``, to report again. While no node of any role reports, the
    controller is isolated and no worker counts as lost: a plan without workers would serve no
    query.
    """

    __slots__ = ("_awake_s", "_patience_s", "_reported_s", "_resumed_s", "_workers")

    def __init__(self) -> None:
        self._workers: dict[str, _KnownWorker] = {}
        self._awake_s = float("-inf")  # last event
        self._reported_s = float("-inf")  # last report of a node
        self._resumed_s = float("-inf")  # start of the current run of reports without a gap
        self._patience_s = DEAD_AFTER_S  # for workers without a report since then

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def devices(self) -> Mapping[str, str]:
        """Each live worker's device ("" if it has not reported yet)."""
        return {name: self._workers[name].device for name in sorted(self._workers)}

    @property
    def unreported(self) -> bool:
        """Whether a worker of the plan in force has not reported yet."""
        return any(worker.unreported for worker in self._workers.values())

    @property
    def loading(self) -> bool:
        """Whether a worker with a lease does not serve yet."""
        return any([worker.loading for worker in self._workers.values()])

    def by_device(self) -> tuple[Counter[str], Counter[str]]:
        """Return the numbers of serving and of leaving workers, by device."""
        workers = self._workers.values()
        serving = Counter(w.device for w in workers if w.serves and not w.leaving)
        return serving, Counter(w.device for w in workers if w.leaving)

    def wake(self, now: float) -> None:
        """Record an event at ``now``, including timers."""
        if now - self._awake_s > STALL_S:
            self._reported_s = self._resumed_s = now
            self._patience_s = DEAD_AFTER_S
        if now > self._awake_s:
            self._awake_s = now

    def listen(self, now: float) -> None:
        """Record a report of a node of any role."""
        silence_s = now - self._reported_s
        if silence_s > STALL_S:
            self._resumed_s = now
            self._patience_s = max(DEAD_AFTER_S, min(silence_s, RETURN_S))
        self._reported_s = max(self._reported_s, now)

    def expect(self, leases: Iterable[Lease], now: float) -> None:
        """Count the workers of a plan as alive for ``GRACE_S``."""
        until = now + GRACE_S - DEAD_AFTER_S
        for lease in leases:
            worker = _KnownWorker(known_s=until, unreported=True, serves=lease.task)
            self._workers.setdefault(lease.worker, worker)

    def observe(self, report: Report, now: float) -> PlanReason | None:
        """Record a worker's report; return a reason for a plan if the worker's state changed."""
        worker = self._workers.get(report.node)
        if worker is not None and report.incarnation < worker.incarnation:
            return None  # from a replaced process
        news = PlanCause.WORKER_NEW if worker is None else None
        worker = self._workers.setdefault(report.node, _KnownWorker())
        if not (news or worker.unreported) and report.incarnation > worker.incarnation:
            news = PlanCause.WORKER_RESTARTED
        worker.device, worker.incarnation = report.device, report.incarnation
        worker.known_s, worker.unreported = now, False
        worker.loading = worker.loading and report.state != NodeState.READY
        if report.state == NodeState.LEAVING and not worker.leaving:
            news = news or PlanCause.WORKER_LEAVING
        worker.leaving = report.state == NodeState.LEAVING
        worker.loaded = variant_key(report.task, report.variant) if report.variant else ""
        self._note_quiet(worker, report, now)
        service = self._note_service(worker, report)
        return about_worker(report.node, news) if news else service

    def beat(self, beat: Heartbeat, now: float) -> None:
        """Record that a worker is alive; ignore an unknown worker until its first report."""
        worker = self._workers.get(beat.worker)
        if worker is not None and beat.incarnation == worker.incarnation:
            worker.known_s = now

    def _note_service(self, worker: _KnownWorker, report: Report) -> PlanReason | None:
        # A worker that loads another variant of its task still serves with the old one.
        before = worker.serves
        if report.state == NodeState.LEAVING:
            return None  # it still serves while it drains
        if report.state == NodeState.READY:
            worker.serves = report.task
        elif report.task != before or not report.variant:
            worker.serves = ""
        if worker.serves == before:
            return None
        if worker.serves:
            return about_worker(report.node, PlanCause.WORKER_SERVES, worker.serves)
        return about_worker(report.node, PlanCause.WORKER_UNLOADED, before)

    def _note_quiet(self, worker: _KnownWorker, report: Report, now: float) -> None:
        drained = (
            worker.closed_in is not None
            and report.epoch >= worker.closed_in
            and report.state in (NodeState.DRAINING, NodeState.LEAVING)
            and all(slot.queued == 0 for slot in report.slots)
        )
        if not drained:
            worker.quiet_s = None
        elif worker.quiet_s is None:
            worker.quiet_s = now

    def isolated(self, now: float) -> bool:
        """Return whether no node of any role has reported for ``STALL_S``."""
        return now - self._reported_s > STALL_S

    def expire(self, now: float) -> tuple[str, ...]:
        """Remove and return the workers that have been silent for too long."""
        if self.isolated(now):
            return ()
        lost = sorted(
            name
            for name, worker in self._workers.items()
            if now > self._lost_s(worker) and not self._may_load(worker, now)
        )
        for name in lost:
            del self._workers[name]
        return tuple(lost)

    def next_loss_s(self, now: float) -> float:
        """Return the earliest time after ``now`` at which a worker may count as lost unless it
        reports."""
        ends = map(self._lost_s, self._workers.values())
        return min((at_s for at_s in ends if at_s > now), default=float("inf"))

    def _lost_s(self, worker: _KnownWorker) -> float:
        """Return when a worker's silence has lasted too long."""
        silent_s = worker.known_s + DEAD_AFTER_S
        if worker.known_s >= self._resumed_s:
            return silent_s
        return max(silent_s, self._resumed_s + self._patience_s)

    def _may_load(self, worker: _KnownWorker, now: float) -> bool:
        """Return whether a silent worker may be blocked by an import."""
        return worker.loading and now - max(worker.known_s, self._resumed_s) <= LOADING_S

    def follow(self, plan: Plan, before: Mapping[str, Lease]) -> None:
        """Apply a published plan: a worker that drains under a changed lease is no longer quiet."""
        leases = {lease.worker: lease for lease in plan.leases}
        for name, worker in self._workers.items():
            lease = leases.get(name)
            worker.loading = lease is not None and worker.serves != lease.task
            if lease is None or lease.open_slot >= 0:
                worker.closed_in = worker.quiet_s = None
            elif worker.closed_in is None or before.get(name) != lease:
                worker.closed_in, worker.quiet_s = plan.epoch, None

    def quiet(self, now: float) -> tuple[str, ...]:
        """Return the draining workers with empty queues."""
        return tuple(
            sorted(
                name
                for name, worker in self._workers.items()
                if worker.quiet_s is not None and now - worker.quiet_s >= QUIET_S
            )
        )

    def members(self, drained: Iterable[str], now: float) -> tuple[Member, ...]:
        """Return the live workers by name; ``drained`` names workers and devices to exclude."""
        out = set(drained)
        quiet = set(self.quiet(now))
        return tuple(
            Member(
                name=name,
                device=worker.device,
                loaded=worker.loaded,
                serves=worker.serves,
                usable=not (worker.leaving or name in out or worker.device in out),
                quiet=name in quiet,
            )
            for name, worker in sorted(self._workers.items())
        )


WINDOW_S = 30.0  # "recent" is one to two windows: clocks converge slowly
DRIFT = 0.02  # seconds per second, between two clocks, each slewed by at most 1 %


@dataclass(slots=True)
class _Lags:
    incarnation: float  # by the node's clock
    began_s: float  # the same by the controller's clock
    heard_s: float  # last report that was not out of date
    until_s: float
    least_s: float
    before_s: float = float("inf")  # the least of the previous window


class ReportAges:
    """The current process of every node that has reported within ``GONE_S``, and its smallest
    lag."""

    __slots__ = ("_lags",)

    def __init__(self) -> None:
        self._lags: dict[tuple[str, str], _Lags] = {}  # the oldest window first

    def dated(self, report: Report, now: float) -> Report | None:
        """Return a report with its times by the controller's clock; None if it is out of date."""
        age_s = self.age_s(report, now)
        if age_s > REPORT_AGE_S:
            return None
        began_s = self._lags[report.pipeline, report.node].began_s
        return replace(report, incarnation=began_s, sent_s=now - age_s)

    def dated_beat(self, beat: Heartbeat, now: float) -> Heartbeat | None:
        """Return the same of a heartbeat, a report without news."""
        age_s = self.beat_age_s(beat, now)
        if age_s > REPORT_AGE_S:
            return None
        began_s = self._lags[beat.pipeline, beat.worker].began_s
        return Heartbeat(beat.pipeline, beat.worker, began_s, now - age_s)

    def age_s(self, report: Report, now: float) -> float:
        """Return a report's age in seconds relative to its sender's fastest; 0 for the first, and
        infinity for a replaced process."""
        return self._age_s((report.pipeline, report.node), report.incarnation, report.sent_s, now)

    def beat_age_s(self, beat: Heartbeat, now: float) -> float:
        """Return the age of a heartbeat."""
        return self._age_s((beat.pipeline, beat.worker), beat.incarnation, beat.sent_s, now)

    def _age_s(self, name: tuple[str, str], incarnation: float, sent_s: float, now: float) -> float:
        lag_s = now - sent_s
        lags = self._lags.get(name)
        if lags is None or incarnation != lags.incarnation:
            began_s = incarnation + lag_s
            if lags is not None:
                if incarnation < lags.incarnation and now - lags.heard_s <= DEAD_AFTER_S:
                    return inf
                began_s = max(began_s, nextafter(lags.began_s, inf))
            self._newest(name, _Lags(incarnation, began_s, now, now + WINDOW_S, lag_s), now)
            return 0.0
        if now >= lags.until_s:
            lags.before_s = lags.least_s
            if now >= lags.until_s + WINDOW_S:  # the first report after a silence may be old
                lags.before_s += DRIFT * (now - lags.until_s + WINDOW_S)
            lags.until_s, lags.least_s = now + WINDOW_S, lag_s
            self._newest(name, lags, now)
        lags.least_s = min(lags.least_s, lag_s)
        age_s = lag_s - min(lags.least_s, lags.before_s)
        if age_s <= REPORT_AGE_S:
            lags.heard_s = now
        return age_s

    def _newest(self, name: tuple[str, str], lags: _Lags, now: float) -> None:
        """Keep the lags of a new window; forget nodes that are gone."""
        self._lags.pop(name, None)
        self._lags[name] = lags
        while now - (oldest := next(iter(self._lags.items())))[1].until_s > GONE_S:
            del self._lags[oldest[0]]
