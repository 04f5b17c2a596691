"""Enumerate fixed choices besides the optimiser's: single variants, and mixes of two of a task.

They are candidates of ``static-best`` that do not depend on the allocation model, so the search
also finds choices that are better only because of queueing, batching and dropping.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from control.policies import POLICIES
from control.policies.static import divide
from control.problem.candidates import Choices, Config, Unit, choices
from control.problem.problem import Problem
from schemas.pipeline import Policy
from schemas.variant_id import variant_id

MOST_SINGLES = 32  # combinations of one variant per task; above it only those of equal rank
MOST_MIXES = 16  # neighbours of the best choice that are tried in a round

Chosen = tuple[Unit, ...]  # one of each task


def singles(problem: Problem, name: str) -> list[Policy]:
    """Return the policies that run one variant per task on all devices; none with too few devices.

    Raises ``PlanError`` for a task that no variant can serve.
    """
    every = choices(problem)
    if len(problem.devices) < len(every.tasks):
        return []
    return [_policy(problem, every, chosen, name) for chosen in _combinations(every)]


def mixes(problem: Problem, best: Policy, name: str) -> list[Policy]:
    """Return the neighbours of a fixed choice, at most ``MOST_MIXES``, larger moves first.

    In a neighbour, one replica or half of a variant's replicas run another variant of the task.
    """
    batches = {
        key: batch
        for policy in (*singles(problem, name), best)
        for key, batch in policy.batch.items()
    }
    found = [
        replace(best, name=name, replicas=replicas, batch={k: batches[k] for k in replicas})
        for replicas in _moves(dict(best.replicas), tuple(batches))
    ]
    return found[:MOST_MIXES]


def _moves(replicas: dict[str, int], keys: tuple[str, ...]) -> Iterator[dict[str, int]]:
    for half in (True, False):
        for donor, count in replicas.items():
            moved = count // 2 if half else 1
            task = variant_id(donor).task
            others = [k for k in keys if k != donor and variant_id(k).task == task]
            if moved < 1 or (not half and count == 2):
                continue  # equal to the move of half
            for taker in others:
                made = {**replicas, donor: count - moved, taker: replicas.get(taker, 0) + moved}
                yield {key: n for key, n in made.items() if n}


def _combinations(every: Choices) -> list[Chosen]:
    units = [every.units[task.name] for task in every.tasks]
    count = 1
    for each in units:
        count *= len(each)
    if count <= MOST_SINGLES:
        return list(product(*units))
    ranked = [sorted(each, key=lambda unit: -unit.accuracy) for each in units]
    longest = max(map(len, ranked))
    return [tuple(r[min(rank, len(r) - 1)] for r in ranked) for rank in range(longest)]


def _policy(problem: Problem, every: Choices, chosen: Chosen, name: str) -> Policy:
    configs = _configs(every, chosen)
    items = _items(every, chosen)
    loads = {u.key: items[u.task] / configs[u.key].rate for u in chosen}
    caps = {unit.key: problem.pipeline.task(unit.task).slots for unit in chosen}
    start = {unit.key: 1 for unit in chosen}
    return replace(
        POLICIES["loki"].usual,
        name=name,
        kind="static",
        replicas=divide(len(problem.devices), loads, caps, start),
        batch={key: config.batch for key, config in configs.items()},
    )


def _items(every: Choices, chosen: Chosen) -> dict[str, float]:
    """Return the items of each task that one query produces."""
    items = {every.tasks[0].name: 1.0}
    for task, unit in zip(every.tasks, chosen, strict=True):
        for child in task.children:
            items[child] = items[task.name] * unit.items.get(child, 0.0)
    return items


def _configs(every: Choices, chosen: Chosen) -> Mapping[str, Config]:
    """Return each variant's largest batch within its share of the tightest path's budget.

    A path's budget is shared in proportion to the variants' smallest batch latencies.
    """
    by_task = {unit.task: unit for unit in chosen}
    found: dict[str, Config] = {}
    for leaf, budget_s in every.budget_s.items():
        path = [by_task[task] for task in _path(every, leaf)]
        least_s = sum(unit.configs[0].latency_s for unit in path)
        for unit in path:
            allowed_s = budget_s * unit.configs[0].latency_s / least_s if least_s else budget_s
            fits = [c for c in unit.configs if c.latency_s <= allowed_s] or [unit.configs[0]]
            before = found.get(unit.key)
            if before is None or fits[-1].batch < before.batch:
                found[unit.key] = fits[-1]
    return found


def _path(every: Choices, leaf: str) -> list[str]:
    parents = {child: task.name for task in every.tasks for child in task.children}
    path = [leaf]
    while path[-1] in parents:
        path.append(parents[path[-1]])
    return path
