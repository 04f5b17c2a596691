"""``headrace plan``: plan for given demands, without running anything.

file = read_pipeline_file(Path("pipeline.yaml"))
for plan in plans(file, PlanRequest(demands_qps=(50.0, 100.0))):
    print(as_json(plan))
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

from control.checks.allocation_check import (
    TOLERANCE,
    accuracy_of,
    check_allocation,
    device_rate,
    items_per_s,
)
from control.checks.violations import sentences
from control.policies import known_kinds, policy_named, spec_of
from control.policies.option_fields import SOLVER, TRAFFIC, with_options
from control.policies.solvers import solve
from control.problem.candidates import paths
from control.problem.problem import (
    Allocation,
    Nearest,
    PathShare,
    PlanError,
    Problem,
    Replicas,
    Unprofiled,
)
from headrace.config.cluster_cost import cost_columns, prices
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.errors import Unfeasible
from profiles.measurements import ProfileError
from schemas.pipeline import Pipeline, Policy
from streams.cpu_seconds import spent

# Slots are partitions created up front; a dry run assumes that they do not limit the plan.
ENOUGH_SLOTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The demands and limits to plan for; None: the pipeline file's value."""

    demands_qps: tuple[float, ...]
    devices: int | None = None
    slo_s: float | None = None
    comm_s: float | None = None
    policy: str | None = None
    solver: str | None = None
    stretches: Mapping[str, float] = field(default_factory=dict)  # of latencies, by device


@dataclass(frozen=True, slots=True)
class Planned:
    """A demand's problem and its plan, and what the plan's devices cost, $ per hour."""

    problem: Problem
    allocation: Allocation
    usd_per_h: float | None = None  # None: the cluster has no prices

    @property
    def answers_qps(self) -> float:
        """The answers per second that the plan is for."""
        return self.problem.demand_qps * self.allocation.served_share


def dry_run_plans(file: PipelineFile, asked: PlanRequest) -> Iterator[Planned]:
    """Yield a plan for each demand, in order, infeasible ones included.

    Raises ``Unfeasible`` if no plan can be made, and ``PlanError`` for an unknown policy or a
    profile that lacks what the policy plans by.
    """
    first = problem(file, asked)
    for demand in asked.demands_qps:
        each = replace(first, demand_qps=demand)
        try:
            found = solve(each.policy.kind, each)
        except Unprofiled:
            raise
        except PlanError as error:
            raise Unfeasible(str(error)) from error
        broken = check_allocation(found, each)
        if broken and found.feasible:
            found = replace(found, feasible=False, binding=f"the plan fails: {sentences(broken)}")
        usd_per_h = _cost(found, each, prices(file.cluster))
        if found.feasible:
            found = with_overload(with_shares(found, each), each)
        yield Planned(each, found, usd_per_h)


def _cost(plan: Allocation, problem: Problem, by_type: Mapping[str, float]) -> float | None:
    if not by_type:
        return None
    kinds = ((next(filter(each.may_run_on, problem.devices), ""), each) for each in plan.replicas)
    return sum(by_type.get(kind, 0.0) * each.count for kind, each in kinds)


def problem(file: PipelineFile, asked: PlanRequest) -> Problem:
    """Return the pipeline file's problem with the request's overrides, for a demand of 0."""
    pipeline = file.pipeline
    pipeline = replace(
        pipeline,
        comm_s=pipeline.comm_s if asked.comm_s is None else asked.comm_s,
        tasks=tuple(replace(task, slots=ENOUGH_SLOTS) for task in pipeline.tasks),
    )
    table = planning_profile(file).stretched(asked.stretches)
    return Problem(
        pipeline=pipeline,
        policy=_policy(pipeline, asked),
        slo_s=pipeline.slo_s if asked.slo_s is None else asked.slo_s,
        demand_qps=0.0,
        devices=_devices(file, asked.devices),
        profile=table if table.entries else None,
        memory=dict(file.cluster.memory),
        path_accuracy=table.path_accuracy,
        classes=pipeline.slo_classes,
        meter=spent,
    )


def _policy(pipeline: Pipeline, asked: PlanRequest) -> Policy:
    name = asked.policy or pipeline.policy
    policy = policy_named(pipeline, name)
    if policy is None:
        known = dict.fromkeys((*known_kinds(), *(each.name for each in pipeline.policies)))
        raise PlanError(f"there is no policy {name!r}; name one with --policy: {', '.join(known)}")
    if asked.solver is None:
        return policy
    if SOLVER not in spec_of(policy.kind).options:
        raise PlanError(f"policy {name!r} has no solver to choose; leave --solver out")
    return with_options(policy, solver=asked.solver)


def _devices(file: PipelineFile, asked: int | None) -> tuple[str, ...]:
    there = file.cluster.devices
    if asked is None:
        return file.cluster.workers
    if len(there) > 1:
        raise PlanError(
            f"--devices {asked} does not say of which kind, and the cluster has "
            f"{', '.join(device for device, _ in there)}; change cluster.devices in the file"
        )
    return (there[0][0],) * asked


