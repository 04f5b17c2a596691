"""The answers and plans of a simulated system, and its planner."""

from collections.abc import Callable

from control.policies.solvers import solve
from control.problem.problem import PlanError
from schemas.effects import PLANS, RESULTS, Failed, Solve, Solved
from schemas.records import Answer, Plan
from streams.simulated.simulated_driver import Simulated


def the_answers(system: Simulated) -> list[Answer]:
    """Return every answer, slot by slot."""
    records = [r for written in system.written(RESULTS).values() for r, _ in written]
    return [record for record in records if isinstance(record, Answer)]


def the_plans(system: Simulated) -> list[Plan]:
    """Return every plan, the oldest first."""
    return [record for record, _ in system.written(PLANS)[0] if isinstance(record, Plan)]


def solving_in(seconds: float) -> Callable[[Solve], tuple[Solved | Failed, float]]:
    """Return a planner that takes ``seconds`` for each solve."""

    def solver(effect: Solve) -> tuple[Solved | Failed, float]:
        try:
            return Solved(effect.job, solve(effect.solver, effect.problem)), seconds
        except PlanError as error:
            return Failed(effect.job, str(error)), seconds

    return solver
