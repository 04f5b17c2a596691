"""The binding constraint of an infeasible problem, and the nearest feasible value of each quantity.

demand     the largest that the devices serve within the SLO     = served share x demand
devices    the fewest that serve the demand within the SLO       (a MILP)
SLO        the shortest at which the devices serve the demand    (bisection over the sums of
           latencies at which another path begins to fit, a MILP each)
"""

from dataclasses import replace
from itertools import product
from math import ceil, floor, log10
from typing import Any

import pulp

from control.policies.loki.milp import FlowModel, require, total
from control.policies.loki.milp_search import SolveOptions, find, most
from control.policies.option_fields import ACCURACY_LEAST
from control.problem.candidates import MOST_SUMS, Choices, budgets_s, most_accurate, paths
from control.problem.problem import Nearest, Problem

MANY = 100_000  # devices; no plan needs more
TOLERANCE = 1e-6  # by which a solver may violate a row, and so exceed a served share
STEP_S = 1e-4  # rounding of sums of latencies if there are too many


def nearest_feasible(
    every: Choices, problem: Problem, served: float, search: SolveOptions
) -> Nearest:
    """Return the nearest feasible values if only the share ``served`` can be served."""
    largest = max([served, *_served_freely(every, problem, search)])
    enough = [_devices(some, bounded, problem, search) for some, bounded in _modes(every)]
    return Nearest(
        demand_qps=_rounded_down((largest - TOLERANCE) * problem.demand_qps) or None,
        slo_s=_slo_s(every, problem, search),
        devices=min((count for count in enough if count is not None), default=None),
    )


def _modes(every: Choices) -> list[tuple[Choices, bool]]:
    """Return the candidates, and whether the tasks' bounds on shares hold for them.

    Bounds hold if accuracy is scaled, but not for the most accurate variants alone
    (``allocate.py``).
    """
    free = any(task.share != (0.0, 1.0) for task in every.tasks)
    return [(every, True), *([(most_accurate(every), False)] if free else [])]


def _served_freely(every: Choices, problem: Problem, search: SolveOptions) -> list[float]:
    """Return the shares that can be served without bounds."""
    found = [
        find(some, problem.demand_qps, most, search, served=None, bounded=False)
        for some, bounded in _modes(every)
        if not bounded
    ]
    return [each.model.served.varValue for each in found if each.solved]


def binding(every: Choices, problem: Problem, close: Nearest) -> str:
    """Return one sentence with the binding constraint, "slo" or "devices" first, and remedies."""
    slo_ms, there = problem.slo_s * 1e3, sum(every.devices.values())
    least = ACCURACY_LEAST.of(problem.policy)
    floor = f" at an accuracy of {least:.6g} or more" if least else ""
    least_ms = least_slo_s(every, problem) * 1e3
    if least_ms > slo_ms + 1e-6:
        return (
            f"slo: within {slo_ms:g} ms no path of variants fits its compute budget, the fastest "
            f"needs an SLO of {_up(least_ms):g} ms; raise the SLO or add faster variants"
        )
    devices = "one device" if there == 1 else f"{there} devices"
    able = (
        f"serve at most {close.demand_qps:g} of {problem.demand_qps:g} queries/s"
        if close.demand_qps
        else f"cannot serve {problem.demand_qps:g} queries/s"
    )
    if problem.demand_qps == 0 and there < len(every.tasks):
        able = f"are too few: each of the {len(every.tasks)} tasks needs one of its own"
        mend = f"use {len(every.tasks)} devices, or let tasks share them: cluster.tasks_per_device"
        return f"devices: {devices} {able}; {mend}"
    mends = [f"use {close.devices} devices"] if close.devices is not None else []
    mends += [f"an SLO of {close.slo_s * 1e3:g} ms"] if close.slo_s is not None else []
    mends += ["a lower demand"] if close.demand_qps else []
    mends += ["a lower accuracy_least"] if least else []
    mend = ", or ".join(mends) or "add faster variants, or loosen slots and shares of tasks"
    return f"devices: {devices} {able} within {slo_ms:g} ms{floor}; {mend}"


