"""Hysteresis between allocations: near-equal plans must not alternate.

Both allocations are evaluated for the present demand: the share of it that their workers serve when
the most accurate variants are filled first, and the accuracy. The solvers' figures are not used,
because those of the allocation in force are for an earlier demand. Another allocation is worth a
change if

    served      it serves at least ``SERVED`` more of the demand
    accuracy    it serves as much, with at least ``ACCURACY`` more accuracy
    devices     it is as good with fewer devices, even for ``MARGIN`` more demand, and the present
                one has been in force for an interval

An allocation is replaced at once if it is no longer possible, or if one of its variants is no
longer on a path within the compute budget, as on devices that have become slower, and the other
allocation's variants all are.

If both leave a task without a worker, neither serves a query completely, and the other allocation
replaces the one in force because it is made for the present demand. The same applies to
allocations that were not measured.

Margin and interval prevent a demand that oscillates around a limit from moving a worker back and
forth: a spare device costs little for a while, a missing one costs answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from control.problem.candidates import FITS_S, budgets_s, device_kinds, lacks_memory, paths
from control.problem.forecast import accuracy_by_path, factor
from control.problem.problem import Allocation, Problem, Replicas
from control.problem.routes import BALANCED, Receiver, most_accurate_first
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.records import Lease
from schemas.variant_id import variant_id

SERVED = 1e-3
ACCURACY = 0.005
MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class ServedValue:
    """The part of a demand that replicas serve, 0..1, and its accuracy."""

    served: float
    accuracy: float
    devices: int


def worth_a_change(kept: Allocation, other: Allocation, problem: Problem, for_s: float) -> bool:
    """Return whether to replace an allocation, in force for ``for_s``, by another one.

    True if the allocation in force is no longer possible, or late where the other one is in time.
    """
    if not _possible(kept, problem) or (_is_late(kept, problem) and not _is_late(other, problem)):
        return True
    was, would = served_value(kept.replicas, problem), served_value(other.replicas, problem)
    if was is None or would is None or not (was.served or would.served):
        return kept.replicas != other.replicas
    if abs(would.served - was.served) > SERVED:
        return would.served > was.served
    if abs(would.accuracy - was.accuracy) > ACCURACY:
        return would.accuracy > was.accuracy
    if would.devices >= was.devices or for_s < problem.policy.interval_s:
        return False
    more = served_value(
        other.replicas, replace(problem, demand_qps=problem.demand_qps * (1 + MARGIN))
    )
    return more is not None and more.served >= would.served - SERVED


def _possible(kept: Allocation, problem: Problem) -> bool:
    """Return whether the devices of each kind and their memory suffice for an allocation."""
    kinds = {kind: len(names) for kind, names in device_kinds(problem).items()}
    there = kept.devices_used <= len(problem.devices) and all(
        sum(each.count for each in kept.replicas if each.device == kind) <= kinds.get(kind, 0)
        for kind in {each.device for each in kept.replicas if each.device}
    )
    return there and not any(
        lacks_memory(problem, each.key, device)
        for each in kept.replicas
        for device in problem.devices
        if each.may_run_on(device)
    )


def _is_late(allocation: Allocation, problem: Problem) -> bool:
    """Return whether a variant's batch, with the fastest of the other tasks, exceeds the compute
    budget of a leaf task (untied: of every one); False if a variant was not measured."""
    took_s: dict[str, list[float]] = {task.name: [] for task in problem.pipeline.tasks}
    try:
        for each in allocation.replicas:
            took_s[each.task].append(_batch_s(each, problem, problem.policy.latency))
    except ProfileError:
        return False
    fastest_s = {task: min(found, default=0.0) for task, found in took_s.items()}
    ways, budget_s = paths(problem.pipeline.tasks), budgets_s(problem)
    over = all if problem.pipeline.branches == "untied" else any
    return any(
        over(
            sum(fastest_s[name] for name in way) - fastest_s[task] + seconds
            > budget_s[leaf] + FITS_S
            for leaf, way in ways.items()
            if task in way
        )
        for task, found in took_s.items()
        for seconds in found
    )


def served_value(replicas: tuple[Replicas, ...], problem: Problem) -> ServedValue | None:
    """Return the served part of the problem's demand; None where a replica was not measured."""
    if problem.profile is None:
        return None
    try:
        return _worth(replicas, problem, problem.profile)
    except ProfileError:
        return None


def _worth(
    replicas: tuple[Replicas, ...], problem: Problem, profile: ProfileTable
) -> ServedValue | None:
    pipeline = problem.pipeline
    receivers = _receivers(replicas, problem, profile)
    if any(not receivers.get(task.name) for task in pipeline.tasks):
        return ServedValue(0.0, 0.0, sum(each.count for each in replicas))
    routes = most_accurate_first(
        pipeline,
        receivers,
        problem.demand_qps,
        lambda key, child: factor(profile, problem.multiplicity, key, child),
        BALANCED,
    )
    leases = [
        Lease(worker="", task=task, variant=variant_id(each.variant).variant, batch=1,
              slots=(each.slot,), open_slot=each.slot)
        for task, found in receivers.items() for each in found
    ]  # fmt: skip
    accuracy = accuracy_by_path(pipeline, profile, leases, routes) or 0.0
    return ServedValue(
        _served(problem, receivers, profile), accuracy, sum(each.count for each in replicas)
    )


def _receivers(
    replicas: tuple[Replicas, ...], problem: Problem, profile: ProfileTable
) -> dict[str, list[Receiver]]:
    """Return one receiver per variant, for all its replicas."""
    receivers: dict[str, list[Receiver]] = {}
    for slot, each in enumerate(replicas):
        batch_s = _batch_s(each, problem, problem.policy.rate)
        receivers.setdefault(each.task, []).append(
            Receiver(
                variant=each.key,
                slot=slot,
                accuracy=profile.accuracy(each.task, each.variant),
                capacity_qps=each.count * each.batch / batch_s,
                latency_s=batch_s,
            )
        )
    return receivers


def _batch_s(replicas: Replicas, problem: Problem, quantile: str) -> float:
    """Return the seconds of a batch on a device of the kind; raise ``ProfileError``."""
    if problem.profile is None:
        raise ProfileError(f"{replicas.key} has no profile")
    kinds = [d for d in problem.devices if replicas.device in ("", d, d.partition(":")[0])]
    device = kinds[0] if kinds else replicas.device
    return problem.profile.latency_s(
        replicas.task, replicas.variant, device, replicas.batch, quantile
    )


def _served(
    problem: Problem, receivers: Mapping[str, list[Receiver]], profile: ProfileTable
) -> float:
    """Return the share of the demand for which every task has the capacity, 0..1.

    The items at a task are those of its parent's variants, filled by accuracy.
    """
    served = 1.0
    loads = {problem.pipeline.root.name: problem.demand_qps}
    for task in problem.pipeline.tasks:
        load = loads[task.name]
        able = sum(each.capacity_qps for each in receivers[task.name])
        served = min(served, able / load if load > able else 1.0)
        made: dict[str, float] = dict.fromkeys(task.children, 0.0)
        left = load
        ordered = sorted(receivers[task.name], key=lambda each: -each.accuracy)
        for each in ordered:
            part = min(left, each.capacity_qps) if each is not ordered[-1] else left
            left -= part
            for child in task.children:
                made[child] += part * factor(profile, problem.multiplicity, each.variant, child)
        loads.update(made)
    return served
