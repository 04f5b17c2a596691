"""The checks that a plan must pass before it is put in force, and the effect of a rejection."""

from collections.abc import Callable, Iterator, Mapping

from control.checks.allocation_check import check_allocation, check_resources
from control.checks.plan_check import LatencyBound, PlanConditions, check_plan
from control.checks.session_check import check_sessions
from control.checks.violations import Violation, sentences
from control.policies import policy_named, spec_of
from control.problem.lazy_references import rule_named
from control.problem.problem import Allocation, Problem
from control.problem.routes import ROUTINGS
from control.problem.session_space import SessionSpace
from control.rollout.next_plan import PlanningContext
from schemas.effects import Effect, Reject
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease, Plan

# A plan and the devices of its workers -> "task/variant" by task.
Sets = Callable[[Plan, Mapping[str, str]], Mapping[str, tuple[str, ...]]]


class PlanGate:
    """Checks of allocations and plans. ``memory`` is in bytes for one worker, by device; ``sets``
    returns the variants that each worker of a task with tables holds under a plan."""

    __slots__ = ("_beside", "_memory", "_pipeline", "_rejected", "_sets", "_space")

    def __init__(
        self,
        pipeline: Pipeline,
        memory: Mapping[str, int],
        sets: Sets,
        space: SessionSpace | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._memory = memory
        self._sets = sets
        self._space = space
        self._beside: dict[str, tuple[str, ...]] = {}  # by worker, variants that it may hold
        self._rejected: tuple[Violation, ...] = ()  # since the last plan in force

    def allocation(
        self, found: Allocation, kept: Allocation, problem: Problem
    ) -> tuple[Violation, ...]:
        """Return the violations of a solve's allocation, and the resources that ``kept``, the
        target's allocation, uses beyond the problem's."""
        return (*check_allocation(found, problem), *check_resources(kept, problem))

    def plan(self, plan: Plan, context: PlanningContext) -> tuple[Violation, ...]:
        """Return a plan's violations in the context that it was made for."""
        conditions = self._conditions(plan, context)
        return (*check_plan(plan, conditions), *self._sessions(plan, conditions.devices))

    def _sessions(self, plan: Plan, devices: Mapping[str, str]) -> tuple[Violation, ...]:
        return () if self._space is None else check_sessions(plan, self._space, devices)

    def _conditions(self, plan: Plan, context: PlanningContext) -> PlanConditions:
        name = plan.settings.policy
        policy = policy_named(self._pipeline, name) or Policy(name=name)
        in_force = context.in_force
        devices = {member.name: member.device for member in context.members}
        held = {lease.worker: lease for lease in in_force.leases} if in_force else {}
        loaded = {member.name: member.loaded for member in context.members}
        if in_force is not None:
            self._remember(self._sets(in_force, devices), held, loaded)
        return PlanConditions(
            pipeline=self._pipeline,
            policy=policy,
            profile=context.profile,
            latency=frozenset(_bounds(plan, policy)),
            memory=self._memory,
            devices=devices,
            loaded=loaded,
            held=held,
            beside=self._beside,
            sets=self._sets(plan, devices),
            multiplicity=context.expected.multiplicity,
        )

    def _remember(
        self, sets: Mapping[str, tuple[str, ...]], held: Mapping[str, Lease],
        loaded: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Update the variants that workers may hold, until a lease without tables has loaded."""
        for worker, lease in held.items():
            before = self._beside.get(worker, ())
            if lease.task in sets:
                self._beside[worker] = tuple(dict.fromkeys((*before, *sets[lease.task])))
            elif loaded.get(worker) == lease.key:
                self._beside.pop(worker, None)

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone."""
        self._beside.pop(worker, None)

    def reject(self, violations: tuple[Violation, ...]) -> list[Effect]:
        """Return the effect that reports violations; repeated ones are not reported again."""
        if violations == self._rejected:
            return []
        self._rejected = violations
        names = tuple(dict.fromkeys(each.constraint.value for each in violations))
        return [Reject(names, sentences(violations))]

    def passed(self) -> None:
        """Forget the last rejection: a plan is in force."""
        self._rejected = ()


def _bounds(plan: Plan, policy: Policy) -> Iterator[LatencyBound]:
    filling = rule_named(ROUTINGS, policy.routing)
    if filling is not None and filling.within_budget:
        yield LatencyBound.ROUTED
    if plan.mode:
        yield LatencyBound.ASSIGNED
    if policy.name and spec_of(policy.kind).choose:
        yield LatencyBound.BATCH
