"""Build a plan from leases: routes, capacity, expected accuracy, and feasibility."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isclose

from msgspec import structs

from control.policies import policy_named, spec_of
from control.policies.option_fields import TRAFFIC
from control.problem.candidates import budgets_s
from control.problem.forecast import (
    NOTHING,
    ExpectedTraffic,
    TrafficMix,
    accuracy_by_path,
    capacity_qps,
    expected_accuracy,
    factor,
    items_per_query,
    mix,
    routes,
    throughputs,
)
from control.problem.lazy_references import rule_named
from control.problem.problem import Problem
from control.problem.routes import (
    BALANCED,
    ROUTINGS,
    Receiver,
    most_accurate_first,
    too_slow,
)
from control.rollout.placement import Member
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease, Plan, Route

# Routes and forecasts within these differences count as equal, because demand always fluctuates.
SAME_SHARE = 0.02
SAME_PART = 0.1  # of capacity
SAME_SPARE = 0.25  # of spare capacity, which only late items use
SAME_ACCURACY = 0.001


def assemble(
    base: Plan,
    leases: Sequence[Lease],
    pipeline: Pipeline,
    profile: ProfileTable | None,
    members: Iterable[Member],
    expected: ExpectedTraffic = NOTHING,
) -> Plan:
    """Return ``base`` with other leases, and the routes and figures that follow from them.

    An infeasible plan stays infeasible; one that leaves a task without an open slot becomes so.
    """
    crew = {member.name: member for member in members}
    busy = _receivers(leases, crew)
    policy = policy_named(pipeline, base.settings.policy) or Policy(name="")
    devices = {name: member.device for name, member in crew.items()}
    paces = {name: member.pace for name, member in crew.items()}
    rates = throughputs(busy, devices, profile, policy.rate)
    if rates is not None:
        rates = {name: rate / paces[name] for name, rate in rates.items()}
    traffic = TRAFFIC.of(policy)
    shares = routes(pipeline, busy, rates, traffic)
    if (
        rule_named(ROUTINGS, policy.routing) is not None
        and profile is not None
        and rates is not None
    ):
        ways = _Ways(pipeline, profile, policy, base.tightest_slo_s, devices, rates, paces)
        with suppress(ProfileError):  # an unmeasured fan-out: routes by throughput
            shares = _tables(ways, busy, expected)
    variants = mix(busy, shares)
    items = _items(pipeline, profile, variants, expected)
    capacity = capacity_qps(pipeline, busy, rates, items, traffic) if items is not None else None
    unserved = [name for name in pipeline.task_names if name not in variants]
    return structs.replace(
        base,
        leases=_typed(leases, devices, policy, pipeline),
        routes=shares,
        capacity_qps=_admitted(base, pipeline, policy, capacity),
        expected_accuracy=_accuracy(pipeline, profile, busy, shares, variants),
        feasible=base.feasible and not unserved,
        binding=base.binding or (_waiting(unserved[0], leases) if unserved else ""),
    )


def throttled(plan: Plan, share: float) -> Plan:
    """Return the plan with ``share`` of its capacity, the observed part."""
    if plan.capacity_qps is None or share == 1.0:
        return plan
    return structs.replace(plan, capacity_qps=plan.capacity_qps * share)


def _typed(
    leases: Sequence[Lease], devices: Mapping[str, str], policy: Policy, pipeline: Pipeline
) -> tuple[Lease, ...]:
    """Return the leases, with the type of each worker's device if a dispatcher uses it."""
    tasks = {task.name for task in pipeline.dispatched}
    if _dispatches(policy):
        tasks.add(pipeline.root.name)
    types = [devices.get(x.worker, x.type) if x.task in tasks else "" for x in leases]
    return tuple(
        [
            lease if lease.type == type_ else structs.replace(lease, type=type_)
            for lease, type_ in zip(leases, types, strict=True)
        ]
    )


def _dispatches(policy: Policy) -> bool:
    return bool(policy.name) and spec_of(policy.kind).dispatches


def same(one: Plan, other: Plan) -> bool:
    """Return whether two plans are equal, apart from time, reason and negligible differences."""
    return (
        _content(one) == _content(other)
        and _alike(one.routes, other.routes)
        and _close(one.capacity_qps, other.capacity_qps, SAME_PART, 0.0)
        and _close(one.expected_accuracy, other.expected_accuracy, 0.0, SAME_ACCURACY)
    )


def _content(plan: Plan) -> Plan:
    return structs.replace(
        plan, epoch=0, issued_s=0.0, reason="", causes=(), demand_qps=0.0, factors=(), routes=(),
        capacity_qps=None, expected_accuracy=None, sessions=(), mix={}, to_egress_s={}, command="",
    )  # fmt: skip


