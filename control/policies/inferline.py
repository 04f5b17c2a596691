"""The policy ``inferline``: the most accurate variants, with replicas by demand.

After InferLine as Loki's evaluation sets it up (Loki, section 6.1, and its authors' code): one
variant for each task, replicas and batches by demand on the fewest devices, and no accuracy
scaling. InferLine's own planner and tuner (SoCC 2020) are not implemented.

    hardware      the fewest devices that serve the demand
    best-effort   where that is infeasible: the largest share of the demand that all devices serve

A task's variant is the most accurate one that fits the compute budget of a path at all. The bounds
on the shares of tasks hold throughout, so that with untied branches every branch has a worker.
"""

from control.policies.loki.allocate import best_effort, check_demand, empty_allocation, search_for
from control.policies.loki.milp_search import fewest, find
from control.policies.loki.solution import allocation
from control.problem.candidates import Choices, choices, most_accurate, needed
from control.problem.problem import HARDWARE, Allocation, Problem


def allocate(problem: Problem) -> Allocation:
    """Return the plan for a problem; raise ``PlanError`` where no profiled variant can serve it."""
    check_demand(problem)
    if not problem.devices:
        return empty_allocation()
    named = _named(choices(problem))
    search = search_for(problem)
    found = find(named, problem.demand_qps, fewest, search, served=1.0, bounded=True)
    if found.solved:
        return allocation(found, problem.demand_qps, HARDWARE)
    return best_effort(named, problem, search, found.run)


def _named(every: Choices) -> Choices:
    """Return the choices with one variant per task."""
    fitting = needed(every)
    return most_accurate(fitting if all(fitting.units.values()) else every)
