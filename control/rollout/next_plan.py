"""Build the next plan on the way to an allocation: placement, staging, leases."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from control.policies import policy_named, spec_of
from control.problem.forecast import ExpectedTraffic, items_per_query, mix
from control.problem.lazy_references import rule_named
from control.problem.plan_reasons import PlanReason, made_for
from control.problem.problem import Allocation, Replicas
from control.problem.routes import ROUTINGS
from control.rollout.cold_start import InterimVariants, with_interims
from control.rollout.history import History
from control.rollout.leases import arrange
from control.rollout.placement import Member, Posts, place
from control.rollout.plan_builder import assemble, throttled
from control.rollout.staging import staged, within_slots
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease, Plan, Settings


@dataclass(frozen=True, slots=True)
class Target:
    """The allocation to reach, and its settings."""

    allocation: Allocation
    settings: Settings
    kinds: Mapping[str, str] = field(default_factory=dict)  # device -> its kind in the allocation

    @classmethod
    def of(cls, plan: Plan) -> "Target":
        """Return the target of a plan from before a restart."""
        counts = Counter((x.task, x.variant, x.batch) for x in plan.leases if x.open_slot >= 0)
        replicas = tuple(
            Replicas(task=task, variant=variant, batch=batch, count=count)
            for (task, variant, batch), count in sorted(counts.items())
        )
        made = Allocation(
            replicas, plan.feasible, plan.binding, plan.mode, slo_s=plan.planned_slo_s
        )
        return cls(made, plan.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """The state from which the next plan is built; ``memory`` is in bytes by device."""

    pipeline: Pipeline
    profile: ProfileTable | None
    history: History
    members: Sequence[Member]
    in_force: Plan | None
    expected: ExpectedTraffic
    capacity_share: float = 1.0  # observed share of a plan's capacity
    memory: Mapping[str, int] = field(default_factory=dict)


def scales(pipeline: Pipeline, settings: Settings) -> bool:
    """Return whether the policy in force routes by accuracy; if so, changes are staged."""
    policy = policy_named(pipeline, settings.policy)
    return policy is not None and rule_named(ROUTINGS, policy.routing) is not None


def next_plan(
    target: Target, context: PlanningContext, reasons: Sequence[PlanReason], now: float
) -> tuple[Plan, bool]:
    """Return the next plan, and whether another follows once workers have loaded."""
    plan = context.in_force
    held = {lease.worker: lease for lease in plan.leases} if plan else {}
    wanted = place(context.members, held, target.allocation, target.kinds)
    posts = wanted
    if plan is not None and scales(context.pipeline, target.settings):
        posts = _staged(wanted, plan, held, context)
    posts = _begun(posts, target.settings, held, context)
    leases = arrange(held, context.members, posts, context.history.slots)
    base = Plan(
        pipeline=context.pipeline.name,
        epoch=context.history.epoch + 1,
        issued_s=now,
        reason="",
        settings=target.settings,
        feasible=target.allocation.feasible,
        binding=target.allocation.binding,
        mode=target.allocation.mode,
        release=plan.release if plan is not None else 0,
        planned_slo_s=target.allocation.slo_s,
    )
    pipeline, profile, members = context.pipeline, context.profile, context.members
    named = made_for(base, reasons)
    made = assemble(named, leases, pipeline, profile, members, context.expected)
    return throttled(made, context.capacity_share), posts != wanted


def _staged(
    wanted: Posts, plan: Plan, held: Mapping[str, Lease], context: PlanningContext
) -> Posts:
    profile = context.profile
    policy = policy_named(context.pipeline, plan.settings.policy) or Policy(name="")
    devices = {member.name: member.device for member in context.members}

    def rate(worker: str, task: str, variant: str, batch: int) -> float:
        try:
            if profile is not None:
                device = devices[worker]
                return batch / profile.latency_s(task, variant, device, batch, policy.rate)
        except ProfileError:
            pass
        return 1.0

    posts = staged(context.members, held, wanted, _needed(plan, context), rate)
    return within_slots(posts, wanted, held, {x.name: x.slots for x in context.pipeline.tasks})


def _begun(
    posts: Posts, settings: Settings, held: Mapping[str, Lease], context: PlanningContext
) -> Posts:
    """Return the posts with interim variants if plans mix variants without a least accuracy."""
    policy, profile = policy_named(context.pipeline, settings.policy), context.profile
    if policy is None or profile is None or policy.options.get("accuracy_least"):
        return posts
    spec = spec_of(policy.kind)
    if spec.choose or not spec.mixes_variants:
        return posts
    interims = InterimVariants(
        pipeline=context.pipeline, policy=policy, profile=profile, memory=context.memory
    )
    return with_interims(context.members, held, posts, interims)


def _needed(plan: Plan, context: PlanningContext) -> dict[str, float]:
    """Return the items per second at each task, by the variant shares of the plan in force."""
    expected = context.expected
    if context.profile is None:
        return {}
    opened = [lease for lease in plan.leases if lease.open_slot >= 0]
    try:
        variants = mix(opened, plan.routes)
        items = items_per_query(context.pipeline, context.profile, variants, expected.multiplicity)
    except (KeyError, ProfileError):
        return {}
    return {task: expected.demand_qps * count for task, count in items.items()}
