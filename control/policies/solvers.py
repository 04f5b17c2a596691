"""Run the solver of an effect ``Solve``: a policy's planner or table maker."""

from dataclasses import replace
from typing import Any

from control.policies import spec_of
from control.policies.replica_bounds import bounded, short_of, topped_up
from control.problem.lazy_references import load

TABLE = "table"  # a ``TableProblem``; every other solver is a kind of policy, for a ``Problem``
TABLE_S = 0.1  # virtual seconds for one table


def solve(solver: str, problem: Any) -> Any:
    """Return the allocation for a ``Problem``, or the table for a ``TableProblem``.

    Planners are imported when they first run. Raises ``PlanError`` where there is no plan, and for
    an unknown kind.
    """
    if solver == TABLE:
        return load(spec_of(problem.kind).choose)(problem)
    plan = topped_up(load(spec_of(solver).plan)(asked := bounded(problem)), asked)
    short = short_of(problem)
    return replace(plan, feasible=False, binding=plan.binding or short) if short else plan


def virtual_s(solver: str) -> float:
    """Return the virtual seconds of a solve; its real seconds differ between machines."""
    return TABLE_S if solver == TABLE else spec_of(solver).solve_s