def _alike(one: Sequence[Route], other: Sequence[Route]) -> bool:
    """Return whether routes lead to the same slots with nearly equal shares and spare capacity."""
    return len(one) == len(other) and all(
        (a.task, a.slot, a.source, a.latency_s) == (b.task, b.slot, b.source, b.latency_s)
        and abs(a.share - b.share) <= SAME_SHARE
        and _close(a.spare_qps, b.spare_qps, SAME_SPARE, 1.0)
        for a, b in zip(one, other, strict=True)
    )


def _close(one: float | None, other: float | None, part: float, least: float) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=part, abs_tol=least)


@dataclass(frozen=True, slots=True)
class _Ways:
    """The inputs of routing tables, apart from leases and demand."""

    pipeline: Pipeline
    profile: ProfileTable
    policy: Policy
    slo_s: float
    devices: Mapping[str, str]  # by worker
    rates: Mapping[str, float]  # by worker
    paces: Mapping[str, float]  # by worker

    def receiver(self, lease: Lease, pace: float = 1.0) -> Receiver:
        """Return a worker as a receiver whose batches take ``pace`` times as long as profiled;
        raise ``ProfileError`` if it was not measured."""
        latency_s = self.profile.latency_s(
            lease.task, lease.variant, self.devices[lease.worker], lease.batch, self.policy.latency
        )
        return Receiver(
            variant=lease.key,
            slot=lease.open_slot,
            accuracy=self.profile.accuracy(lease.task, lease.variant),
            capacity_qps=self.rates[lease.worker],
            latency_s=latency_s * pace,
        )

    def too_slow(self, busy: Sequence[Lease]) -> frozenset[tuple[str, str]]:
        """Return the pairs of variants that exceed a budget, as profiled: one slow worker does not
        represent its variant, and the checks of plans ignore paces."""
        pipeline = self.pipeline
        problem = Problem(
            pipeline=pipeline, policy=self.policy, slo_s=self.slo_s, demand_qps=0.0, devices=()
        )
        return too_slow(pipeline, _by_task(busy, self.receiver), budgets_s(problem))


def _tables(ways: _Ways, busy: Sequence[Lease], expected: ExpectedTraffic) -> tuple[Route, ...]:
    pipeline = ways.pipeline
    filling = replace(
        rule_named(ROUTINGS, ways.policy.routing) or BALANCED, up_to=ways.policy.utilisation
    )
    return most_accurate_first(
        pipeline,
        _by_task(busy, lambda lease: ways.receiver(lease, ways.paces[lease.worker])),
        expected.demand_qps,
        lambda sender, child: factor(ways.profile, expected.multiplicity, sender, child),
        filling,
        ways.too_slow(busy) if filling.within_budget else (),
    )


def _by_task(
    busy: Sequence[Lease], receiver: Callable[[Lease], Receiver]
) -> dict[str, list[Receiver]]:
    found: dict[str, list[Receiver]] = {}
    for lease in busy:
        found.setdefault(lease.task, []).append(receiver(lease))
    return found


def _accuracy(
    pipeline: Pipeline,
    profile: ProfileTable | None,
    busy: Sequence[Lease],
    shares: Sequence[Route],
    variants: TrafficMix,
) -> float | None:
    if profile is None:
        return None
    if not any(route.source for route in shares):
        return expected_accuracy(pipeline, profile, variants)
    try:
        return accuracy_by_path(pipeline, profile, busy, shares)
    except ProfileError:
        return None


def _receivers(leases: Sequence[Lease], crew: Mapping[str, Member]) -> list[Lease]:
    """Return the leases that get traffic: loading workers get none while others serve the task.

    Lost workers, which a plan keeps while the plan without them is refused, get none either.
    """
    opened = [each for each in leases if each.open_slot >= 0 and each.worker in crew]
    ready = [each for each in opened if crew[each.worker].serves == each.task]
    served = {lease.task for lease in ready}
    waiting = [each for each in opened if each.task not in served]
    return [*ready, *waiting]


def _items(
    pipeline: Pipeline,
    profile: ProfileTable | None,
    variants: TrafficMix,
    expected: ExpectedTraffic,
) -> dict[str, float] | None:
    if profile is None:
        return None
    try:
        return items_per_query(pipeline, profile, variants, expected.multiplicity)
    except ProfileError:
        return None


def _admitted(
    base: Plan, pipeline: Pipeline, policy: Policy, capacity: float | None
) -> float | None:
    if base.settings.paused:
        return 0.0
    # Dispatchers drop queued queries that cannot finish in time, but ignore class weights. If
    # classes share the capacity, ingress admits by weight.
    if policy.name and spec_of(policy.kind).dispatch and not pipeline.slo_classes:
        return None
    return capacity if pipeline.admission else None


def _waiting(task: str, leases: Sequence[Lease]) -> str:
    draining = sorted(lease.worker for lease in leases if lease.open_slot < 0)
    if draining:
        return f"no worker serves task {task!r} while {', '.join(draining)} still drains"
    return f"no worker serves task {task!r}; start one"
