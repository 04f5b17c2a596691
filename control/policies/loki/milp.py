"""The MILP of accuracy scaling: shares of a pipeline's queries among its variants.

A *node* n is a path of units from the root to some task, either with a batch for each unit
("configured") or without. With f(n) the share of the queries that follow it, m(n) the items of one
query that reach its last unit, x(u) the replicas of a unit, y(u, b) whether it runs batch b:

    served       sum of f over the nodes of the root                       == served share
    onward       sum of f over the nodes that continue n at task c         == f(n)   each child c
                 (untied: over those that continue n at any child          == f(n))
    capacity     sum of D m(n) f(n) / q(u, b) over the nodes that end in u <= x(u)
    present      sum of f over the nodes that end in u                     <= x(u)
    batch        sum of f over the nodes that end in (u, b)                <= y(u, b)
    one_batch    sum of y(u, b) over b                                     <= 1
    devices      sum of x over the units of a kind                         <= how many there are
    slots        sum of x over the units of a task                         <= its slots
    share        sum of f over the nodes of a task                         in its bounds

The model has only nodes from which every leaf below is reachable within its compute budget, so that
it needs no indicators and no big M (Loki, section 4.1, writes indicators; its code a big M of 1e5).
Tied branches share f(n) of their common prefix, because every query visits all of them.

The number of configured nodes grows with (variants x batches)^depth. If there are too many, nodes
are paths of units alone, and with g(u, b) items/s at batch b, "batch" is replaced by

    load         sum of D m(n) f(n) over the nodes that end in u           == sum of g(u, b)
    used         sum of f over the nodes that end in u                     <= sum of y(u, b)
    capacity     sum of g(u, b) / q(u, b) over b                           <= x(u)
    batch        g(u, b)  <=  the most items/s that can reach u  *  y(u, b)
    cover        sum of f over the leaf's nodes that contain all of K
                 <= sum over u in K of the y(u, b) that are faster than b_u

for every set K of units on one path whose batches b_u, with the fastest of the other tasks, take
longer than the budget. Covers are added when a solution violates them (``milp_search.py``).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pulp

from control.policies.loki.paths import PathNode
from control.problem.candidates import Choices, Unit

Key = tuple[str, str, str]  # task, variant, kind of device


@dataclass(frozen=True, slots=True)
class FlowModel:
    """A PuLP model without objective, and its variables; ``served`` is the share served."""

    choices: Choices
    nodes: list[PathNode]
    problem: Any
    served: Any
    share: list[Any]  # of each node
    replicas: dict[Key, Any]
    on: dict[tuple[Key, int], Any]  # unit, batch; for units with several batches
    configured: bool


def flow_model(
    choices: Choices, nodes: list[PathNode], demand_qps: float, *, configured: bool, bounded: bool
) -> FlowModel:
    """Return the model of the constraints above; ``bounded``: with the bounds on shares."""
    problem = pulp.LpProblem("allocation", pulp.LpMaximize)
    present = list({node.unit.key_on_device: node.unit for node in nodes}.values())
    model = FlowModel(
        choices=choices,
        nodes=nodes,
        problem=problem,
        served=problem.add_variable("served", 0, 1),
        share=[problem.add_variable(f"share_{at}", 0, 1) for at in range(len(nodes))],
        replicas={
            unit.key_on_device: problem.add_variable(
                f"replicas_{at}", 0, choices.devices[unit.device], pulp.LpInteger
            )
            for at, unit in enumerate(present)
        },
        on={
            (unit.key_on_device, config.batch): problem.add_variable(
                f"on_{at}_{config.batch}", 0, 1, pulp.LpInteger
            )
            for at, unit in enumerate(present)
            if len(unit.configs) > 1
            for config in unit.configs
        },
        configured=configured,
    )
    _add_flow(model)
    for at, unit in enumerate(present):
        ending = [(n, f) for n, f in zip(nodes, model.share, strict=True)
                  if n.unit.key_on_device == unit.key_on_device]  # fmt: skip
        _add_unit(model, at, unit, ending, demand_qps)
    _add_limits(model, present)
    if bounded:
        _add_bounds(model)
    return model


def weighted(terms: Iterable[tuple[Any, float]]) -> Any:
    """Return the sum of variable x coefficient."""
    return pulp.LpAffineExpression(list(terms))


def total(variables: Iterable[Any]) -> Any:
    """Return the sum of variables."""
    return weighted((variable, 1.0) for variable in variables)


def require(model: FlowModel, name: str, constraint: Any) -> None:
    """Add a constraint by name."""
    model.problem.addConstraint(constraint, name)


def accuracy_terms(model: FlowModel) -> Iterator[tuple[Any, float]]:
    """Yield leaf shares with their coefficients in the plan's accuracy."""
    for node, share in zip(model.nodes, model.share, strict=True):
        weight = model.choices.weight.get(node.task)
        if weight is not None:
            yield share, node.accuracy * (weight if model.choices.tied else 1.0)


