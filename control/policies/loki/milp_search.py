"""Solve the MILP for one aim, adding covers until the solution violates none.

Aims are functions from a model to its objective:

    fewest     min  sum of x                                (Loki, equation 11)
    accurate   max  sum of f(n) A(n) over the leaves' nodes (Loki, equation 12)
    most       max  the served share
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pulp

from control.policies.loki.milp import (
    FlowModel,
    Key,
    accuracy_terms,
    add_cover,
    flow_model,
    require,
    total,
    weighted,
)
from control.policies.loki.paths import PathNode, TooLarge, fastest_s, nodes
from control.problem.candidates import FITS_S, Choices, Config, Unit, needed
from control.problem.mip import INFEASIBLE, OPTIMAL, Bounds, Outcome, solve_model
from control.problem.problem import Meter, PlanError, SolverRun

# Above MOST_CONFIGURED nodes with batches, the form without batches is faster. Above MOST_NODES
# nodes without batches, no model is made.
MOST_CONFIGURED = 4_000
MOST_NODES = 40_000
ROUNDS = 20
PATIENCE = 3  # rounds that may run out of nodes; after that more covers gain little
MOST_FASTER = 3  # batches to try beside the one chosen by a solution
USED = 1e-7  # a smaller share is a solver's tolerance


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """Options of a solve: solver, its bounds, the meter, and the size limit of configured models.

    The accuracy of the served queries is at least ``accuracy_least``.
    """

    solver: str
    bounds: Bounds
    meter: Meter
    most_configured: int = MOST_CONFIGURED
    accuracy_least: float = 0.0

    @property
    def over(self) -> bool:
        """Whether the time limit of the solve has passed."""
        return self.meter()[1] >= self.bounds.stop_s


@dataclass(frozen=True, slots=True)
class SolvedModel:
    """A solved model and its solver's run; ``solved`` is whether there is a solution."""

    model: FlowModel
    solved: bool
    infeasible: bool  # proven
    run: SolverRun


Aim = Callable[[FlowModel], tuple[int, Any]]


def fewest(model: FlowModel) -> tuple[int, Any]:
    """Minimise the number of devices."""
    return pulp.LpMinimize, total(model.replicas.values())


def accurate(model: FlowModel) -> tuple[int, Any]:
    """Maximise accuracy."""
    return pulp.LpMaximize, weighted(accuracy_terms(model))


def most(model: FlowModel) -> tuple[int, Any]:
    """Maximise the served share."""
    return pulp.LpMaximize, weighted([(model.served, 1.0)])


def find(
    choices: Choices, demand_qps: float, aim: Aim, search: SolveOptions,
    *, served: float | None, bounded: bool,
) -> SolvedModel:  # fmt: skip
    """Return the best plan for an aim; ``served``: the share to serve, None for any.

    Raises ``PlanError`` for a pipeline with more paths than a model can hold.
    """
    wanted = _Wanted(demand_qps, aim, served, bounded, search.accuracy_least)
    reduced = needed(choices)
    try:
        ways = nodes(reduced, True, search.most_configured)
    except TooLarge:
        return _find_by_covers(reduced, wanted, search)
    return _find_configured(reduced, ways, wanted, search)


@dataclass(frozen=True, slots=True)
class _Wanted:
    demand_qps: float
    aim: Aim
    served: float | None
    bounded: bool
    accuracy_least: float

    def model(self, choices: Choices, ways: list[PathNode], *, configured: bool) -> FlowModel:
        """Return the model with its objective."""
        model = flow_model(
            choices, ways, self.demand_qps, configured=configured, bounded=self.bounded
        )
        if self.accuracy_least > 0:
            least = (model.served, -self.accuracy_least)
            over = weighted([*accuracy_terms(model), least])
            require(model, "accuracy_least", over >= 0)
        if self.served is not None:
            model.served.lowBound = model.served.upBound = self.served
        model.problem.sense, objective = self.aim(model)
        model.problem.setObjective(objective)
        return model


def _find_configured(
    choices: Choices, ways: list[PathNode], wanted: _Wanted, search: SolveOptions
) -> SolvedModel:
    model = wanted.model(choices, ways, configured=True)
    outcome = solve_model(model.problem, search.solver, search.bounds, search.meter)
    return _settled(model, outcome, outcome.run, search)


def _find_by_covers(choices: Choices, wanted: _Wanted, search: SolveOptions) -> SolvedModel:
    """Add covers until the solution violates none, or a plan as good as its bound is known.

    After each round, the batches chosen by the solution give a feasible plan, over the paths that
    fit with them. The solution, which ignores covers not yet added, bounds every plan.
    """
    model = wanted.model(choices, _ways(choices), configured=False)
    run, best, bound = SolverRun(search.solver, None), None, float("nan")
    relaxed, near = _per_round(search.bounds, len(model.nodes)), _per_round(search.bounds, 1)
    patience = PATIENCE
    for turn in range(ROUNDS):
        outcome = solve_model(model.problem, search.solver, relaxed, search.meter)
        run = _and(run, outcome.run)
        if not outcome.solved:
            break
        broken = list(_broken(model))
        found = (
            _settled(model, outcome, run, search)
            if not broken
            else _repaired(choices, model, wanted, replace(search, bounds=near))
        )
        run = _and(run, found.run) if broken else found.run
        bound = _tighter(bound, _bound(model, outcome), model)
        best = _better(best, found)
        gap = _gap(best, bound)
        if best is not None and (not broken or (gap is not None and gap <= search.bounds.gap)):
            return replace(best, run=replace(run, gap=gap))
        patience -= outcome.status != OPTIMAL
        if not patience:
            break
        for at, (leaf, kept) in enumerate(broken):
            add_cover(model, leaf, kept, f"cover_{turn}_{at}")
    if best is None:
        return SolvedModel(model, False, outcome.status == INFEASIBLE, run)
    return replace(best, run=replace(run, gap=_gap(best, bound)))


