"""The state of the controller: the plan in force, its settings, workers, estimates, history.

The parts of the controller share one ``ControlState``. It makes no decisions. It builds the inputs
of planning from the known state: a solve's problem, and the context of the next plan.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import fsum, inf

from msgspec.structs import replace

from control.controller.membership import Membership
from control.controller.node_releases import NodeReleases
from control.estimation.estimates import Estimates, LastSolve
from control.estimation.size_profile import PlannedBy
from control.policies import policy_named
from control.problem.plan_reasons import PlanReason, made_for
from control.problem.problem import Problem, is_exhausted
from control.rollout.history import History
from control.rollout.leases import running
from control.rollout.next_plan import PlanningContext
from control.rollout.placement import Member
from control.rollout.plan_builder import assemble, throttled
from control.rollout.target import RolloutTarget
from control.state_machine import StateMachine
from schemas.effects import COMMAND_RESULTS, PLANS, Effect, Forget, Send
from schemas.pipeline import Pipeline, Policy
from schemas.records import Command, CommandResult, Lease, Plan, Settings

NEIGHBOUR_S = 3.0  # a pipeline without a report for this long is inactive


class ControllerPhase(StrEnum):
    """The phase of a controller. A pause is none: it is a setting of the plan in force."""

    RESTORING = "restoring"  # reads the records from before a restart
    GATHERING = "gathering"  # awaits the reports of the expected workers
    PLANNING = "planning"


class PhaseChange(StrEnum):
    """An event that changes a controller's phase."""

    START = "start"
    SETTLE = "settle"  # the workers have reported, or have had time to


RESTORING, GATHERING, PLANNING = ControllerPhase
TRANSITIONS: Mapping[tuple[ControllerPhase, PhaseChange], ControllerPhase] = {
    (RESTORING, PhaseChange.START): GATHERING,
    (GATHERING, PhaseChange.SETTLE): PLANNING,
}


