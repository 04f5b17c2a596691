"""Planners by name: what a driver runs for ``Solve``."""

from collections.abc import Callable, Mapping

from control import allocation, inferline, proteus, static
from control.problem import Allocation, Problem

SOLVERS: Mapping[str, Callable[[Problem], Allocation]] = {
    "static": static.allocate,
    "loki": allocation.allocate,
    "loki-paper": allocation.allocate,
    "inferline": inferline.allocate,
    "proteus": proteus.allocate,
}


def solve(solver: str, problem: Problem) -> Allocation:
    """Run a planner; raises ``PlanError`` where it finds no plan, ``KeyError`` for its name."""
    return SOLVERS[solver](problem)
