"""Convert a solved model to an allocation: consistent shares, and replicas that serve them."""

from collections import defaultdict
from math import ceil

from control.policies.loki.milp import FlowModel, Key
from control.policies.loki.milp_search import USED, SolvedModel, chosen_batches
from control.policies.loki.paths import PathNode
from control.problem.problem import Allocation, PathShare, Replicas

ROUNDING = 5e-6  # of a device: a solver's tolerance, not a load (3e-6 was observed)


def allocation(found: SolvedModel, demand_qps: float, mode: str) -> Allocation:
    """Return the solution's allocation, with no more replicas than its shares need."""
    model = found.model
    shares = _shares(model)
    served = sum(s for n, s in shares.items() if model.nodes[n].parent < 0)
    several = len(model.choices.devices) > 1
    leaves = [(model.nodes[n], s) for n, s in shares.items()
              if model.nodes[n].task in model.choices.weight]  # fmt: skip
    return Allocation(
        replicas=_replicas(model, shares, demand_qps, several),
        mode=mode,
        accuracy=_accuracy(model, leaves) / served if served else None,
        served_share=served,
        shares=tuple(
            PathShare(
                tuple(unit.key for unit in node.units),
                share,
                tuple(unit.device for unit in node.units) if several else (),
            )
            for node, share in _merged(leaves)
        ),
        solved=found.run,
    )


def _shares(model: FlowModel) -> dict[int, float]:
    """Return the share of every used node; the shares of its continuations sum to its own."""
    used = _used(model)
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for at in used:
        node = model.nodes[at]
        branch = node.task if model.choices.tied or node.parent < 0 else ""
        groups[node.parent, branch].append(at)
    exact: dict[int, float] = {}
    served = model.served.varValue
    whole = 1.0 if served > 1 - USED else served
    for (parent, _), members in groups.items():  # parents come before their continuations
        if parent >= 0 and parent not in exact:  # the parent was dropped
            continue
        to_share = exact[parent] if parent >= 0 else whole
        sum_used = sum(used[at] for at in members)
        exact.update({at: to_share * used[at] / sum_used for at in members})
    return exact


def _used(model: FlowModel) -> dict[int, float]:
    """Return nodes with a share and a replica, each continued by others down to the leaves.

    A solver may leave a share within its tolerance at a unit without replicas.
    """
    children = {task.name: len(task.children) for task in model.choices.tasks}
    continued: dict[int, set[str]] = defaultdict(set)
    used: dict[int, float] = {}
    for at in reversed(range(len(model.nodes))):
        node, share = model.nodes[at], model.share[at].varValue
        wanted = children[node.task] if model.choices.tied else min(children[node.task], 1)
        runs = round(model.replicas[node.unit.key_on_device].varValue) >= 1
        if runs and share >= USED and len(continued[at]) >= wanted:
            used[at] = share
            continued[node.parent].add(node.task)
    return dict(sorted(used.items()))


def _merged(leaves: list[tuple[PathNode, float]]) -> list[tuple[PathNode, float]]:
    """Return nodes merged over the same units, whatever their batches."""
    sums: dict[tuple[Key, ...], tuple[PathNode, float]] = {}
    for node, share in leaves:
        key = tuple(unit.key_on_device for unit in node.units)
        sums[key] = (node, sums.get(key, (node, 0.0))[1] + share)
    return list(sums.values())


def _accuracy(model: FlowModel, leaves: list[tuple[PathNode, float]]) -> float:
    weight = model.choices.weight
    return sum(
        share * node.accuracy * (weight[node.task] if model.choices.tied else 1.0)
        for node, share in leaves
    )


def _replicas(
    model: FlowModel, shares: dict[int, float], demand_qps: float, several: bool
) -> tuple[Replicas, ...]:
    configs = chosen_batches(model)
    items: dict[Key, float] = defaultdict(float)
    for at, share in shares.items():
        node = model.nodes[at]
        items[node.unit.key_on_device] += demand_qps * share * node.items
    counts = {key: max(1, ceil(each / configs[key].rate - ROUNDING)) for key, each in items.items()}
    _add_least(model, counts)
    return tuple(
        Replicas(
            task=unit.task,
            variant=unit.variant,
            batch=configs.get(unit.key_on_device, unit.configs[0]).batch,
            count=counts[unit.key_on_device],
            device=unit.device if several else "",
            on=model.choices.names[unit.device] if several else (),
        )
        for unit in model.choices.all_units
        if unit.key_on_device in counts
    )


def _add_least(model: FlowModel, counts: dict[Key, int]) -> None:
    """Add replicas of the solution beyond those that the shares need, up to each task's least.

    They keep the devices of every kind; a task with 1 needs none without queries.
    """
    for task in model.choices.tasks:
        own = [unit.key_on_device for unit in model.choices.units[task.name]]
        missing = task.least - sum(counts.get(key, 0) for key in own) if task.least > 1 else 0
        for key in sorted(own, key=lambda each: each not in counts):
            there = model.replicas.get(key)
            spare = round(there.varValue) - counts.get(key, 0) if there is not None else 0
            if (added := min(missing, spare)) > 0:
                counts[key] = counts.get(key, 0) + added
                missing -= added