def _add_flow(model: FlowModel) -> None:
    onward: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for node, share in zip(model.nodes, model.share, strict=True):
        branch = node.task if model.choices.tied or node.parent < 0 else ""
        onward[node.parent, branch].append(share)
    root = model.choices.tasks[0].name
    require(model, "served", total(onward.pop((-1, root), [])) == model.served)
    for (at, task), shares in onward.items():
        require(model, f"onward_{at}_{task}", total(shares) == model.share[at])


def _add_unit(
    model: FlowModel, at: int, unit: Unit, ending: list[tuple[PathNode, Any]], demand_qps: float
) -> None:
    replicas = model.replicas[unit.key_on_device]
    require(model, f"present_{at}", total(f for _, f in ending) <= replicas)
    batches = [(c, model.on.get((unit.key_on_device, c.batch))) for c in unit.configs]
    if len(batches) > 1:
        require(model, f"one_batch_{at}", total(on for _, on in batches) <= 1)
    if model.configured or len(batches) == 1:
        _add_configured(model, at, unit, ending, demand_qps)
    else:
        _add_load(model, at, unit, ending, demand_qps)


def _add_configured(
    model: FlowModel, at: int, unit: Unit, ending: list[tuple[PathNode, Any]], demand_qps: float
) -> None:
    """Add capacity and batch constraints of a unit with configured nodes or a single batch."""
    loads = []
    for config in unit.configs:
        own = [(n, f) for n, f in ending if not n.configs or n.configs[-1] == config]
        loads += [(f, demand_qps * n.items / config.rate) for n, f in own]
        on = model.on.get((unit.key_on_device, config.batch))
        if on is not None:
            require(model, f"batch_{at}_{config.batch}", total(f for _, f in own) <= on)
    require(model, f"capacity_{at}", weighted(loads) <= model.replicas[unit.key_on_device])


def _add_load(
    model: FlowModel, at: int, unit: Unit, ending: list[tuple[PathNode, Any]], demand_qps: float
) -> None:
    """Add load, capacity and batch constraints of a unit whose nodes are not configured."""
    key = unit.key_on_device
    rates = []
    most = max((demand_qps * n.items for n, _ in ending), default=0.0)
    for config in unit.configs:
        on = model.on[key, config.batch]
        rate = model.problem.add_variable(f"rate_{at}_{config.batch}", 0)
        cap = min(most, config.rate * model.choices.devices[unit.device])
        require(model, f"batch_{at}_{config.batch}", rate <= cap * on)
        rates.append((rate, config.rate))
    arriving = weighted((f, demand_qps * n.items) for n, f in ending)
    require(model, f"load_{at}", arriving == total(rate for rate, _ in rates))
    require(
        model,
        f"capacity_{at}",
        weighted((rate, 1 / most_s) for rate, most_s in rates) <= model.replicas[key],
    )
    require(
        model,
        f"used_{at}",
        total(f for _, f in ending) <= total(model.on[key, c.batch] for c in unit.configs),
    )


def _add_limits(model: FlowModel, present: list[Unit]) -> None:
    def replicas(units: Iterable[Unit]) -> Any:
        return total(model.replicas[unit.key_on_device] for unit in units)

    devices = model.choices.devices
    for at, (kind, count) in enumerate(devices.items()):
        require(model, f"devices_{at}", replicas(u for u in present if u.device == kind) <= count)
    for task in model.choices.tasks:
        own = [unit for unit in present if unit.task == task.name]
        if task.slots < sum(devices.values()):
            require(model, f"slots_{task.name}", replicas(own) <= task.slots)
        if task.least > 1:
            require(model, f"replicas_{task.name}", replicas(own) >= task.least)


def _add_bounds(model: FlowModel) -> None:
    for task in model.choices.tasks:
        least, most = task.share
        there = total(
            f for n, f in zip(model.nodes, model.share, strict=True) if n.task == task.name
        )
        if least > 0:
            require(model, f"least_{task.name}", there >= least * model.served)
        if most < 1:
            require(model, f"most_{task.name}", there <= most * model.served)


def add_cover(model: FlowModel, leaf: str, kept: list[tuple[Unit, float]], name: str) -> None:
    """Forbid queries over all units of ``kept`` unless one of them runs faster than its seconds."""
    keys = {unit.key_on_device for unit, _ in kept}
    over = total(
        f
        for n, f in zip(model.nodes, model.share, strict=True)
        if n.task == leaf and keys <= {unit.key_on_device for unit in n.units}
    )
    faster = total(
        model.on[unit.key_on_device, config.batch]
        for unit, seconds in kept
        if len(unit.configs) > 1
        for config in unit.configs
        if config.latency_s < seconds
    )
    require(model, name, over <= faster)
