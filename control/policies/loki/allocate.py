"""The policies ``loki`` and ``loki-paper``: variants, their batches and numbers of devices.

Three steps (Loki, section 4.1), each a MILP (``milp.py``):

    hardware      only the most accurate variant of each task; the fewest devices
    accuracy      if that is infeasible: the highest accuracy with the available devices
    best-effort   if that is infeasible too: the largest served share, then accuracy

If no path of the most accurate variants meets the SLO, the first step of ``loki`` takes the fewest
devices that reach the highest accuracy within the SLO. The paper continues with the second step at
every demand, which uses all devices.

A plan is always returned. A best-effort plan is infeasible: it names the binding constraint and the
nearest feasible demand, SLO and number of devices (``relaxations.py``). With ``accuracy_least``
every step keeps the accuracy of the served queries at or above it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pulp

from control.policies.loki.milp_search import (
    Aim,
    SolvedModel,
    SolveOptions,
    accurate,
    fewest,
    find,
    most,
)
from control.policies.loki.relaxations import MANY, binding, nearest_feasible
from control.policies.loki.solution import allocation
from control.policies.option_fields import ACCURACY_LEAST, GAP, NODES, SOLVER
from control.policies.static import divide
from control.problem.candidates import Choices, Unit, choices, most_accurate, needed
from control.problem.mip import Bounds
from control.problem.problem import (
    ACCURACY,
    BEST_EFFORT,
    HARDWARE,
    Allocation,
    PlanError,
    Problem,
    Replicas,
    SolverRun,
)

SOME = 1e-6
WHOLE = 1 - 1e-7  # a larger served share counts as all
NO_TIME = "cannot serve the whole demand; no time was left to find the binding constraint"
NEARLY = 1 - 1e-7  # fraction of the largest served share to serve in the next step


First = Callable[[Choices, Problem, SolveOptions], SolvedModel]


def allocate(problem: Problem) -> Allocation:
    """Return the paper's plan; raise ``PlanError`` if no profiled variant can serve."""
    return _allocated(problem, hardware)


def allocate_within_slo(problem: Problem) -> Allocation:
    """Return the plan of ``loki``: like ``allocate``, with the fewest devices at every demand."""
    return _allocated(problem, hardware_within_slo)


def _allocated(problem: Problem, first: First) -> Allocation:
    check_demand(problem)
    if not problem.devices:
        return empty_allocation()
    every = choices(problem)
    search = search_for(problem)
    run = SolverRun(search.solver, None)
    found = first(every, problem, search)
    if found.solved:
        return allocation(found, problem.demand_qps, HARDWARE)
    run = _and(run, found)
    found = _step(every, problem, accurate, search, bounded=True)
    run = _and(run, found)
    if found.solved:
        return replace(allocation(found, problem.demand_qps, ACCURACY), solved=run)
    return best_effort(every, problem, search, run)


def check_demand(problem: Problem) -> None:
    """Raise ``PlanError`` for a negative or undefined demand."""
    if not problem.demand_qps >= 0:
        raise PlanError(f"demand is {problem.demand_qps:g} queries/s; it must be 0 or more")


def empty_allocation() -> Allocation:
    """Return the plan without any usable worker."""
    binding = "devices: no usable worker; start one"
    return Allocation((), False, binding, mode=BEST_EFFORT, served_share=0.0)


def search_for(problem: Problem) -> SolveOptions:
    """Return the solve options of the problem's policy."""
    policy = problem.policy
    bounds = Bounds(GAP.of(policy), NODES.of(policy), problem.stop_s)
    least = ACCURACY_LEAST.of(policy)
    return SolveOptions(SOLVER.of(policy), bounds, problem.meter, accuracy_least=least)


def hardware(every: Choices, problem: Problem, search: SolveOptions) -> SolvedModel:
    """Solve the first step: the most accurate variants on the fewest devices."""
    return _step(most_accurate(every), problem, fewest, search, bounded=False)


def hardware_within_slo(every: Choices, problem: Problem, search: SolveOptions) -> SolvedModel:
    """Solve the first step of ``loki``: the fewest devices that reach the highest accuracy."""
    best = most_accurate(every)
    if all(needed(best).units.values()):
        return hardware(every, problem, search)
    free = replace(every, devices=dict.fromkeys(every.devices, MANY))
    found = find(free, 0.0, accurate, search, served=1.0, bounded=True)
    if not found.solved:
        return found
    reached = float(pulp.value(found.model.problem.objective)) * WHOLE
    kept = replace(search, accuracy_least=max(search.accuracy_least, reached))
    return _step(every, problem, fewest, kept, bounded=True)


