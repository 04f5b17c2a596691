"""Check a plan's structure: leases, slots and routes, for any policy and devices."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isclose
from typing import TypeVar

from control.checks.violations import Constraint, Violation
from schemas.pipeline import Pipeline, Task
from schemas.records import Lease, Plan

T = TypeVar("T")


def check_structure(plan: Plan, pipeline: Pipeline) -> tuple[Violation, ...]:
    """Return a plan's violations under any conditions: leases, slots, routes."""
    tasks = {task.name: task for task in pipeline.tasks}
    known = [lease for lease in plan.leases if lease.task in tasks]
    broken = [*_workers(plan, tasks), *_routes(plan)]
    for lease in known:
        broken += _lease(lease, tasks[lease.task])
    for task in pipeline.tasks:
        broken += _task(task, [lease for lease in known if lease.task == task.name])
    served = {lease.task for lease in known if lease.open_slot >= 0}
    if plan.feasible:
        broken += [Violation(Constraint.TASK_SERVED, (t,)) for t in tasks if t not in served]
    return tuple(broken)


def _workers(plan: Plan, tasks: Mapping[str, Task]) -> Iterator[Violation]:
    for worker, count in _repeated(lease.worker for lease in plan.leases):
        yield Violation(Constraint.ONE_LEASE, (worker,), count, 1)
    for lease in plan.leases:
        if lease.task not in tasks:
            yield Violation(Constraint.KNOWN_TASK, (lease.worker, lease.task))


def _lease(lease: Lease, task: Task) -> Iterator[Violation]:
    if lease.variant not in {variant.name for variant in task.variants}:
        yield Violation(Constraint.KNOWN_VARIANT, (lease.worker, lease.key))
    if lease.batch < 1:
        yield Violation(Constraint.BATCH, (lease.worker,), lease.batch, 1)
    if lease.open_slot >= 0 and lease.open_slot not in lease.slots:
        yield Violation(Constraint.OPEN_SLOT_READ, (lease.worker,), lease.open_slot)
    for slot in lease.slots:
        if not 0 <= slot < task.slots:
            yield Violation(Constraint.SLOT_RANGE, (lease.worker, task.name), slot, task.slots)


def _task(task: Task, leases: list[Lease]) -> Iterator[Violation]:
    open_slots = [lease.open_slot for lease in leases if lease.open_slot >= 0]
    for slot, count in _repeated(open_slots):
        yield Violation(Constraint.OPEN_ONCE, (task.name, str(slot)), count, 1)
    for slot, count in _repeated(slot for lease in leases for slot in lease.slots):
        yield Violation(Constraint.READ_ONCE, (task.name, str(slot)), count, 1)
    if len(open_slots) > task.slots:
        yield Violation(Constraint.TASK_SLOTS, (task.name,), len(open_slots), task.slots)


def _routes(plan: Plan) -> Iterator[Violation]:
    open_slots = {(each.task, each.open_slot) for each in plan.leases if each.open_slot >= 0}
    sums: dict[tuple[str, str], float] = {(task, ""): 0.0 for task, _ in sorted(open_slots)}
    for route in plan.routes:
        key = (route.task, route.source)
        sums[key] = sums.get(key, 0.0) + route.share
        if (route.task, route.slot) not in open_slots:
            yield Violation(Constraint.ROUTE_OPEN, (route.task, str(route.slot)))
        if not 0 <= route.share <= 1 + 1e-9:
            yield Violation(Constraint.ROUTE_SHARE, (route.task,), route.share, 1)
        if route.spare_qps < 0 or route.latency_s < 0:
            least = min(route.spare_qps, route.latency_s)
            yield Violation(Constraint.ROUTE_FIGURES, (route.task,), least)
    for (task, source), total in sums.items():
        if not isclose(total, 1.0, abs_tol=1e-6):
            yield Violation(Constraint.SUM_OF_ROUTES, (task, source), total, 1)
    for (task, slot, _), count in _repeated((r.task, r.slot, r.source) for r in plan.routes):
        yield Violation(Constraint.ROUTE_ONCE, (task, str(slot)), count, 1)


def _repeated(values: Iterable[T]) -> list[tuple[T, int]]:
    return [(value, count) for value, count in Counter(values).items() if count > 1]