def as_json(planned: Planned) -> dict[str, Any]:
    """Return one line of ``headrace plan --json``."""
    plan, asked = planned.allocation, planned.problem
    several = any(each.device for each in plan.replicas)
    line: dict[str, Any] = {
        "policy": asked.policy.name,
        "demand": asked.demand_qps,
        "mode": plan.mode,
        "feasible": plan.feasible,
        "devices_used": plan.devices_used,
        "accuracy": plan.accuracy,
        "served_share": plan.served_share,
        **cost_columns(planned.usd_per_h, planned.answers_qps),
        "variants": [_variant(each, several) for each in plan.replicas],
        "shares": [_share(each, several) for each in plan.shares],
        "solver": None,
    }
    if plan.solved:
        line["solver"] = {
            "name": plan.solved.solver,
            "seconds": round(plan.solved.cpu_s, 6),
            "wall_seconds": round(plan.solved.wall_s, 6),
            "gap": plan.solved.gap,
        }
    product = by_product(planned)
    if product is not None:
        line["accuracy_product"] = product
    if not plan.feasible:
        line |= {"nearest": _nearest(plan), "binding": plan.binding}
    return line


def by_product(planned: Planned) -> float | None:
    """Return the plan's accuracy with each path's taken as the product of its variants'.

    None if no path was measured (the plan's accuracy is that product) or nothing is served.
    """
    plan, problem = planned.allocation, planned.problem
    if not problem.path_accuracy or plan.accuracy is None:
        return None
    return accuracy_of(plan, replace(problem, path_accuracy={}))


def _variant(each: Replicas, several: bool) -> dict[str, Any]:
    row = {"task": each.task, "variant": each.variant, "batch": each.batch, "replicas": each.count}
    return row | ({"device": each.device} if several else {})


def _share(each: PathShare, several: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"path": list(each.path), "share": each.share}
    return row | ({"devices": list(each.devices)} if several else {})


def _nearest(plan: Allocation) -> dict[str, Any] | None:
    if plan.nearest is None:
        return None
    slo_s = plan.nearest.slo_s
    return {
        "demand": plan.nearest.demand_qps,
        "slo_ms": None if slo_s is None else round(slo_s * 1e3, 3),
        "devices": plan.nearest.devices,
    }


def with_shares(plan: Allocation, problem: Problem) -> Allocation:
    """Return the plan with the shares of throughput routing, and the accuracy that they give.

    ``static``, ``proteus`` and policies of other packages say how many workers run which variant;
    a task's traffic is shared among its workers by what each can serve. A plan is returned as it is
    if it has shares or traffic of its own, a task has no worker or no profile, or branches are
    untied.
    """
    named = plan.shares or problem.pipeline.branches == "untied" or TRAFFIC.of(problem.policy)
    if named or problem.profile is None:
        return plan
    try:
        able = {each: each.count * device_rate(problem, each) for each in plan.replicas}
        shares = tuple(_shares(able, problem))
        found = replace(plan, shares=shares)
        return replace(found, accuracy=accuracy_of(found, problem)) if shares else plan
    except ProfileError:
        return plan


def with_overload(plan: Allocation, problem: Problem) -> Allocation:
    """Return the plan, infeasible if a variant gets more items than its workers serve.

    ``static`` runs the same replicas at any demand. A plan without shares, or for queries with
    sizes, is returned as it is.
    """
    if not plan.shares or problem.profile is None or problem.pipeline.size is not None:
        return plan
    try:
        items = items_per_s(plan, problem)
        loads = {
            each.key: items.get((each.key, each.device), 0.0)
            / (each.count * device_rate(problem, each))
            for each in plan.replicas
        }
    except ProfileError:
        return plan
    key = max(loads, key=lambda each: loads[each])
    if loads[key] <= 1 + TOLERANCE:
        return plan
    most_qps = problem.demand_qps / loads[key]
    return replace(
        plan,
        feasible=False,
        binding=f"demand exceeds the capacity of {key}: load {100 * loads[key]:.1f} %; at most "
        f"{most_qps:.4g} queries/s can be met",
        nearest=Nearest(most_qps, None, None),
    )


def _shares(able: dict[Replicas, float], problem: Problem) -> list[PathShare]:
    """Return a share for every way through the variants to every leaf task."""
    total: dict[str, float] = {}
    for each, served_per_s in able.items():
        total[each.task] = total.get(each.task, 0.0) + served_per_s
    return [
        PathShare(
            path=tuple(each.key for each in chosen),
            share=prod(able[each] / total[each.task] for each in chosen),
            devices=tuple(each.device for each in chosen),
        )
        for way in paths(problem.pipeline.tasks).values()
        for chosen in product(*([r for r in able if r.task == task] for task in way))
    ]
