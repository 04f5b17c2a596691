"""Planners by name: what a driver runs for ``Solve``."""

from collections.abc import Callable, Mapping
from typing import Any

from control import allocation, inferline, proteus, static
from control.problem import SELECTING, Allocation, Problem

TABLE = "table"  # one of those that workers follow, for a ``TableProblem``


def _selecting(problem: Problem) -> Allocation:
    # Imported here, as below: SciPy takes a third of a second, and workers do without.
    from control.selection_plan import allocate

    return allocate(problem)


SOLVERS: Mapping[str, Callable[[Problem], Allocation]] = {
    "static": static.allocate,
    "loki": allocation.allocate,
    "loki-paper": allocation.allocate,
    "inferline": inferline.allocate,
    "proteus": proteus.allocate,
    **dict.fromkeys(SELECTING, _selecting),
}


def solve(solver: str, problem: Any) -> Any:
    """Run a planner over its ``Problem``, or have a table made; raises ``PlanError`` where it finds
    no plan, ``KeyError`` for its name."""
    if solver == TABLE:
        from control.selection_tables import make

        return make(problem)
    return SOLVERS[solver](problem)
