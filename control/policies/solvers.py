"""Planners by name: what a driver runs for ``Solve``.

Each is imported when it first runs: solvers and SciPy take most of a second, and whoever only
carries queries, or reads a pipeline file, does without.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from control.problem.problem import DISPATCHING, SELECTING

TABLE = "table"  # one of those that workers follow, for a ``TableProblem``

# The modules of ``control`` whose ``allocate`` makes an ``Allocation`` for a ``Problem``.
_PLANNERS: Mapping[str, str] = {
    "static": "static",
    "loki": "loki.allocate",
    "loki-paper": "loki.allocate",
    "inferline": "inferline",
    "proteus": "proteus",
    **dict.fromkeys(DISPATCHING, "static"),  # every device the best variant; ingress dispatches
    **dict.fromkeys(SELECTING, "ramsis.table_leases"),
}
KINDS = tuple(_PLANNERS)  # those that a policy can name


def solve(solver: str, problem: Any) -> Any:
    """Run a planner over its ``Problem``, or have a table made; raises ``PlanError`` where it finds
    no plan, ``KeyError`` for its name."""
    if solver == TABLE:
        return import_module("control.policies.ramsis.table_builder").make(problem)
    return import_module(f"control.policies.{_PLANNERS[solver]}").allocate(problem)
