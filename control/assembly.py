"""From leases to a plan: routes, capacity, expected accuracy, and whether it is feasible."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from control.forecast import (
    capacity_qps,
    expected_accuracy,
    items_per_query,
    mix,
    routes,
    throughputs,
)
from control.placement import Member
from profiles.table import ProfileError, ProfileTable
from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan


def assemble(
    base: Plan,
    leases: Sequence[Lease],
    pipeline: Pipeline,
    profile: ProfileTable | None,
    members: Iterable[Member],
) -> Plan:
    """``base`` with other leases and all that follows from them.

    A plan that was infeasible stays so; one that leaves a task without an open slot becomes so.
    """
    crew = {member.name: member for member in members}
    busy = _receivers(leases, crew)
    rates = throughputs(busy, {name: member.device for name, member in crew.items()}, profile)
    shares = routes(pipeline, busy, rates)
    variants = mix(busy, shares)
    items = _items(pipeline, profile, variants)
    capacity = capacity_qps(pipeline, busy, rates, items) if items is not None else None
    unserved = [name for name in pipeline.task_names if name not in variants]
    return replace(
        base,
        leases=tuple(leases),
        routes=shares,
        capacity_qps=_admitted(base, pipeline, capacity),
        expected_accuracy=expected_accuracy(pipeline, profile, variants) if profile else None,
        feasible=base.feasible and not unserved,
        binding=base.binding or (_waiting(unserved[0], leases) if unserved else ""),
    )


def same(one: Plan, other: Plan) -> bool:
    """Whether two plans say the same, but for when and why."""
    return _content(one) == _content(other)


def _content(plan: Plan) -> Plan:
    return replace(plan, epoch=0, issued_s=0.0, reason="", demand_qps=0.0)


def _receivers(leases: Sequence[Lease], crew: Mapping[str, Member]) -> list[Lease]:
    """The leases that get traffic: not those of workers that still load, while others serve."""
    ready = [
        each for each in leases if each.open_slot >= 0 and crew[each.worker].serves == each.task
    ]
    served = {lease.task for lease in ready}
    waiting = [each for each in leases if each.open_slot >= 0 and each.task not in served]
    return [*ready, *waiting]


def _items(
    pipeline: Pipeline, profile: ProfileTable | None, variants: Mapping[str, Mapping[str, float]]
) -> dict[str, float] | None:
    try:
        return items_per_query(pipeline, profile, variants) if profile else None
    except ProfileError:
        return None


def _admitted(base: Plan, pipeline: Pipeline, capacity: float | None) -> float | None:
    if base.settings.paused:
        return 0.0
    return capacity if pipeline.admission else None


def _waiting(task: str, leases: Sequence[Lease]) -> str:
    draining = sorted(lease.worker for lease in leases if lease.open_slot < 0)
    if draining:
        return f"no worker serves task {task!r} while {', '.join(draining)} still drains"
    return f"no worker serves task {task!r}; start one"
