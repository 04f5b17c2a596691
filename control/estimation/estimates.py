"""Estimates for plans and routes, from reports: demand, fan-out and the devices' slowdown."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from control.estimation.class_mix import ClassMix
from control.estimation.demand import Demand
from control.estimation.ended_queries import EndedQueries
from control.estimation.estimators import (
    ESTIMATORS,
    Horizon,
    fell,
    jumped,
    outgrew,
    rose,
    surge,
)
from control.estimation.measured_paths import corrected, moved
from control.estimation.multiplicative_factors import Edge, Factors
from control.estimation.report_deltas import ReportDeltas
from control.estimation.seen_capacity import SeenCapacity
from control.estimation.size_profile import PlannedBy, ProfileBySize, SeenSizes, growth
from control.estimation.slow_workers import SlowWorkers
from control.estimation.slowdown import Slowdown, drifted_kind, ran_since
from control.estimation.task_demand import TaskDemand
from control.estimation.time_to_egress import TimeToEgress
from control.policies import spec_of
from control.problem.forecast import ExpectedTraffic
from control.problem.lazy_references import rule_named
from control.problem.plan_reasons import PlanReason, measured_anew
from control.problem.problem import Problem, is_exhausted
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.effects import Counted
from schemas.enumerations import PlanCause
from schemas.pipeline import Pipeline, Policy
from schemas.records import Factor, Plan, Report, Settings

SHORT = 1.01  # ratio of reserves; more than planned, for observed slow workers


class LastSolve(NamedTuple):
    """The problem of the last solve and the present state: the reserve that a solve would use now
    (``Problem.reserve``), the capacity of the plan in force in queries per second, and whether the
    plan serves as much as possible, and less than its demand."""

    problem: Problem
    reserve: float = 1.0
    capacity_qps: float = inf
    exhausted: bool = False


class Estimates:
    """The estimates of one pipeline, updated by its nodes' reports."""

    __slots__ = (
        "_at_tasks", "_by_measured", "_capacity", "_classes", "_demand", "_ended", "_factors",
        "_from_egress", "_from_workers", "_load_s", "_measured", "_pace", "_pipeline",
        "_planned_by", "_planned_for", "_profile", "_recalled_qps", "_sizes", "_slow_workers",
        "_slowdown", "_stretches", "_to_egress", "awaits_sizes", "measured", "profile",
    )  # fmt: skip

    def __init__(self, pipeline: Pipeline, planned_by: PlannedBy) -> None:
        self._pipeline = pipeline
        self._sizes = SeenSizes(planned_by) if isinstance(planned_by, ProfileBySize) else None
        profile = planned_by if self._sizes is None else self._sizes.profile
        assert not isinstance(profile, ProfileBySize)
        self.awaits_sizes = self._sizes is not None  # until an ingress has reported its counts
        self._profile = self._planned_for = profile  # for the sizes seen, and for those planned for
        # A plan may need any variant, including the one with the longest load time.
        self._load_s = max((e.load_s for e in profile.entries), default=0.0) if profile else 0.0
        self.measured = profile  # with measured accuracies, updated by ``keep_pace``
        self.profile = profile  # with slowdowns as well
        self._from_workers, self._from_egress = ReportDeltas("worker"), ReportDeltas("egress")
        self._slowdown, self._slow_workers = Slowdown(), SlowWorkers()
        self._stretches: dict[str, float] = {}
        self._pace = 1.0  # slowdown in ``profile``, over all kinds together
        labels = pipeline.labels
        self._by_measured = labels is not None and labels.plan_by == "measured"
        self._measured: Mapping[str, float] = {}  # accuracies by path
        self._planned_by: Mapping[str, float] = {}  # the accuracies in ``profile``
        # The demand of an earlier control app's plan, until it is measured (0).
        self._recalled_qps, self._demand, self._at_tasks = 0.0, Demand(), TaskDemand()
        classes = ("", *pipeline.slo_classes) if pipeline.slo_classes else ()
        self._ended, self._capacity = EndedQueries(classes), SeenCapacity()
        self._to_egress = TimeToEgress(pipeline.task_names)
        self._classes = ClassMix(pipeline)
        self._factors = Factors(
            tuple(
                (v.key, child) for t in pipeline.tasks for v in t.variants for child in t.children
            )
        )

    def observe(self, report: Report) -> None:
        """Update the estimates with a report of any role."""
        self._demand.observe(report)
        self._measures(report.sent_s)
        self._at_tasks.observe(report)
        if report.role == "worker":
            self._worker(report)
        elif report.role == "egress":
            self._egress(report)
        elif report.role == "ingress":
            self.awaits_sizes = False
            if self._sizes is not None and self._sizes.observe(report):
                self._resize(self._sizes.profile)
        elif report.role == "scorer" and self._by_measured:
            self._measured = report.measured

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        known = (
            self._demand, self._at_tasks, self._ended, self._from_workers, self._from_egress,
            self._slow_workers,
        )  # fmt: skip
        for each in known:
            each.forget(node)
        if self._sizes is not None:
            self._sizes.forget(node)

    def _worker(self, report: Report) -> None:
        self._ended.loads(report)
        news = self._from_workers.take(report)
        if news is not None:
            self._factors = self._factors.observe(news)
            ran = ran_since(news, self._profile)
            self._slow_workers.observe(report, ran)
            if not self._slow_workers.slow(report.node):  # not representative of its kind
                self._slowdown = self._slowdown.observe(report, ran)

    def _egress(self, report: Report) -> None:
        news = self._from_egress.take(report)
        if news is None:
            return
        window = self._ended.take(news)
        if window is not None:
            self._capacity.judge(window)
        self._to_egress.observe(news)
        self._classes.observe(news)

    def _resize(self, profile: ProfileTable) -> None:
        """Switch to the profile for the current sizes."""
        before, self._profile = self._profile, profile
        assert before is not None
        self._slowdown = self._slowdown.replanned(lambda kind: growth(before, profile, kind))

    def count(self, event: Counted) -> None:
        """Update the demand with a count of the input topic."""
        self._demand.count(event)
        self._measures(event.at_s)

    def recall(self, plan: Plan) -> None:
        """Resume from the factors and the demand that an earlier control app put into its plan.

        That demand counts until a whole second has been observed: a rate over a fraction of a
        second is 0 or far off.
        """
        self._factors = self._factors.recall(plan.factors)
        self._recalled_qps = plan.demand_qps if plan.settings.demand_qps is None else 0.0

    def _measures(self, at_s: float) -> None:
        """Forget the recalled demand once a whole second has been observed."""
        if self._recalled_qps and self._demand.by_second(at_s):
            self._recalled_qps = 0.0

    def _recalled(self, now: float) -> float:
        """Return the recalled demand, or the rate since a jump above it; 0 if none is recalled."""
        recalled = self._recalled_qps
        return max(recalled, surge(self._demand, now, recalled)) if recalled else 0.0

    def keep_pace(self, policy: Policy) -> ProfileTable | None:
        """Refresh ``profile`` with observed sizes and measured accuracies, and with observed
        slowdowns if the policy is paced; return it."""
        seen = self._slowdown.stretches() if _goes_by_pace(policy) else {}
        slower = drifted_kind(self._stretches, seen) is not None
        resized = self._profile is not self._planned_for
        anew = slower or resized or moved(self._planned_by, self._measured)
        if self._profile is None or not anew:
            return self.profile
        self._planned_for = self._profile
        if slower:
            self._stretches, self._pace = seen, self._slowdown.overall() if seen else 1.0
        self._planned_by = self._measured
        self.measured = corrected(self._profile, self._pipeline, self._measured)
        self.profile = self.measured.stretched(self._stretches)
        return self.profile

    def capacity_share(self, policy: Policy) -> float:
        """Return the share of a plan's capacity that queries' outcomes and the slowdown of devices
        show to exist, 0..1. Plans of a paced policy already include the slowdown."""
        return min(1.0, self._capacity.share * self._allowed(policy))

    def _allowed(self, policy: Policy) -> float:
        """Return the ratio of the capacity at the profile's speed to that of the plan if the plan
        includes the slowdown; else the ratio of the capacity at the devices' speed to it."""
        return self._pace if _goes_by_pace(policy) else 1 / self._slowdown.overall()

    def to_egress_s(self) -> dict[str, float]:
        """Return by task the seconds that most items take from the start of a batch to egress."""
        return self._to_egress.seconds()

    def serves(self, plan: Plan, policy: Policy) -> None:
        """Record the plan in force."""
        if plan.capacity_qps:
            whole_qps = plan.capacity_qps / self.capacity_share(policy)
            planned_qps = whole_qps * self._allowed(policy)
            final = is_exhausted(plan) or not spec_of(policy.kind).follows_demand
            self._capacity.serves(planned_qps, plan.capacity_qps, final=final)

    def classes(self) -> dict[str, float]:
        """Return the SLOs of the SLO classes to plan for, in seconds."""
        return self._classes.counting()

    def lose(self, workers: Iterable[str]) -> None:
        """Stop to compare other workers with these, which are lost or have ended."""
        self._slow_workers.lose(workers)

    def paces(self) -> dict[str, float]:
        """Return the pace of each slow worker: its time over that of others of its kind."""
        return self._slow_workers.paces()

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Observed fan-out factors, for a plan to carry."""
        return self._factors.factors()

    @property
    def multiplicity(self) -> dict[Edge, float]:
        """Fan-out factors with enough observations."""
        return self._factors.multiplicity()

    def arriving_qps(self, now: float) -> float:
        """Return the current arrival rate in queries per second, without any forecast: that since a
        jump, which the mean rate follows late; the recalled demand until it has been measured."""
        if recalled := self._recalled(now):
            return recalled
        rate_qps = self._demand.rate_qps(now)
        return max(rate_qps, surge(self._demand, now, rate_qps))

    def planned(self, policy: Policy) -> Pipeline:
        """Return the pipeline as the policy plans it.

        Untied branches are planned as tied ones, with each branch's observed share of the items.
        A query's content decides its branch, so a plan that chose the shares could leave a branch
        without enough capacity. ``loki-paper`` chooses them, as the authors' code does.
        """
        pipeline = self._pipeline
        if pipeline.branches != "untied" or not spec_of(policy.kind).branches_as_seen:
            return pipeline
        free = tuple(replace(task, share=(0.0, 1.0)) for task in pipeline.tasks)
        return replace(pipeline, branches="tied", tasks=free)

    def arriving(self, now: float) -> dict[str, float]:
        """Return the items per second that arrive at each task."""
        return self._at_tasks.arriving(now)

    def queued(self, now: float) -> dict[str, float]:
        """Return the items that wait at each task; the root's include those on the input topic."""
        found, root = self._at_tasks.queued(now), self._pipeline.root.name
        return {**found, root: found.get(root, 0.0) + self._demand.waiting(now)}

    def demand_qps(self, policy: Policy, settings: Settings, now: float) -> float:
        """Return the demand to plan for: a command's, else the policy's estimate with headroom."""
        if settings.demand_qps is not None:
            return settings.demand_qps
        if recalled := self._recalled(now):
            return recalled
        horizon = Horizon(
            interval_s=policy.interval_s,
            slo_s=settings.slo_s,
            queue_share=1 - self._pipeline.compute_share,
            load_s=self._load_s,
        )
        return policy.headroom * rule_named(ESTIMATORS, policy.estimator)(
            self._demand, now, horizon
        )

    def expected(self, settings: Settings, now: float) -> ExpectedTraffic:
        """Return the traffic to route: current arrivals, not the demand planned for."""
        given = settings.demand_qps
        arriving = self.arriving_qps(now) if given is None else given
        return ExpectedTraffic(arriving, self.multiplicity)

    def unlike(self, last: LastSolve, settings: Settings, now: float) -> PlanReason | None:
        """Return the reason to replan before the interval elapses, or None.

        A demand set by a command cannot jump.
        """
        problem = last.problem
        path = moved(self._planned_by, self._measured)
        return (
            self._other_demand(last, settings, now)
            or _slower_workers(last)
            or self._resized(problem)
            or self._other_pace(problem)
            or (None if path is None else measured_anew(path, self._measured.get(path)))
            or self._strayed(problem)
        )

    def _other_demand(self, last: LastSolve, settings: Settings, now: float) -> PlanReason | None:
        """Return the reason for a demand other than planned for, if there is one."""
        if settings.demand_qps is not None:
            return None
        planned_qps = last.problem.demand_qps / last.problem.reserve
        expected = self.demand_qps(last.problem.policy, settings, now)
        planned = f"(planned for {planned_qps:.4g})"
        if last.exhausted and expected >= planned_qps:
            return None
        more = expected > planned_qps and jumped(self._demand, now, planned_qps)
        if more or rose(expected, planned_qps):
            text = f"demand jumped to {expected:.4g} queries/s {planned}"
            return PlanReason(PlanCause.DEMAND_JUMPED, text)
        if fell(expected, planned_qps):
            text = f"demand fell to {expected:.4g} queries/s {planned}"
            return PlanReason(PlanCause.DEMAND_FELL, text)
        if outgrew(expected, planned_qps, last.capacity_qps):
            text = f"demand rose above the plan's capacity, to {expected:.4g} queries/s {planned}"
            return PlanReason(PlanCause.INTERVAL, text)
        return None

    def _other_pace(self, problem: Problem) -> PlanReason | None:
        """Return the reason for devices that are slower than planned with, or no longer are."""
        if not _goes_by_pace(problem.policy):
            return None
        slow = drifted_kind(self._stretches, self._slowdown.stretches())
        if slow is None:
            return None
        text = f"batches on {slow[0]} take {slow[1]:.2g} times as long as profiled"
        return PlanReason(PlanCause.SLOWDOWN, text)

    def _resized(self, problem: Problem) -> PlanReason | None:
        """Return the reason for queries of other sizes than planned for, if they differ much."""
        before, now = self._planned_for, self._profile
        if before is None or now is None or before is now:
            return None
        grown = {kind: growth(before, now, kind) for kind in set(problem.devices)}
        found = drifted_kind({}, grown)
        if found is None:
            return None
        text = f"query sizes changed: on {found[0]} they take {found[1]:.2g} times as long"
        return PlanReason(PlanCause.SLOWDOWN, text)

    def _strayed(self, problem: Problem) -> PlanReason | None:
        """Return the reason for a fan-out other than planned for, if there is one."""
        strayed = self._factors.drifted(self._planned(problem.multiplicity))
        if not strayed:
            return None
        variant, child = strayed[0]
        seen = self.multiplicity[variant, child]
        text = f"{variant} makes {seen:.3g} items for {child} each, unlike the plan"
        return PlanReason(PlanCause.FANOUT, text)

    def _planned(self, observed: Mapping[Edge, float]) -> dict[Edge, float]:
        """Return every edge's factor as a plan used it: observed, else profiled."""
        planned = dict(observed)
        for task in self._pipeline.tasks:
            for variant in task.variants:
                for child in task.children:
                    try:
                        if self._profile is not None:
                            mean = self._profile.children_mean(task.name, variant.name, child)
                            planned.setdefault((variant.key, child), mean)
                    except ProfileError:
                        continue
        return planned


def _slower_workers(last: LastSolve) -> PlanReason | None:
    """Return the reason for workers that have become slow since the last solve."""
    if last.reserve <= SHORT * last.problem.reserve:
        return None
    text = f"slow workers reduce the capacity to {100 / last.reserve:.0f} %"
    return PlanReason(PlanCause.SLOWDOWN, text)


def _goes_by_pace(policy: Policy) -> bool:
    # Workers that choose models apply their own slowdown (control/per_query/local_pace.py).
    return policy.paced and not spec_of(policy.kind).choose
