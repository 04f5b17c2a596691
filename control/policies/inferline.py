"""The policy ``inferline``: the most accurate variants, with replicas by demand.

After InferLine as Loki's evaluation sets it up (Loki, section 6.1, and its authors' code): one
variant for each task, replicas and batches by demand on the fewest devices, and no accuracy
scaling. InferLine's own planner and tuner (SoCC 2020) are not implemented.

    hardware      the fewest devices that serve the demand
    best-effort   where that is infeasible: the largest share of the demand that all devices serve

A task's variant is the most accurate one that fits the compute budget of a path at all. If these
do not fit together, the planner takes the fitting assignment of variants with the most accurate
answers. If none fits, it takes the fastest variants, because the plan's check would refuse others.
The bounds on the shares of tasks always hold, so that with untied branches every branch has a
worker.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

from control.policies.loki.allocate import best_effort, check_demand, empty_allocation, search_for
from control.policies.loki.milp_search import fewest, find
from control.policies.loki.solution import allocation
from control.problem.candidates import FITS_S, Choices, Unit, choices, most_accurate, needed, paths
from control.problem.problem import HARDWARE, Allocation, Problem

MOST_ASSIGNMENTS = 20_000  # of one variant to every task; no more are tried


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
    if not all(fitting.units.values()):
        return _fastest(every)
    best = most_accurate(fitting)
    if _fits(best):
        return best
    together = filter(_fits, islice(_assignments(fitting), MOST_ASSIGNMENTS))
    return max(together, key=_accuracy, default=best)


def _fastest(every: Choices) -> Choices:
    """Return the choices with the fastest variant of each task, in its fastest batch."""

    def chosen(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
        first = min(units, key=lambda unit: (unit.configs[0].latency_s, -unit.accuracy))
        return tuple(
            replace(unit, configs=unit.configs[:1]) for unit in units if unit.key == first.key
        )

    return replace(every, units={task: chosen(units) for task, units in every.units.items()})


def _fits(every: Choices) -> bool:
    """Return whether the fastest configurations keep every path's compute budget."""
    fastest_s = {
        task: min(config.latency_s for unit in units for config in unit.configs)
        for task, units in every.units.items()
    }
    return all(
        sum(fastest_s[task] for task in way) <= every.budget_s[leaf] + FITS_S
        for leaf, way in paths(every.tasks).items()
    )


def _assignments(every: Choices) -> Iterator[Choices]:
    """Yield the choices with one variant per task, for every assignment."""
    keys = [dict.fromkeys(unit.key for unit in units) for units in every.units.values()]
    for chosen in product(*keys):
        kept = {
            task: tuple(unit for unit in units if unit.key in chosen)
            for task, units in every.units.items()
        }
        yield replace(every, units=kept)


def _accuracy(assigned: Choices) -> float:
    """Return the expected accuracy of an answer with these variants."""
    return sum(
        assigned.weight[leaf] * assigned.accuracy([assigned.units[task][0] for task in way])
        for leaf, way in paths(assigned.tasks).items()
    )