def _step(
    every: Choices, problem: Problem, aim: Aim, search: SolveOptions, *, bounded: bool
) -> SolvedModel:
    return find(every, problem.demand_qps, aim, search, served=1.0, bounded=bounded)


def best_effort(
    every: Choices, problem: Problem, search: SolveOptions, run: SolverRun
) -> Allocation:
    """Return the last step's plan: the largest served share, then accuracy.

    ``run`` is the solver's run of the earlier steps.
    """
    largest = find(every, problem.demand_qps, most, search, served=None, bounded=True)
    run = _and(run, largest)
    served = largest.model.served.varValue if largest.solved else 0.0
    if served < SOME:
        _check_time(problem, search)
        _check_accuracy(every, problem, search)
        plan = _stand_in(every, problem)
    else:
        share = 1.0 if served >= WHOLE else served * NEARLY
        found = find(every, problem.demand_qps, accurate, search, served=share, bounded=True)
        run = _and(run, found)
        plan = allocation(found if found.solved else largest, problem.demand_qps, BEST_EFFORT)
        if served >= WHOLE:  # the previous step ran out of nodes
            return replace(plan, mode=ACCURACY, solved=run)
    if search.over:
        return replace(plan, feasible=False, binding=NO_TIME, solved=run)
    close = nearest_feasible(every, problem, plan.served_share, search)
    return replace(
        plan,
        feasible=False,
        nearest=close,
        binding=binding(every, problem, close),
        solved=run,
    )


def _check_time(problem: Problem, search: SolveOptions) -> None:
    """Raise ``PlanError`` if the time limit passed before any plan was found."""
    if search.over:
        raise PlanError(
            f"policy {problem.policy.name!r} found no plan within its time; raise its "
            "`solve_within`, or leave out variants"
        )


def _check_accuracy(every: Choices, problem: Problem, search: SolveOptions) -> None:
    """Raise ``PlanError`` if ``accuracy_least`` alone makes every served share infeasible."""
    free = replace(search, accuracy_least=0.0)
    best = find(every, 0.0, accurate, free, served=1.0, bounded=True)
    if search.accuracy_least and best.solved:
        reached = float(pulp.value(best.model.problem.objective))
        raise PlanError(
            f"policy {problem.policy.name!r}: accuracy_least is {search.accuracy_least:.6g}, but "
            f"within {problem.slo_s * 1e3:g} ms and {len(problem.devices)} devices the variants "
            f"reach {reached:.6g}; lower it, or raise the SLO"
        )


def _stand_in(every: Choices, problem: Problem) -> Allocation:
    """Return the plan if no query can be served in time: the fastest variants, on all devices."""
    free = dict(every.devices)
    runs: dict[str, Unit] = {}
    for task in every.tasks:
        able = [unit for unit in every.units[task.name] if free[unit.device] > 0]
        if able:
            runs[task.name] = min(able, key=lambda unit: unit.configs[0].latency_s)
            free[runs[task.name].device] -= 1
    counts: dict[str, int] = {}
    for kind, there in every.devices.items():
        own = {name: unit for name, unit in runs.items() if unit.device == kind}
        slots = {name: every.task(name).slots for name in own}
        counts |= divide(there, _loads(every, runs, own), slots, dict.fromkeys(own, 1))
    return Allocation(
        tuple(
            Replicas(
                task=name,
                variant=unit.variant,
                batch=unit.configs[0].batch,
                count=counts[name],
                device=unit.device if len(every.devices) > 1 else "",
                on=every.names[unit.device] if len(every.devices) > 1 else (),
            )
            for name, unit in runs.items()
        ),
        mode=BEST_EFFORT,
        served_share=0.0,
    )


def _loads(every: Choices, runs: Mapping[str, Unit], own: Mapping[str, Unit]) -> dict[str, float]:
    """Return the workers per query/s that each task needs with these units."""
    items = {every.tasks[0].name: 1.0}
    for name, unit in runs.items():
        items |= {child: items.get(name, 1.0) * n for child, n in unit.items.items()}
    return {name: items.get(name, 1.0) / unit.configs[0].rate for name, unit in own.items()}


def _and(run: SolverRun, found: SolvedModel) -> SolverRun:
    return SolverRun(
        run.solver, found.run.gap, run.cpu_s + found.run.cpu_s, run.wall_s + found.run.wall_s
    )
