"""Plans solved ahead over a grid of demands: at once the plan for any demand, until the rest moves.

    table = PlanTable.empty(problem, step_qps=5.0, top_qps=600.0)
    while (demand := table.next_missing(now_qps)) is not None:   # in the background
        table = table.filled(demand, allocate(replace(problem, demand_qps=demand)))
    plan = table.plan(problem)                                   # at once, or None

Whatever decides a plan other than the demand (pipeline, policy, SLO, devices, profile, observed
multiplicities, measured paths) is what the table was made for; a problem that differs in any of it
finds nothing in it. The plan for a demand is that of the next larger demand on the grid, which
serves it; the table says which demand that is.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from control.problem.problem import Allocation, Problem

SLACK = 1e-9  # relative; a demand on the grid finds its own plan


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Plans by demand for one problem, ``made_for`` it at demand 0."""

    made_for: Problem
    grid_qps: tuple[float, ...]  # ascending
    plans: Mapping[float, Allocation] = field(default_factory=dict)

    @classmethod
    def empty(cls, problem: Problem, *, step_qps: float, top_qps: float) -> "PlanTable":
        """Nothing solved yet, for demands from 0 to the first multiple of the step from the top."""
        if not 0 < step_qps <= top_qps:
            raise ValueError(
                f"a grid in steps of {step_qps:g} up to {top_qps:g} queries/s has no demand; "
                "the step is above 0 and at most the top"
            )
        steps = ceil(top_qps / step_qps - SLACK)
        return cls(
            replace(problem, demand_qps=0.0), tuple(step_qps * at for at in range(steps + 1))
        )

    def serves(self, problem: Problem) -> bool:
        """Whether the table was made for this problem, whatever its demand."""
        return self.made_for == replace(problem, demand_qps=0.0)

    def plan(self, problem: Problem) -> Allocation | None:
        """The plan of the next demand on the grid; None where it is not there (yet)."""
        at = self._at(problem.demand_qps)
        if at == len(self.grid_qps) or not self.serves(problem):
            return None
        return self.plans.get(self.grid_qps[at])

    def planned_qps(self, demand_qps: float) -> float | None:
        """The demand that the plan for this one is made for; None beyond the grid."""
        at = self._at(demand_qps)
        return self.grid_qps[at] if at < len(self.grid_qps) else None

    def filled(self, demand_qps: float, plan: Allocation) -> "PlanTable":
        """With the plan of one demand of the grid."""
        if demand_qps not in self.grid_qps:
            raise ValueError(f"{demand_qps:g} queries/s is not on the grid; ask `next_missing`")
        return replace(self, plans={**self.plans, demand_qps: plan})

    def next_missing(self, near_qps: float) -> float | None:
        """The demand to solve next: from the one that holds now upwards, then what is below."""
        missing = [demand for demand in self.grid_qps if demand not in self.plans]
        if not missing:
            return None
        holds = self.planned_qps(near_qps)
        return min(missing, key=lambda d: (holds is not None and d < holds, abs(d - near_qps)))

    def _at(self, demand_qps: float) -> int:
        return bisect_left(self.grid_qps, demand_qps * (1 - SLACK))