def _ways(choices: Choices) -> list[PathNode]:
    try:
        return nodes(choices, False, MOST_NODES)
    except TooLarge as error:
        raise PlanError(
            f"the variants of the pipeline can be combined in more than {MOST_NODES} ways; "
            "leave out variants of the tasks that have most of them"
        ) from error


def _per_round(bounds: Bounds, columns: int) -> Bounds:
    """Return the bounds of one round: a part of the nodes, fewer if each takes longer."""
    return replace(bounds, nodes=max(1, int(bounds.nodes / ROUNDS * min(1.0, 500 / columns))))


def _repaired(
    choices: Choices, model: FlowModel, wanted: _Wanted, search: SolveOptions
) -> SolvedModel:
    """Return the best plan near a solution that violates covers: its batches or slightly faster.

    The number of faster batches is limited by the usual model size. Units without a chosen batch
    run their fastest.
    """
    configs = chosen_batches(model)
    for faster in reversed(range(MOST_FASTER + 1)):
        near = replace(
            choices,
            units={
                task: tuple(replace(unit, configs=_near(unit, configs, faster)) for unit in units)
                for task, units in choices.units.items()
            },
        )
        try:
            ways = nodes(near, True, search.most_configured if faster else MOST_NODES)
        except TooLarge:
            continue
        return _find_configured(near, ways, wanted, search)
    raise AssertionError("one batch for each unit makes no more ways than there are without")


def _near(unit: Unit, configs: Mapping[Key, Config], faster: int) -> tuple[Config, ...]:
    config = configs.get(unit.key_on_device)
    at = unit.configs.index(config) if config else 0
    return unit.configs[max(0, at - faster) : at + 1]


def _value(model: FlowModel) -> float:
    return float(pulp.value(model.problem.objective))


def _bound(model: FlowModel, outcome: Outcome) -> float:
    value, gap = _value(model), outcome.run.gap or 0.0
    sign = 1.0 if model.problem.sense == pulp.LpMaximize else -1.0
    return value + sign * gap * abs(value)


def _tighter(one: float, other: float, model: FlowModel) -> float:
    if one != one:  # no bound yet
        return other
    return min(one, other) if model.problem.sense == pulp.LpMaximize else max(one, other)


def _better(one: SolvedModel | None, other: SolvedModel) -> SolvedModel | None:
    if not other.solved:
        return one
    if one is None:
        return other
    more = _value(other.model) > _value(one.model)
    return other if more == (other.model.problem.sense == pulp.LpMaximize) else one


def _gap(best: SolvedModel | None, bound: float) -> float | None:
    if best is None:
        return None
    value = _value(best.model)
    return abs(bound - value) / max(abs(value), 1e-9)


def _settled(
    model: FlowModel, outcome: Outcome, run: SolverRun, search: SolveOptions
) -> SolvedModel:
    """Return the solution with integer replicas, and shares solved again for them."""
    infeasible = outcome.status == INFEASIBLE
    if not outcome.solved or _is_exact(model):
        return SolvedModel(model, outcome.solved, infeasible, run)
    for variable in (*model.replicas.values(), *model.on.values()):
        variable.lowBound = variable.upBound = round(variable.varValue)
    again = solve_model(model.problem, search.solver, search.bounds, search.meter)
    return SolvedModel(model, again.solved, False, SolverRun(
        run.solver, run.gap, run.cpu_s + again.run.cpu_s, run.wall_s + again.run.wall_s
    ))  # fmt: skip


def _is_exact(model: FlowModel) -> bool:
    """Return whether all integer variables are exactly integers."""
    whole = (*model.replicas.values(), *model.on.values())
    return all(abs(v.varValue - round(v.varValue)) < 1e-9 for v in whole)


def _and(before: SolverRun, after: SolverRun) -> SolverRun:
    return SolverRun(
        after.solver, after.gap, before.cpu_s + after.cpu_s, before.wall_s + after.wall_s
    )


def chosen_batches(model: FlowModel) -> dict[Key, Config]:
    """Return the batch of each unit that runs one."""
    found: dict[Key, Config] = {}
    for node in model.nodes:
        key = node.unit.key_on_device
        for config in node.unit.configs:
            on = model.on.get((key, config.batch))
            if on is None or on.varValue > 0.5:
                found[key] = config
    return found


def _broken(model: FlowModel) -> Iterator[tuple[str, list[tuple[Unit, float]]]]:
    """Yield violated covers: a leaf task, units of a path to it, and their seconds."""
    configs = chosen_batches(model)
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
    choices: Choices, node: PathNode, seconds: Mapping[Key, float], budget_s: float
) -> list[tuple[Unit, float]]:
    """Return as few units of a path as possible, as fast as possible, that still take too long."""
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
