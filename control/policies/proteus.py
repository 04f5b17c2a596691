"""The policy ``proteus``: accuracy scaling for each task alone, whatever the pipeline.

After Proteus (ASPLOS 2024) as Loki's evaluation sets it up (Loki, section 6.1): every task is an
application of its own, with its items per second as its demand D(t) and an equal part of the SLO.
D(root) is the demand of the input, before admission; D(child) = D(t) times the mean, over t's
variants by their observed shares of its traffic, of the items for the child that one item makes.
For unit u, q(u) is the items per second of a device with the largest batch within the task's part
of the compute budget, a(u) the unit's own accuracy, x(u) its devices and y(u) its items/s:

    served       sum of y(u) over the units of t   == s D(t)
    capacity     y(u)                              <= q(u) x(u)
    present      sum of x(u) over the units of t   >= 1
    slots        sum of x(u) over the units of t   <= its slots
    devices      sum of x(u) over units of a kind  <= how many there are

    max  sum of y(u) a(u)     with s = 1; if that is infeasible, with the largest s

An item counts the same at every task. The model deliberately ignores that the first task's accuracy
affects every answer, and that fewer items there make fewer downstream: this is the point of the
baseline. All devices are used: spare ones go one by one to the unit with the highest load.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pulp

from control.policies.loki.allocate import check_demand, empty_allocation
from control.policies.option_fields import GAP, NODES, SOLVER
from control.problem.candidates import FITS_S, Choices, Config, Unit, budgets_s, choices, paths
from control.problem.mip import INFEASIBLE, Bounds, Outcome, solve_model
from control.problem.problem import (
    ACCURACY,
    BEST_EFFORT,
    Allocation,
    PlanError,
    Problem,
    Replicas,
    SolverRun,
)

WHOLE = 1 - 1e-7
LEAST_QPS = 1.0  # queries/s to plan for before any demand was observed

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Model:
    """The formulas above; ``share`` is s."""

    problem: Any
    share: Any
    devices: dict[Key, Any]
    items: dict[Key, Any]


def allocate(problem: Problem) -> Allocation:
    """Return the plan for a problem.

    Raises ``PlanError`` if a task has no profiled variant, there are more tasks than devices, or no
    plan was found in time.
    """
    check_demand(problem)
    if not problem.devices:
        return empty_allocation()
    every = choices(problem)
    configs = {unit.key_on_device: config for unit, config in _fitting(every, problem)}
    demand = task_demands(every, problem)
    model = _model(every, configs, demand)
    run, share = SolverRun(SOLVER.of(problem.policy), None), 1.0
    model.share.lowBound = 1.0
    outcome = _solved(model, pulp.LpMaximize, _accuracy(every, model), problem)
    run = _and(run, outcome)
    if not outcome.solved:
        model.share.lowBound = 0.0
        largest = _solved(model, pulp.LpMaximize, +model.share, problem)
        run = _and(run, largest)
        if not largest.solved:  # CBC leaves values in the variables of an infeasible model, too
            infeasible = largest.status == INFEASIBLE
            raise PlanError(_too_few(every, problem) if infeasible else _no_time(problem))
        share = _value(model.share) or 0.0
        model.share.lowBound = share * WHOLE
        run = _and(run, _solved(model, pulp.LpMaximize, _accuracy(every, model), problem))
    plan = _answer(every, configs, model, run)
    if outcome.solved:
        return replace(plan, mode=ACCURACY)
    return replace(plan, feasible=False, served_share=share, binding=_short(every, share, problem))


def task_demands(every: Choices, problem: Problem) -> dict[str, float]:
    """Return the items per second of each task, from the demand of the input.

    A task without observed arrivals counts as served by its most accurate variant.
    """
    made = {every.tasks[0].name: 1.0}
    for task in every.tasks:
        split = _split(every.units[task.name], problem.arriving)
        for child in task.children:
            each = sum(share * unit.items[child] for unit, share in split)
            made[child] = made[task.name] * each
    demand_qps = max(problem.demand_qps, LEAST_QPS)
    return {task: demand_qps * items for task, items in made.items()}


def _split(units: Sequence[Unit], arriving: Mapping[str, float]) -> list[tuple[Unit, float]]:
    """Return one unit of each variant with its share of the task's arriving items."""
    variants = {unit.key: unit for unit in units}
    seen = {key: arriving[key] for key in variants if arriving.get(key, 0.0) > 0.0}
    if not seen:
        return [(max(units, key=lambda unit: unit.accuracy), 1.0)]
    total = sum(seen.values())
    return [(variants[key], rate / total) for key, rate in seen.items()]


def _fitting(every: Choices, problem: Problem) -> list[tuple[Unit, Config]]:
    """Return each unit with its largest batch within its task's part of the compute budget.

    A task without a fast enough unit runs the fastest on each kind of device.
    """
    budgets = budgets_s(problem)
    part: dict[str, float] = {}
    for leaf, way in paths(every.tasks).items():
        for task in way:
            part[task] = min(part.get(task, float("inf")), budgets[leaf] / len(way))
    found: list[tuple[Unit, Config]] = []
    for task, units in every.units.items():
        most_s = part[task] + FITS_S
        own = [(u, [c for c in u.configs if c.latency_s <= most_s]) for u in units]
        able = [(unit, fits[-1]) for unit, fits in own if fits]
        found += able or _quickest(units)
    return found