def least_slo_s(every: Choices, problem: Problem) -> float:
    """Return the SLO at which the fastest paths begin to fit: to every leaf, untied to any."""
    needs = []
    for way in paths(every.tasks).values():
        fastest = sum(
            min(config.latency_s for unit in every.units[task] for config in unit.configs)
            for task in way
        )
        needs.append(_slo_for(problem, len(way), fastest))
    return max(needs) if every.tied else min(needs)


def _slo_for(problem: Problem, depth: int, seconds: float) -> float:
    pipeline = problem.pipeline
    return seconds / pipeline.compute_share + (depth + 1) * pipeline.comm_s


def _devices(every: Choices, bounded: bool, problem: Problem, search: SolveOptions) -> int | None:
    there = every.devices
    many = replace(every, devices=dict.fromkeys(there, MANY))

    def added(model: FlowModel) -> tuple[int, Any]:
        more = []
        for at, (kind, count) in enumerate(there.items()):
            own = [v for (_, _, device), v in model.replicas.items() if device == kind]
            extra = model.problem.add_variable(f"added_{at}", 0)
            require(model, f"added_{at}", total(own) - count <= extra)
            more.append(extra)
        return pulp.LpMinimize, total(more)

    found = find(many, problem.demand_qps, added, search, served=1.0, bounded=bounded)
    if not found.solved:
        return None
    return int(sum(there.values()) + round(pulp.value(found.model.problem.objective)))


def _slo_s(every: Choices, problem: Problem, search: SolveOptions) -> float | None:
    """Return the first candidate SLO that is feasible; feasibility grows with the SLO."""
    candidates = _candidates_s(every, problem)
    low, high = 0, len(candidates)
    while low < high:
        # The last one is tried first: if it is infeasible, all are.
        middle = high - 1 if high == len(candidates) else (low + high) // 2
        if _feasible(every, replace(problem, slo_s=candidates[middle]), search):
            high = middle
        elif high == len(candidates):
            return None
        else:
            low = middle + 1
    return candidates[high] if high < len(candidates) else None


def _feasible(every: Choices, problem: Problem, search: SolveOptions) -> bool:
    def anything(model: FlowModel) -> tuple[int, Any]:
        return pulp.LpMinimize, total([model.served])

    wider = replace(every, budget_s=budgets_s(problem))
    return any(
        find(some, problem.demand_qps, anything, search, served=1.0, bounded=bounded).solved
        for some, bounded in _modes(wider)
    )


def _candidates_s(every: Choices, problem: Problem) -> list[float]:
    """Return the SLOs above the requested one at which a path begins to fit."""
    found: set[float] = set()
    for way in paths(every.tasks).values():
        choices = [
            sorted({c.latency_s for unit in every.units[task] for c in unit.configs})
            for task in way
        ]
        sums = _sums(choices)
        found |= {_up(_slo_for(problem, len(way), s) * 1e3) / 1e3 for s in sums}
    return sorted(slo for slo in found if slo > problem.slo_s)


def _sums(choices: list[list[float]]) -> set[float]:
    size = 1
    for each in choices:
        size *= len(each)
    if size <= MOST_SUMS:
        return {sum(each) for each in product(*choices)}
    sums = {0.0}
    for each in choices:
        sums = {ceil((one + other) / STEP_S) * STEP_S for one in sums for other in each}
    return sums


def _up(milliseconds: float) -> float:
    """Return the value rounded up to a microsecond."""
    return ceil(milliseconds * 1e3 - 1e-6) / 1e3


def _rounded_down(demand_qps: float) -> float:
    """Return the value rounded down to six digits, slightly below the solver's largest."""
    if demand_qps <= 0:
        return 0.0
    safe = demand_qps * (1 - 1e-6)
    step = 10.0 ** (floor(log10(safe)) - 5)
    return round(floor(safe / step) * step, 10)
