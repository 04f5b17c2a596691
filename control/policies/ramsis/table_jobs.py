"""Jobs that make the tables of the plan in force, one at a time.

A task's tables are made for a number of workers, a latency budget and the models, in this order:

1. the highest load, whose table is safe for all loads
2. halves of it, down to a load at which the best model serves nearly all queries, one by one
3. loads between neighbours whose expected accuracy differs by 1 % or more

Workers follow the tables made so far. Tables are made one at a time, so that the planner's process
can run other solves in between. Each solve starts from the values of a similar load.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isclose

from msgspec import structs

from control.policies import policy_named, selections
from control.policies.option_fields import DISPERSION, LOADS, VIOLATION
from control.policies.ramsis.table_builder import TableProblem, table_for_wire, tabled_models
from control.policies.ramsis.table_leases import (
    check_models_fit,
    models_of_kind,
    queue_workers,
    run_lengths,
    whole_budget_s,
)
from control.policies.ramsis.tables import (
    APART,
    Ask,
    Options,
    SelectionPlan,
    close_to,
    for_load,
    joined,
    next_load,
    options_for,
    setting_for,
)
from control.policies.solvers import TABLE
from control.problem.problem import PlanError, SelectionError
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.effects import PLANS, Effect, Failed, Send, Solve, Solved
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease, Plan, Selection
from schemas.variant_id import variant_key

HALVINGS = 24  # halvings of the load, at the most
SAME_BUDGET = 0.05  # relative; budgets that differ by less count as equal


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """The input of a task's tables. ``loads`` come first, in this order; ``best`` is the accuracy
    that the lightest load should reach."""

    policy: str
    task: str
    kind: str
    options: Options
    violation: float | None
    ask: Ask
    loads: tuple[float, ...]
    apart: float
    best: float  # accuracy

    def serves(self, other: "_Need") -> bool:
        """Return whether tables made for this need also serve the other."""
        if not isclose(self.ask.slo_s, other.ask.slo_s, rel_tol=SAME_BUDGET):
            return False
        # If halving finds the loads, the highest follows from the other fields.
        loads = other.loads if self.apart < inf else self.loads
        ask = replace(self.ask, slo_s=other.ask.slo_s)
        return replace(self, ask=ask, loads=loads) == other


@dataclass(slots=True)
class _Grid:
    """A task's tables under construction. Its workers follow the tables ``before`` meanwhile.

    ``missing`` is the next load to solve for; None: all are made, or none can be.
    """

    need: _Need
    before: tuple[SelectionPlan, ...] = ()
    plans: tuple[SelectionPlan, ...] = ()
    missing: float | None = None
    loads: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self.loads = self.need.loads
        self.missing = self.loads[0]

    def add(self, plan: SelectionPlan) -> bool:
        """Add a table; return whether workers should follow the tables made so far."""
        self.plans = joined(self.plans, plan)
        lightest, need = self.plans[0], self.need
        # A load at which runs are still best needs lighter loads too.
        in_runs = lightest.table.run > 1 and need.apart < inf
        heavy = in_runs or lightest.expected_accuracy <= need.best - need.apart
        coarse = len(self.plans) == len(self.loads)
        if coarse and heavy and len(self.loads) <= HALVINGS:
            self.loads = (*self.loads, lightest.table.qps / 2)
            coarse = False
        self.missing = next_load(self.plans, self.loads, need.apart)
        return self.missing is None or (not self.before and (coarse or len(self.plans) == 1))

    def problem(self, qps: float) -> TableProblem:
        """Return the problem of the next table."""
        return TableProblem(
            kind=self.need.kind,
            ask=replace(self.need.ask, qps=qps),
            options=self.need.options,
            violation=self.need.violation,
            start=close_to(self.plans or self.before, qps),
        )


class TableJobs:
    """The part of the controller that requests tables, one at a time.

    Its jobs have numbers below 0, to differ from those of plans.
    """

    def __init__(
        self, pipeline: Pipeline, profile: ProfileTable | None, memory: Mapping[str, int]
    ) -> None:
        self._pipeline = pipeline
        self._profile = profile
        self._memory = memory
        self._grids: dict[str, _Grid] = {}  # by task
        self._job = 0
        self._asked: _Grid | None = None  # whose table is in flight
        self._errors: dict[
            tuple[str, str], str
        ] = {}  # why a task has no tables, by policy and task

    def follow(
        self, plan: Plan, devices: Mapping[str, str], profile: ProfileTable | None, now: float
    ) -> list[Effect]:
        """Determine the tables that a plan in force needs. ``devices`` are those of its workers;
        ``profile`` has the accuracies."""
        self._profile = profile
        policy = policy_named(self._pipeline, plan.settings.policy)
        wanted = selections(self._pipeline, policy) if policy else {}
        self._grids = {task: grid for task, grid in self._grids.items() if task in wanted}
        effects: list[Effect] = []
        for task, kind in wanted.items():
            leases = [x for x in plan.leases if x.task == task and x.open_slot >= 0]
            if policy is None or not leases or not all(devices.get(x.worker) for x in leases):
                continue
            try:
                self._want(self._need(plan, policy, leases, kind, devices))
            except (PlanError, ProfileError) as error:
                self._grids.pop(task, None)
                effects += self._without(policy.name, task, str(error), now)
        return effects

    def sets(self, plan: Plan, devices: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return the variants ("task/variant") that each worker of a task holds under a plan.

        Tasks without tables, or whose tables cannot be made, are absent; ``devices`` are by worker.
        """
        policy = policy_named(self._pipeline, plan.settings.policy)
        found: dict[str, tuple[str, ...]] = {}
        for task, kind in (selections(self._pipeline, policy) if policy else {}).items():
            leases = [x for x in plan.leases if x.task == task and x.open_slot >= 0]
            if policy is None or not leases or not all(devices.get(x.worker) for x in leases):
                continue
            with suppress(PlanError, ProfileError):
                need = self._need(plan, policy, leases, kind, devices)
                models = setting_for(need.options, need.ask).models
                found[task] = tuple(variant_key(task, model.name) for model in models)
        return found

    def _want(self, need: _Need) -> None:
        there = self._grids.get(need.task)
        if there is None or not there.need.serves(need):
            self._grids[need.task] = _Grid(need, _of_the_same(there, need))

    def more(self) -> list[Effect]:
        """Request the next table, unless one is in flight or all are made."""
        if self._asked is not None:
            return []
        for grid in self._grids.values():
            if grid.missing is not None:
                self._asked = grid
                self._job -= 1
                return [Solve(self._job, TABLE, grid.problem(grid.missing))]
        return []

    def solved(self, event: Solved, now: float) -> list[Effect]:
        """Add a finished table; send the task's selection if workers should follow it."""
        grid = self._ended(event.job)
        if grid is None or not grid.add(event.plan):
            return []
        self._errors.pop((grid.need.policy, grid.need.task), None)
        return [_sent(self._selection(grid, now))]

    def failed(self, event: Failed, now: float) -> list[Effect]:
        """End a failed job: the task gets no tables, and its workers run without."""
        grid = self._ended(event.job)
        if grid is None:
            return []
        grid.missing = None
        return self._without(grid.need.policy, grid.need.task, event.error, now)

    def _ended(self, job: int | str) -> _Grid | None:
        """End a job; return its grid, or None if it is not ours or the plan has changed since."""
        if job != self._job or self._asked is None:
            return None
        grid, self._asked = self._asked, None
        return grid if self._grids.get(grid.need.task) is grid else None

    def _without(self, policy: str, task: str, error: str, now: float) -> list[Effect]:
        if self._errors.get((policy, task)) == error:
            return []
        self._errors[policy, task] = error
        none = Selection(
            pipeline=self._pipeline.name, task=task, policy=policy, issued_s=now, slo_s=0.0,
            workers=0, variants=(), levels_s=(), reason=error,
        )  # fmt: skip
        return [_sent(none)]

    def expecting(self, plan: Plan, demand_qps: float) -> Plan:
        """Return the plan with its tables' expected accuracy, if only tables determine it."""
        grid = self._grids.get(self._pipeline.root.name)
        alone = len(self._pipeline.tasks) == 1
        if grid is None or not alone or grid.need.policy != plan.settings.policy:
            return plan
        plans = grid.plans or grid.before
        if not plans:
            return plan
        return structs.replace(
            plan, expected_accuracy=for_load(plans, demand_qps).expected_accuracy
        )

    def _selection(self, grid: _Grid, now: float) -> Selection:
        need, plans = grid.need, grid.plans
        variants = tabled_models(plan.table for plan in plans)
        levels_s = tuple(sorted({s for plan in plans for s in plan.table.levels_s}))
        return Selection(
            pipeline=self._pipeline.name,
            task=need.task,
            policy=need.policy,
            issued_s=now,
            slo_s=need.ask.slo_s,
            workers=need.ask.workers,
            variants=variants,
            levels_s=levels_s,
            tables=tuple(table_for_wire(plan, variants, levels_s) for plan in plans),
            complete=grid.missing is None,
        )

    def _need(
        self,
        plan: Plan,
        policy: Policy,
        leases: Sequence[Lease],
        kind: str,
        devices: Mapping[str, str],
    ) -> _Need:
        if self._profile is None:
            raise SelectionError("nothing was measured; run `headrace profile`")
        task = self._pipeline.task(leases[0].task)
        there = tuple(devices[lease.worker] for lease in leases)
        ask = Ask(
            models=models_of_kind(self._profile, task, there, policy),
            slo_s=self._budget_s(plan, policy, task.name, devices),
            workers=queue_workers(self._pipeline, policy, len(leases)),
            qps=0.0,
            dispersion=DISPERSION.of(policy),
            runs=run_lengths(self._pipeline, policy),
        )
        alone, set_qps = len(self._pipeline.tasks) == 1, plan.settings.demand_qps
        given = LOADS.of(policy) if alone else ()
        if alone and set_qps is not None:
            given = (set_qps,)
        options = options_for(kind, policy)
        setting = setting_for(options, ask)
        check_models_fit(self._profile, task.name, there, self._memory, setting)
        return _Need(
            policy=policy.name,
            task=task.name,
            kind=kind,
            options=options,
            violation=VIOLATION.of(policy),
            ask=ask,
            loads=tuple(sorted(given, reverse=True)) or (setting.capacity_qps(),),
            apart=inf if given else APART,
            best=max(model.accuracy for model in setting.models),
        )

    def _budget_s(self, plan: Plan, policy: Policy, task: str, devices: Mapping[str, str]) -> float:
        """Return a task's part of the SLO under the plan, queueing included, in seconds.

        It is the task's share of the slowest path of leases through it.
        """
        pipeline, profile = self._pipeline, self._profile
        if len(pipeline.tasks) == 1:
            return whole_budget_s(pipeline, plan.tightest_slo_s)
        assert profile is not None
        slowest: dict[str, float] = {}
        for lease in plan.leases:
            if lease.open_slot >= 0 and devices.get(lease.worker):
                seconds = profile.latency_s(
                    lease.task, lease.variant, devices[lease.worker], lease.batch, policy.latency
                )
                slowest[lease.task] = max(slowest.get(lease.task, 0.0), seconds)
        own = slowest[task]
        return min(
            own * (plan.tightest_slo_s - (len(path) + 2) * pipeline.comm_s)
            / sum(slowest.get(each, 0.0) for each in path)
            for path in _paths(pipeline, pipeline.root.name)
            if task in path
        )  # fmt: skip


def _sent(selection: Selection) -> Send:
    """Return the effect, under a key of its own: compaction keeps it beside the plans."""
    key = f"{selection.pipeline}/tables/{selection.policy}/{selection.task}"
    return Send(PLANS, selection, slot=0, key=key)


def _of_the_same(grid: _Grid | None, need: _Need) -> tuple[SelectionPlan, ...]:
    """Return the plans of the same maker that workers follow until there are new ones."""
    if grid is None or (grid.need.policy, grid.need.kind) != (need.policy, need.kind):
        return ()
    return grid.plans if grid.missing is None else grid.before


def _paths(pipeline: Pipeline, task: str) -> list[tuple[str, ...]]:
    """Return the paths from a task to every leaf below it."""
    children = pipeline.task(task).children
    if not children:
        return [(task,)]
    return [(task, *path) for child in children for path in _paths(pipeline, child)]