def _quickest(units: Sequence[Unit]) -> list[tuple[Unit, Config]]:
    kinds: dict[str, Unit] = {}
    for unit in sorted(units, key=lambda each: each.configs[0].latency_s):
        kinds.setdefault(unit.device, unit)
    return [(unit, unit.configs[0]) for unit in kinds.values()]


def _model(every: Choices, configs: Mapping[Key, Config], demand: Mapping[str, float]) -> _Model:
    problem = pulp.LpProblem("proteus", pulp.LpMaximize)
    share = problem.add_variable("served", 0, 1)
    devices = {
        key: problem.add_variable(f"devices_{at}", 0, every.devices[key[2]], pulp.LpInteger)
        for at, key in enumerate(configs)
    }
    items = {key: problem.add_variable(f"items_{at}", 0) for at, key in enumerate(configs)}
    for at, (key, config) in enumerate(configs.items()):
        problem.addConstraint(items[key] <= config.rate * devices[key], f"capacity_{at}")
    for task in every.tasks:
        own = [key for key in configs if key[0] == task.name]
        there = pulp.lpSum(devices[key] for key in own)
        served = pulp.lpSum(items[key] for key in own)
        problem.addConstraint(served == demand[task.name] * share, f"served_{task.name}")
        problem.addConstraint(there >= task.least, f"present_{task.name}")
        problem.addConstraint(there <= task.slots, f"slots_{task.name}")
    for at, (kind, count) in enumerate(every.devices.items()):
        used = pulp.lpSum(devices[key] for key in configs if key[2] == kind)
        problem.addConstraint(used <= count, f"devices_{at}")
    return _Model(problem, share, devices, items)


def _accuracy(every: Choices, model: _Model) -> Any:
    own = {unit.key_on_device: unit.accuracy for unit in every.all_units}
    return pulp.lpSum(own[key] * items for key, items in model.items.items())


def _solved(model: _Model, sense: int, aim: Any, problem: Problem) -> Outcome:
    model.problem.sense = sense
    model.problem.setObjective(aim)
    policy = problem.policy
    bounds = Bounds(GAP.of(policy), NODES.of(policy), problem.stop_s)
    return solve_model(model.problem, SOLVER.of(policy), bounds, problem.meter)


def _value(variable: Any) -> float | None:
    return None if variable.varValue is None else float(variable.varValue)


def _answer(
    every: Choices, configs: Mapping[Key, Config], model: _Model, run: SolverRun
) -> Allocation:
    counts = {key: round(_value(x) or 0.0) for key, x in model.devices.items()}
    loads = {key: (_value(y) or 0.0) / configs[key].rate for key, y in model.items.items()}
    counts = _all_loaded(every, counts, loads)
    several = len(every.devices) > 1
    return Allocation(
        tuple(
            Replicas(
                task=unit.task,
                variant=unit.variant,
                batch=configs[unit.key_on_device].batch,
                count=counts[unit.key_on_device],
                device=unit.device if several else "",
                on=every.names[unit.device] if several else (),
            )
            for unit in every.all_units
            if counts.get(unit.key_on_device, 0) > 0
        ),
        mode=BEST_EFFORT,
        solved=run,
    )


def _all_loaded(
    every: Choices, counts: Mapping[Key, int], loads: Mapping[Key, float]
) -> dict[Key, int]:
    """Return the counts with the unused devices of each kind added, up to the tasks' slots."""
    given = dict(counts)
    slots = {task.name: task.slots for task in every.tasks}
    for kind, there in every.devices.items():
        for _ in range(there - sum(n for key, n in given.items() if key[2] == kind)):
            hungry = [
                key
                for key, count in given.items()
                if key[2] == kind
                and count > 0
                and sum(n for other, n in given.items() if other[0] == key[0]) < slots[key[0]]
            ]
            if not hungry:
                break
            given[max(hungry, key=lambda key: loads[key] / given[key])] += 1
    return given


def _too_few(every: Choices, problem: Problem) -> str:
    return (
        f"policy {problem.policy.name!r} needs a worker for each of {len(every.tasks)} tasks and "
        f"{len(problem.devices)} can be used; start more, or raise the slots of the tasks"
    )


def _no_time(problem: Problem) -> str:
    return (
        f"policy {problem.policy.name!r} found no plan within its time; raise its `solve_within`, "
        "or leave out variants"
    )


def _short(every: Choices, share: float, problem: Problem) -> str:
    devices = sum(every.devices.values())
    return (
        f"devices: {devices} serve {share:.1%} of what arrives at each task within an equal part "
        f"of {problem.slo_s * 1e3:g} ms; add devices, or raise the SLO"
    )


def _and(run: SolverRun, outcome: Outcome) -> SolverRun:
    more = outcome.run
    return SolverRun(run.solver, more.gap, run.cpu_s + more.cpu_s, run.wall_s + more.wall_s)
