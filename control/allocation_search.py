"""Which shares and replicas are best? One model solved for one aim, covers added until none breaks.

Aims are functions from a model to its objective:

    fewest     min  sum of x                                (Loki, equation 11)
    accurate   max  sum of f(n) A(n) over the leaves' nodes (Loki, equation 12)
    most       max  the served share
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulp

from control.allocation_model import (
    FlowModel,
    Key,
    accuracy_terms,
    add_cover,
    flow_model,
    total,
    weighted,
)
from control.allocation_nodes import Node, TooLarge, fastest_s, nodes
from control.choices import FITS_S, Choices, Config, Unit, needed
from control.mip import Bounds, Meter, Outcome, solve_model
from control.problem import PlanError, SolverRun

# Above so many nodes with batches the form without them is quicker, and above so many nodes
# without batches no model is made.
MOST_CONFIGURED = 4_000
MOST_NODES = 40_000
MOST_ROUNDS = 200
USED = 1e-7  # a smaller share is a solver's tolerance


@dataclass(frozen=True, slots=True)
class Search:
    """How to solve: solver, its bounds, the meter, and with which form of the model."""

    solver: str
    bounds: Bounds
    meter: Meter
    most_configured: int = MOST_CONFIGURED


@dataclass(frozen=True, slots=True)
class Found:
    """A solved model and what solving took; ``solved`` tells whether there is a solution."""

    model: FlowModel
    solved: bool
    infeasible: bool  # proven
    run: SolverRun


Aim = Callable[[FlowModel], tuple[int, Any]]


def fewest(model: FlowModel) -> tuple[int, Any]:
    """The fewest devices."""
    return pulp.LpMinimize, total(model.replicas.values())


def accurate(model: FlowModel) -> tuple[int, Any]:
    """The highest accuracy."""
    return pulp.LpMaximize, weighted(accuracy_terms(model))


def most(model: FlowModel) -> tuple[int, Any]:
    """The largest served share."""
    return pulp.LpMaximize, weighted([(model.served, 1.0)])


def find(
    choices: Choices, demand_qps: float, aim: Aim, search: Search,
    *, served: float | None, bounded: bool,
) -> Found:  # fmt: skip
    """The best plan for an aim; ``served``: the share that must be served, None for any.

    Raises ``PlanError`` for a pipeline with more ways than a model can hold.
    """
    model = _model(needed(choices), demand_qps, search, bounded)
    if served is not None:
        model.served.lowBound = model.served.upBound = served
    model.problem.sense, objective = aim(model)
    model.problem.setObjective(objective)
    run = SolverRun(search.solver, None)
    for turn in range(MOST_ROUNDS):
        outcome = solve_model(model.problem, search.solver, search.bounds, search.meter)
        run = _and(run, outcome.run)
        broken = [] if model.configured or not outcome.solved else list(_broken(model))
        if not broken:
            return _settled(model, outcome, run, search)
        for at, (leaf, kept) in enumerate(broken):
            add_cover(model, leaf, kept, f"cover_{turn}_{at}")
    return Found(model, False, False, run)


def _model(choices: Choices, demand_qps: float, search: Search, bounded: bool) -> FlowModel:
    try:
        found = nodes(choices, True, search.most_configured)
        return flow_model(choices, found, demand_qps, configured=True, bounded=bounded)
    except TooLarge:
        pass
    try:
        found = nodes(choices, False, MOST_NODES)
        return flow_model(choices, found, demand_qps, configured=False, bounded=bounded)
    except TooLarge as error:
        raise PlanError(
            f"the variants of the pipeline can be combined in more than {MOST_NODES} ways; "
            "leave out variants of the tasks that have most of them"
        ) from error


def _settled(model: FlowModel, outcome: Outcome, run: SolverRun, search: Search) -> Found:
    """With whole numbers of replicas made exact and shares solved for them once more."""
    infeasible = outcome.status == "infeasible"
    if not outcome.solved or _is_exact(model):
        return Found(model, outcome.solved, infeasible, run)
    for variable in (*model.replicas.values(), *model.on.values()):
        variable.lowBound = variable.upBound = round(variable.varValue)
    again = solve_model(model.problem, search.solver, search.bounds, search.meter)
    return Found(model, again.solved, False, SolverRun(
        run.solver, run.gap, run.cpu_s + again.run.cpu_s, run.wall_s + again.run.wall_s
    ))  # fmt: skip


def _is_exact(model: FlowModel) -> bool:
    """Whether no share rests on a whole number that is none, by the solver's tolerance."""
    whole = (*model.replicas.values(), *model.on.values())
    return all(abs(v.varValue - round(v.varValue)) < 1e-9 for v in whole)


def _and(before: SolverRun, after: SolverRun) -> SolverRun:
    return SolverRun(
        after.solver, after.gap, before.cpu_s + after.cpu_s, before.wall_s + after.wall_s
    )


def chosen(model: FlowModel) -> dict[Key, Config]:
    """The batch of each unit that runs one."""
    found: dict[Key, Config] = {}
    for node in model.nodes:
        key = node.unit.key_on_device
        for config in node.unit.configs:
            on = model.on.get((key, config.batch))
            if on is None or on.varValue > 0.5:
                found[key] = config
    return found


def _broken(model: FlowModel) -> Iterator[tuple[str, list[tuple[Unit, float]]]]:
    """Covers that the solution breaks: a leaf task, units of a path to it, their seconds."""
    configs = chosen(model)
    seen: set[tuple[str, tuple[Key, ...]]] = set()
    for node, share in zip(model.nodes, model.share, strict=True):
        if node.task not in model.choices.budget_s or share.varValue < USED:
            continue
        seconds = {u.key_on_device: configs[u.key_on_device].latency_s for u in node.units}
        budget_s = model.choices.budget_s[node.task] + FITS_S
        if sum(seconds.values()) <= budget_s:
            continue
        kept = _cover(model.choices, node, seconds, budget_s)
        name = (node.task, tuple(unit.key_on_device for unit, _ in kept))
        if name not in seen:
            seen.add(name)
            yield node.task, kept


def _cover(
    choices: Choices, node: Node, seconds: Mapping[Key, float], budget_s: float
) -> list[tuple[Unit, float]]:
    """As few units of a path as possible, each as fast as possible, that still take too long."""
    took = {unit.task: seconds[unit.key_on_device] for unit in node.units}
    least = {unit.task: fastest_s(choices.units[unit.task]) for unit in node.units}
    kept = []
    for unit in sorted(node.units, key=lambda u: took[u.task] - least[u.task]):
        rest = sum(took.values()) - took[unit.task]
        if rest + least[unit.task] > budget_s:
            took[unit.task] = least[unit.task]
        else:
            took[unit.task] = min(
                c.latency_s for c in unit.configs if rest + c.latency_s > budget_s
            )
            kept.append((unit, took[unit.task]))
    return kept
