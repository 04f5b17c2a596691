"""A table of plans solved ahead over a grid of demands, valid while the rest of the problem holds.

    table = PlanTable.empty(problem, step_qps=5.0, top_qps=600.0)
    while (demand := table.next_missing(now_qps)) is not None:   # in the background
        table = table.filled(demand, allocate(replace(problem, demand_qps=demand)))
    plan = table.plan(problem)                                   # at once, or None

A table is made for one problem: pipeline, policy, SLO, devices, profile, observed multiplicities
and measured paths, everything except the demand. A look-up for any other problem returns None. The
plan for a demand is that of the next larger demand on the grid (``planned_qps``), which serves it.
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
        """Return a table without plans, for demands from 0 to ``top_qps`` rounded up to a step.

        Raises ``ValueError`` for a step that is not above 0 and at most the top."""
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
        """Return whether the table was made for this problem, at any demand."""
        return self.made_for == replace(problem, demand_qps=0.0)

    def plan(self, problem: Problem) -> Allocation | None:
        """Return the plan of the next larger demand on the grid; None if it is not in the table."""
        at = self._at(problem.demand_qps)
        if at == len(self.grid_qps) or not self.serves(problem):
            return None
        return self.plans.get(self.grid_qps[at])

    def planned_qps(self, demand_qps: float) -> float | None:
        """Return the grid demand whose plan serves this demand; None beyond the grid."""
        at = self._at(demand_qps)
        return self.grid_qps[at] if at < len(self.grid_qps) else None

    def filled(self, demand_qps: float, plan: Allocation) -> "PlanTable":
        """Return the table with the plan of one grid demand added.

        Raises ``ValueError`` for a demand that is not on the grid."""
        if demand_qps not in self.grid_qps:
            raise ValueError(f"{demand_qps:g} queries/s is not on the grid; ask `next_missing`")
        return replace(self, plans={**self.plans, demand_qps: plan})

    def next_missing(self, near_qps: float) -> float | None:
        """Return the grid demand to solve next: upwards from the current one, then those below."""
        missing = [demand for demand in self.grid_qps if demand not in self.plans]
        if not missing:
            return None
        holds = self.planned_qps(near_qps)
        return min(missing, key=lambda d: (holds is not None and d < holds, abs(d - near_qps)))

    def _at(self, demand_qps: float) -> int:
        return bisect_left(self.grid_qps, demand_qps * (1 - SLACK))