class ControlState:
    """The state that the parts of a controller share. ``memory`` is in bytes, by device."""

    def __init__(
        self, pipeline: Pipeline, planned_by: PlannedBy, memory: Mapping[str, int]
    ) -> None:
        self.pipeline = pipeline
        self.memory = memory
        self.plan: Plan | None = None  # in force
        self.history = History(pipeline)
        self.settings = self.history.settings()
        self.members = Membership()
        self.releases = NodeReleases()
        self.estimates = Estimates(pipeline, planned_by)
        self.target = RolloutTarget()
        self.reasons: list[PlanReason] = []  # for the next solve
        self.trouble = ""  # why the last solve gave no plan
        self.contested = False  # another controller published a newer plan, or ours was lost
        self.phase = StateMachine("the controller", TRANSITIONS, RESTORING)
        self.started_s = inf
        self.replan_s = 0.0  # time of the next solve
        self._neighbours: dict[str, float] = {}  # other pipeline -> time of its last report

    # ------------------------------------------------------------------ inputs of planning

    def policy(self, settings: Settings) -> Policy:
        """Return the policy that settings name."""
        return policy_named(self.pipeline, settings.policy) or Policy(name=settings.policy)

    def demand_qps(self, settings: Settings, now: float) -> float:
        """Return the demand to plan for."""
        return self.estimates.demand_qps(self.policy(settings), settings, now)

    def problem(self, settings: Settings, now: float) -> Problem:
        """Return the problem of a solve that begins now."""
        members = self._paced(settings, now)
        policy, reserve = self.policy(settings), _reserve(members)
        profile = self.estimates.keep_pace(policy)
        return Problem(
            pipeline=self.estimates.planned(policy),
            policy=policy,
            slo_s=settings.slo_s,
            demand_qps=self.demand_qps(settings, now) * reserve,
            reserve=reserve,
            devices=tuple(member.device for member in members if member.usable),
            profile=profile,
            memory=self.memory,
            multiplicity=self.estimates.multiplicity,
            arriving=self.estimates.arriving(now),
            queued=self.estimates.queued(now),
            running=running(self.plan.leases if self.plan else ()),
            path_accuracy=profile.path_accuracy if profile else {},
            classes=self.estimates.classes(),
        )

    def since(self, problem: Problem, now: float) -> LastSolve:
        """Return the problem of the last solve, with the present reserve and capacity."""
        slow = self.estimates.paces()
        reserve = _reserve(self._paced(self.settings, now)) if slow else 1.0
        found = None if self.plan is None or self.members.loading else self.plan.capacity_qps
        capacity_qps = inf if found is None else found / self.target.share
        # A pool that can rent more follows demand beyond its present capacity.
        exhausted = self.plan is not None and not self.plan.mix and is_exhausted(self.plan)
        return LastSolve(problem, reserve, capacity_qps, exhausted)

    def context(self, settings: Settings, now: float) -> PlanningContext:
        """Return the state from which the next plan is built."""
        return PlanningContext(
            pipeline=self.pipeline,
            profile=self.estimates.profile,
            history=self.history,
            members=self._paced(settings, now),
            in_force=self.plan,
            expected=self.estimates.expected(settings, now),
            capacity_share=self.estimates.capacity_share(self.policy(settings)),
            memory=self.memory,
        )

    def _paced(self, settings: Settings, now: float) -> tuple[Member, ...]:
        """Return the live workers with their paces."""
        paces = self.estimates.paces()
        members = self.members.members(settings.drained, now)
        return tuple(
            dataclasses.replace(each, pace=paces[each.name]) if each.name in paces else each
            for each in members
        )

    def held(self) -> dict[str, Lease]:
        """Return the leases of the plan in force, by worker."""
        return {lease.worker: lease for lease in self.plan.leases} if self.plan else {}

    # ------------------------------------------------------------------ plans

    def amended(
        self, base: Plan, leases: Sequence[Lease], reasons: tuple[PlanReason, ...], now: float
    ) -> Plan:
        """Return ``base`` with these leases and the resulting routes, for ``reasons``."""
        context = self.context(base.settings, now)
        named = made_for(base, reasons)
        profile = self.estimates.profile
        made = assemble(named, leases, self.pipeline, profile, context.members, context.expected)
        return throttled(made, context.capacity_share)

    def stamped(self, plan: Plan, now: float) -> Plan:
        """Return the plan with the next epoch and the estimates it is based on."""
        return replace(
            plan,
            epoch=self.history.next_epoch,
            issued_s=now,
            demand_qps=self.demand_qps(plan.settings, now),
            factors=self.estimates.factors,
            to_egress_s=self.estimates.to_egress_s(),
            release=self.releases.agree(now),
        )

    def enforce(self, plan: Plan) -> list[Effect]:
        """Put a plan in force; return the effects that publish it."""
        version = self.history.version(plan)
        self.members.follow(plan, self.held())
        self.estimates.serves(plan, self.policy(plan.settings))
        self.plan = plan
        self.history.add(plan)
        self.contested = False
        self.trouble = ""
        outdated, self.history.outdated = self.history.outdated, []
        gone = [Forget(PLANS, f"{plan.pipeline}/{version}") for version in outdated]
        return [Send(PLANS, plan, slot=0, key=f"{plan.pipeline}/{version}"), *gone]

    def answer(self, command: Command, ok: bool, message: str, now: float) -> Send:
        """Return the effect that sends a command's result."""
        result = CommandResult(
            id=command.id,
            pipeline=self.pipeline.name,
            action=command.action,
            ok=ok,
            message=message,
            epoch=self.plan.epoch if self.plan else 0,
            finished_s=now,
        )
        # All pipelines share the compacted topic: under the bare id, another pipeline's answer to
        # the same command would replace this one. Other control apps look for results in the first
        # partition, and a purge deletes them there.
        return Send(COMMAND_RESULTS, result, slot=0, key=f"{result.pipeline}/{command.id}")

    # ------------------------------------------------------------------ other pipelines

    def hear_of(self, pipeline: str, now: float) -> None:
        """Record a report of another pipeline."""
        self._neighbours[pipeline] = now

    def neighbours(self, now: float) -> tuple[str, ...]:
        """Return the other active pipelines on the broker."""
        known = self._neighbours
        self._neighbours = {name: at for name, at in known.items() if now - at <= NEIGHBOUR_S}
        return tuple(sorted(self._neighbours))


def _reserve(members: Iterable[Member]) -> float:
    """Return the ratio of the number of usable workers to their number at the usual pace."""
    paces = [member.pace for member in members if member.usable]
    return len(paces) / fsum(1 / pace for pace in paces) if paces else 1.0
