"""The checks that a plan passes before it is in force, and the effect of a rejection."""

from collections.abc import Mapping

from control.checks.allocation_check import check_allocation, check_resources
from control.checks.plan_check import PlanConditions, check_plan
from control.checks.violations import Violation, sentences
from control.policies import policy_named
from control.problem.lazy_references import chosen
from control.problem.problem import Allocation, Problem
from control.problem.routes import ROUTINGS
from control.rollout.next_plan import PlanningContext
from schemas.effects import Effect, Reject
from schemas.pipeline import Pipeline, Policy
from schemas.records import Plan


class PlanGate:
    """Checks of allocations and plans. ``memory`` is in bytes for one worker, by device."""

    __slots__ = ("_memory", "_pipeline", "_rejected")

    def __init__(self, pipeline: Pipeline, memory: Mapping[str, int]) -> None:
        self._pipeline = pipeline
        self._memory = memory
        self._rejected: tuple[Violation, ...] = ()  # since the last plan in force

    def allocation(
        self, found: Allocation, kept: Allocation, problem: Problem
    ) -> tuple[Violation, ...]:
        """Return the violations of a solve's allocation, and the resources that ``kept``, the
        target's allocation, uses beyond the problem's."""
        return (*check_allocation(found, problem), *check_resources(kept, problem))

    def plan(self, plan: Plan, context: PlanningContext) -> tuple[Violation, ...]:
        """Return a plan's violations in the context that it was made for."""
        return check_plan(plan, self._conditions(plan, context))

    def _conditions(self, plan: Plan, context: PlanningContext) -> PlanConditions:
        name = plan.settings.policy
        policy = policy_named(self._pipeline, name) or Policy(name=name)
        filling = chosen(ROUTINGS, policy.routing)
        in_force = context.in_force
        return PlanConditions(
            pipeline=self._pipeline,
            policy=policy,
            profile=context.profile,
            within_budget=filling is not None and filling.within_budget,
            memory=self._memory,
            devices={member.name: member.device for member in context.members},
            loaded={member.name: member.loaded for member in context.members},
            held={lease.worker: lease for lease in in_force.leases} if in_force else {},
            multiplicity=context.expected.multiplicity,
        )

    def reject(self, violations: tuple[Violation, ...]) -> list[Effect]:
        """Return the effect that reports violations, once until another plan is in force."""
        if violations == self._rejected:
            return []
        self._rejected = violations
        names = tuple(dict.fromkeys(each.constraint.value for each in violations))
        return [Reject(names, sentences(violations))]

    def passed(self) -> None:
        """Forget the last rejection: a plan is in force."""
        self._rejected = ()
