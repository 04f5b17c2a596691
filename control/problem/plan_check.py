"""Does this plan keep every promise, whoever made it?"""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import isclose
from typing import TypeVar

from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan

T = TypeVar("T")


def check(plan: Plan, pipeline: Pipeline) -> tuple[str, ...]:
    """The promises that the plan breaks, one sentence each; empty for a good plan."""
    tasks = {task.name for task in pipeline.tasks}
    leases = [lease for lease in plan.leases if lease.task in tasks]
    broken = [*_workers(plan, tasks), *_routes(plan)]
    for lease in leases:
        broken += _lease(lease, pipeline)
    for task in pipeline.tasks:
        broken += _task(task.name, task.slots, [each for each in leases if each.task == task.name])
    if plan.feasible:
        served = {lease.task for lease in leases if lease.open_slot >= 0}
        broken += [
            f"task {name!r} has no open slot although the plan calls itself feasible"
            for name in pipeline.task_names
            if name not in served
        ]
    return tuple(broken)


def _workers(plan: Plan, tasks: set[str]) -> Iterator[str]:
    for worker, count in _repeated(lease.worker for lease in plan.leases):
        yield f"worker {worker!r} has {count} leases; it can have one"
    for lease in plan.leases:
        if lease.task not in tasks:
            yield f"worker {lease.worker!r} is to serve {lease.task!r}, which is no task"


def _lease(lease: Lease, pipeline: Pipeline) -> Iterator[str]:
    task = pipeline.task(lease.task)
    if lease.variant not in {variant.name for variant in task.variants}:
        yield f"worker {lease.worker!r} is to load {lease.variant!r}, unknown to {task.name!r}"
    if lease.batch < 1:
        yield f"worker {lease.worker!r} is to run batches of {lease.batch}; 1 is the least"
    if lease.open_slot >= 0 and lease.open_slot not in lease.slots:
        yield f"worker {lease.worker!r} does not read slot {lease.open_slot}, which it has open"
    outside = [slot for slot in lease.slots if not 0 <= slot < task.slots]
    if outside:
        yield (
            f"worker {lease.worker!r} is to read slots {outside} of task {task.name!r}, "
            f"which has 0 to {task.slots - 1}"
        )


def _task(name: str, slots: int, leases: list[Lease]) -> Iterator[str]:
    open_slots = [lease.open_slot for lease in leases if lease.open_slot >= 0]
    for slot, count in _repeated(open_slots):
        yield f"slot {slot} of task {name!r} is open for {count} workers"
    for slot, count in _repeated(slot for lease in leases for slot in lease.slots):
        yield f"slot {slot} of task {name!r} is read {count} times"
    if len(open_slots) > slots:
        yield f"task {name!r} has {len(open_slots)} replicas for {slots} slots"


def _routes(plan: Plan) -> Iterator[str]:
    open_slots = {(each.task, each.open_slot) for each in plan.leases if each.open_slot >= 0}
    sums: dict[tuple[str, str], float] = {(task, ""): 0.0 for task, _ in sorted(open_slots)}
    for route in plan.routes:
        key = (route.task, route.source)
        sums[key] = sums.get(key, 0.0) + route.share
        if (route.task, route.slot) not in open_slots:
            yield f"a route leads to slot {route.slot} of task {route.task!r}, which is not open"
        if not 0 <= route.share <= 1 + 1e-9:
            yield f"a share of task {route.task!r} is {route.share:g}; it must be in 0..1"
        if route.spare_qps < 0 or route.latency_s < 0:
            yield f"a route of task {route.task!r} tells a spare capacity or latency below 0"
    for (task, source), total in sums.items():
        if not isclose(total, 1.0, abs_tol=1e-6):
            sender = f" from {source!r}" if source else ""
            yield f"the shares of task {task!r}{sender} sum to {total:g}; it must be 1"
    for (task, slot, _), count in _repeated((r.task, r.slot, r.source) for r in plan.routes):
        yield f"slot {slot} of task {task!r} has {count} routes from one sender"


def _repeated(values: Iterable[T]) -> list[tuple[T, int]]:
    return [(value, count) for value, count in Counter(values).items() if count > 1]
