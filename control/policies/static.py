"""The static policy: replicas from the pipeline file, or in proportion to load.

The load of a task, in workers per query/s, is

    load(t) = n(t) / u(t)        n: items per query, u: items/s of one worker

and tasks without replicas in the file share the remaining workers in proportion to it, each with
its most accurate profiled variant. Demand multiplies every load alike, so it does not change the
shares. Without a profile all loads are equal.
"""

from collections.abc import Mapping
from itertools import product

from control.problem.candidates import lacks_memory
from control.problem.forecast import items_per_query
from control.problem.problem import Allocation, PlanError, Problem, Replicas, Unplannable
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Task, Variant
from schemas.variant_id import variant_id

Counts = dict[str, int]  # "task/variant" -> workers


def allocate(problem: Problem) -> Allocation:
    """Return the workers per variant.

    With fewer workers than requested every task keeps one if possible, the rest is shared in
    proportion, and the allocation is infeasible. Raises ``PlanError`` for an unknown variant, for
    more replicas than a task has slots, and for a variant that exceeds the memory of any worker,
    because any worker may get it.
    """
    named = _named(problem)
    wanted = {**named, **_by_load(problem, named)}
    _fits_slots(problem, wanted)
    _fits_memory(problem, wanted)
    there, total = len(problem.devices), sum(wanted.values())
    if total <= there:
        return Allocation(_replicas(problem, wanted))
    binding = _asked(problem, total) if named else _one_each(problem, total)
    return Allocation(_replicas(problem, _fewer(problem, wanted)), False, binding)


def _asked(problem: Problem, total: int) -> str:
    there = len(problem.devices)
    return (
        f"policy {problem.policy.name!r} asks for {total} workers and {there} can be used; "
        f"start {total - there} more or lower its replicas"
    )


def _one_each(problem: Problem, total: int) -> str:
    there = len(problem.devices)
    return (
        f"the {len(problem.pipeline.tasks)} tasks need {total} workers and {there} can be used; "
        f"start {total - there} more, or let tasks share devices: cluster.tasks_per_device"
    )


def divide(
    total: int, weights: Mapping[str, float], caps: Mapping[str, int], start: Mapping[str, int]
) -> Counts:
    """Return whole numbers in proportion to ``weights`` (Sainte-Laguë), from ``start`` to ``caps``.

    Each unit goes where weight / (given + 1/2) is largest, in a tie to the first.
    """
    given = {name: start.get(name, 0) for name in weights}
    for _ in range(total - sum(given.values())):
        hungry = [name for name in weights if given[name] < caps[name]]
        if not hungry:
            break
        given[max(hungry, key=lambda name: weights[name] / (given[name] + 0.5))] += 1
    return given


def _named(problem: Problem) -> Counts:
    """Return the policy's replicas, else those of the variants; may be empty."""
    variants = {v.key: v for task in problem.pipeline.tasks for v in task.variants}
    unknown = [key for key in problem.policy.replicas if key not in variants]
    if unknown:
        raise Unplannable(
            f"policy {problem.policy.name!r} names {unknown[0]!r}, but the pipeline has only "
            f"{', '.join(variants)}; correct its replicas"
        )
    asked = problem.policy.replicas or {key: v.replicas or 0 for key, v in variants.items()}
    return {key: asked[key] for key in variants if asked.get(key, 0) > 0}


def _by_load(problem: Problem, named: Counts) -> Counts:
    """Return the workers for tasks without replicas, each task's least or more."""
    served = {variant_id(key).task for key in named}
    silent = [task for task in problem.pipeline.tasks if task.name not in served]
    if not silent:
        return {}
    best = {task.name: _most_accurate(task, problem) for task in silent}
    loads = _loads(problem, named, best)
    needed = sum(task.least for task in silent)
    left_over = max(len(problem.devices) - sum(named.values()), needed)
    slots = {task.name: task.slots for task in silent}
    least = {task.name: task.least for task in silent}
    shares = divide(left_over, loads, slots, least)
    return {best[task].key: count for task, count in shares.items()}


def _most_accurate(task: Task, problem: Problem) -> Variant:
    """Return the most accurate profiled variant that fits every worker's memory.

    In a tie or without a profile it is the first one. If none fits, memory is ignored.
    """
    profile = problem.profile

    def accuracy(variant: Variant) -> tuple[bool, float]:
        fits = not any(lacks_memory(problem, variant.key, device) for device in problem.devices)
        try:
            return fits, profile.accuracy(task.name, variant.name) if profile else 0.0
        except ProfileError:
            return fits, -1.0

    return max(task.variants, key=accuracy)


def _loads(problem: Problem, named: Counts, best: Mapping[str, Variant]) -> dict[str, float]:
    """Return each task's load; all equal if one of them is not measured."""
    profile = problem.profile
    if profile is None or not problem.devices:
        return dict.fromkeys(best, 1.0)
    shares: dict[str, dict[str, float]] = {task: {v.name: 1.0} for task, v in best.items()}
    for key, count in named.items():
        task, variant = variant_id(key)
        total = sum(n for other, n in named.items() if variant_id(other).task == task)
        shares.setdefault(task, {})[variant] = count / total
    try:
        items = items_per_query(problem.pipeline, profile, shares)
        return {task: items[task] / _rate(problem, profile, v) for task, v in best.items()}
    except ProfileError:
        return dict.fromkeys(best, 1.0)


def _rate(problem: Problem, profile: ProfileTable, variant: Variant) -> float:
    """Return the items per second of one worker, on average over the devices."""
    batch = problem.batch(variant)
    rates = [
        profile.throughput(variant.task, variant.name, device, batch) for device in problem.devices
    ]
    return sum(rates) / len(rates)


def _fits_slots(problem: Problem, wanted: Counts) -> None:
    for task in problem.pipeline.tasks:
        replicas = sum(wanted.get(variant.key, 0) for variant in task.variants)
        if replicas > task.slots:
            has, raised = f"has {task.slots} slots", "`slots`"
            if task.most == task.slots:  # the bound of the file, which planners treat as slots
                has, raised = f"may have {task.most} at most", "its `replicas.most`"
            raise PlanError(
                f"policy {problem.policy.name!r} asks for {replicas} replicas of task "
                f"{task.name!r}, which {has}; raise {raised} or lower the replicas"
            )


def _fits_memory(problem: Problem, wanted: Counts) -> None:
    for key, device in product(wanted, problem.devices):
        short = lacks_memory(problem, key, device) if wanted[key] > 0 else None
        if short is not None:
            size, room = short
            raise PlanError(
                f"policy {problem.policy.name!r}: {key} takes {size / 1e6:.0f} MB and a worker of "
                f"{device} has {room / 1e6:.0f} MB; name a smaller variant or raise cluster.memory"
            )


def _fewer(problem: Problem, wanted: Counts) -> Counts:
    """Return the requested replicas reduced to the available workers."""
    there = len(problem.devices)
    start: Counts = {}
    for task in problem.pipeline.tasks[:there]:
        keys = [variant.key for variant in task.variants if variant.key in wanted]
        start[max(keys, key=lambda key: wanted[key])] = 1
    return divide(there, {key: float(n) for key, n in wanted.items()}, wanted, start)


def _replicas(problem: Problem, counts: Counts) -> tuple[Replicas, ...]:
    return tuple(
        Replicas(task=v.task, variant=v.name, batch=problem.batch(v), count=counts[v.key])
        for task in problem.pipeline.tasks
        for v in task.variants
        if counts.get(v.key, 0) > 0
    )
