"""The control node: reports and commands in, plans out.

Records of earlier lives (plans, command results) arrive before the first ``Woke``, which starts the
node. From then on it solves when a worker is new, leaves or is lost, when a command asks for it,
when demand jumps or fan-out drifts, and at the policy's interval; one solve at a time. The result
of a solve is the target; on the way there, when workers have loaded or drained, plans follow
without a solve, and so do routes as demand moves. Slots of a lost worker are reassigned at once,
and ``pause`` and ``resume`` neither need a solve nor wait for one.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from control.checks.violations import sentences
from control.controller.command_queue import COMMAND_VALID_S, CommandQueue, Pending
from control.controller.commands import PAUSES, CommandError, Situation, carry_out, unexpired
from control.controller.membership import GRACE_S, REPORT_AGE_S, Membership, ReportAges
from control.controller.node_releases import NodeReleases
from control.controller.plan_gate import PlanGate
from control.estimation.estimates import Estimates
from control.policies import policy_named
from control.policies.ramsis.table_jobs import TableJobs
from control.problem.plan_reasons import (
    FIRST,
    HANDOVER,
    INTERVAL,
    PlanReason,
    about_worker,
    after_failure,
    by_command,
    causes,
    older_release,
    plan_lost,
    sentence,
    workers_lost,
)
from control.problem.problem import Problem
from control.rollout.history import History
from control.rollout.leases import running, without
from control.rollout.next_plan import PlanningContext
from control.rollout.plan_builder import assemble, same
from control.rollout.target import RolloutTarget
from profiles.profile_table import ProfileTable
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    PLANS,
    REPORTS,
    Arrived,
    Assign,
    Counted,
    Effect,
    Event,
    Failed,
    Forget,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)
from schemas.enumerations import PlanCause
from schemas.pipeline import Pipeline, Policy
from schemas.records import Command, CommandResult, Garbled, Lease, Plan, Report, Settings

TICK_S = 0.1
JUST_S = 0.001  # after the time at which a worker counts as lost
UNLIKE_S = 1.0  # least time from a solve to the next because estimates have changed
FIRST_PLAN_S = 3.0  # the first plan waits this long for all workers
MERGE_S = 0.25
CONTEST_S = 1.0  # time until another controller's plan is replaced
NEIGHBOUR_S = 3.0  # a pipeline without a report for this long is not up
ANY_MEMORY: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """A solve in flight: its problem, its reasons, and the command that waits for it."""

    job: int
    problem: Problem
    settings: Settings
    reasons: tuple[PlanReason, ...]
    pending: Pending | None


class Controller:
    """The control node. ``memory`` is the bytes that one worker may use, by device.

    Invariants: epochs of its plans grow; no plan goes out that ``control/checks`` refuses.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        profile: ProfileTable | None,
        expected_workers: int,
        memory: Mapping[str, int] = ANY_MEMORY,
    ) -> None:
        self._pipeline = pipeline
        self._profile = profile
        self._memory = memory
        self._expected = expected_workers
        self._plan: Plan | None = None  # in force
        self._history = History(pipeline)
        self._settings = self._history.settings()
        self._members, self._releases = Membership(), NodeReleases()
        self._estimates = Estimates(pipeline, profile)
        self._command_queue = CommandQueue()
        self._in_flight: _Flight | None = None
        self._job = 0
        self._target = RolloutTarget()
        self._table_jobs = TableJobs(pipeline, profile, memory)
        self._asked: Problem | None = None  # of the last solve
        self._reasons: list[PlanReason] = []
        self._ready: list[PlanReason] = []  # reasons that wait to be merged with more of their kind
        self._trouble = ""  # why the last solve gave no plan
        self._gate = PlanGate(pipeline, memory, self._table_jobs.sets)
        self._quiet: frozenset[str] = frozenset()
        self._neighbours: dict[str, float] = {}  # other pipelines -> time of their last report
        # News: of a report since the last review.
        self._contested = self._settled = self._news = False
        self._ages = ReportAges()
        self._started_s: float | None = None
        # Times: last solve, next solve, merge of ready workers, next tick.
        self._asked_s = self._replan_s = self._merge_s = self._wake_s = 0.0

    def handle(self, event: Event, now: float) -> list[Effect]:
        if self._started_s is not None:
            self._members.wake(now)
        effects = self._take(event, now)
        if self._started_s is None or self._routine(event, now):
            return effects
        return [*effects, *self._review(now)]

    def _routine(self, event: Event, now: float) -> bool:
        """Return whether an event calls for nothing before the next tick: a report without news.

        A review looks at every worker, and a thousand workers report 5,000 times a second.
        """
        if type(event) is not Arrived or type(event.record) is not Report or now >= self._wake_s:
            return False
        news, self._news = self._news, False
        return not news

    def _take(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Arrived):
            return self._arrived(event, now)
        if isinstance(event, Counted):
            self._counted(event, now)
        if isinstance(event, Solved):
            return self._solved(event, now)
        if isinstance(event, Failed):
            return self._failed(event, now)
        if isinstance(event, Woke) and self._started_s is None:
            self._start(now)
            return [Assign(topic, (0,)) for topic in (PLANS, REPORTS, COMMANDS)]
        return []

    # ------------------------------------------------------------------ events

    def _arrived(self, event: Arrived, now: float) -> list[Effect]:
        record = event.record
        if isinstance(record, Report):
            self._report(record, now)
        elif isinstance(record, Plan):
            self._seen(record, now)
        elif isinstance(record, CommandResult) and record.pipeline == self._pipeline.name:
            self._command_queue.answered(record.id)
        elif isinstance(record, Command):
            self._command(record, event, now)
        elif isinstance(record, Garbled) and event.topic == COMMANDS:
            return self._garbled(record, record.id or _name(event), event.at_s, now)
        return []

    def _report(self, report: Report, now: float) -> None:
        if self._ages.age_s(report, now) > REPORT_AGE_S:
            return
        if report.pipeline != self._pipeline.name:
            self._neighbours[report.pipeline] = now
            return
        self._estimates.observe(report)
        self._members.listen(now)
        if self._releases.observe(report, now):
            self._news = True
            self._reasons.append(older_release(report.node, self._releases.agreed))
        self._look_ahead(report, now)
        if report.role == "worker":
            self._worker_news(self._members.observe(report, now), now)

    def _look_ahead(self, report: Report, now: float) -> None:
        """Outbid a plan that nodes follow and that the plans topic has lost."""
        if self._history.lost(report.epoch, now):
            self._contested = self._news = True
            self._reasons.append(plan_lost(report.epoch))

    def _counted(self, event: Counted, now: float) -> None:
        if now - event.at_s <= REPORT_AGE_S:
            self._estimates.count(event)

    def _worker_news(self, news: PlanReason | None, now: float) -> None:
        if news is None:
            return
        self._news = True
        if news.cause == PlanCause.WORKER_SERVES:
            # Others of the same round of reports are likely to follow: one plan for all.
            self._merge_s = self._merge_s if self._ready else now + MERGE_S
            self._ready.append(news)
        else:
            self._reasons.append(news)

    def _command(self, command: Command, event: Arrived, now: float) -> None:
        # A command without a pipeline is for those that were up: not for one that comes up later.
        began_s = float("inf") if self._started_s is None else self._started_s
        nameless = not command.pipeline and event.at_s >= began_s
        ours = nameless or command.pipeline == self._pipeline.name
        if ours and now - event.at_s <= COMMAND_VALID_S:
            dated = replace(command, id=command.id or _name(event), issued_s=event.at_s)
            self._command_queue.accept(dated)

    def _seen(self, plan: Plan, now: float) -> None:
        """Record a plan on the topic: from an earlier life, our own, or another controller's."""
        if plan.pipeline != self._pipeline.name or self._history.has(plan):
            return
        newest = plan.epoch >= self._history.epoch
        self._history.add(plan)
        if newest and self._started_s is not None:
            # Not at once: two controllers would outbid each other as fast as the broker allows.
            self._contested = True
            self._replan_s = min(self._replan_s, now + CONTEST_S)

    def _garbled(self, garbled: Garbled, name: str, at_s: float, now: float) -> list[Effect]:
        expired = now - at_s > COMMAND_VALID_S
        if expired or not self._command_queue.know(name):
            return []
        command = Command(id=name, pipeline=self._pipeline.name, action="")
        return [self._answer(command, False, garbled.reason, now)]

    def _start(self, now: float) -> None:
        self._started_s = now
        self._members.wake(now)
        self._replan_s = now
        newest = self._history.newest
        if newest is None:
            return
        self._releases.resume(newest, now)
        self._estimates.recall(newest)
        self._settings = self._history.settings()
        self._plan = replace(newest, leases=self._history.fitting(newest))
        self._members.expect(self._plan.leases, now)
        self._target.resume(self._plan)
        self._members.follow(self._plan, {})

    # ------------------------------------------------------------------ decisions

    def _review(self, now: float) -> list[Effect]:
        """Return the effects that the current state calls for."""
        effects = self._bury(now)
        self._settled = self._settled or self._is_settled(now)
        if self._settled:
            quiet = frozenset(self._members.quiet(now))
            drained = sorted(quiet - self._quiet)
            self._target.moved(about_worker(x, PlanCause.WORKER_DRAINED) for x in drained)
            self._quiet = quiet
            if now >= self._merge_s:
                self._target.moved(self._ready)
                self._ready = []
            effects += self._pauses(now)
            effects += self._next_command(now)
            effects += self._solve(now)
            effects += self._advance(now)
            effects += self._table_jobs.more()
        if now >= self._wake_s:
            # Also when a silent worker's time is up, so that its loss is noticed at once.
            lost_s = self._members.next_loss_s(now) + JUST_S
            self._wake_s = min(now + TICK_S, lost_s)
            effects.append(Wake(self._wake_s))
        return effects

    def _is_settled(self, now: float) -> bool:
        """Return whether the workers expected at the start have reported, or have had time to."""
        assert self._started_s is not None
        if self._members.unreported or not self._members:
            return False
        takes_over = self._plan is not None and self._plan.leases
        patience_s = GRACE_S if takes_over else FIRST_PLAN_S
        return len(self._members) >= self._expected or now - self._started_s >= patience_s

    def _bury(self, now: float) -> list[Effect]:
        """Reassign lost workers' slots now; placement is replanned later."""
        lost = self._members.bury(now)
        if not lost:
            return []
        reason = workers_lost(lost)
        self._reasons.append(reason)
        plan, held = self._plan, self._held()
        if plan is None or held.keys().isdisjoint(lost):
            return []
        ground = self._ground(plan.settings, now)
        leases = without(held, lost, self._history.slots)
        base = replace(plan, reason=sentence((reason, HANDOVER)), causes=causes((reason, HANDOVER)))
        profile = self._estimates.profile
        made = assemble(base, leases, self._pipeline, profile, ground.members, ground.expected)
        return self._publish(made, now)

    def _pauses(self, now: float) -> list[Effect]:
        """Carry out ``pause`` and ``resume`` at once, whatever solve is in flight."""
        effects: list[Effect] = []
        if self._plan is None:  # the first plan needs a solve anyway
            return effects
        for command in self._command_queue.urgent(PAUSES):
            try:
                unexpired(command, now)
                settings, message = carry_out(command, self._situation(now))
            except CommandError as error:
                effects.append(self._answer(command, False, str(error), now))
                continue
            effects += self._pause(command, settings, message, now)
        return effects

    def _pause(
        self, command: Command, settings: Settings, message: str, now: float
    ) -> list[Effect]:
        assert self._plan is not None
        paused = settings.paused
        reasons = (by_command(command.action, command.id),)
        base = replace(
            self._plan,
            settings=replace(self._plan.settings, paused=paused),
            reason=sentence(reasons),
            causes=causes(reasons),
        )
        ground = self._ground(base.settings, now)
        made = assemble(
            base, base.leases, self._pipeline, self._estimates.profile, ground.members,
            ground.expected,
        )  # fmt: skip
        effects = self._publish(made, now)
        done = self._plan is not None and self._plan.settings.paused == paused
        if done:
            self._keep_paused(paused=paused)
        return [*effects, self._answer(command, done, message if done else self._trouble, now)]

    def _keep_paused(self, *, paused: bool) -> None:
        """Apply a pause to what is under way: the target, a solve in flight, a pending command."""
        self._settings = replace(self._settings, paused=paused)
        self._target.pause(paused=paused)
        pending = self._command_queue.pending
        if pending is not None:
            pending = dataclasses.replace(pending, before=replace(pending.before, paused=paused))
            self._command_queue.pending = pending
        flight = self._in_flight
        if flight is not None:
            self._in_flight = dataclasses.replace(
                flight,
                settings=replace(flight.settings, paused=paused),
                pending=pending if flight.pending is not None else None,
            )

    def _next_command(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while (command := self._command_queue.next()) is not None:
            try:
                unexpired(command, now)
                settings, message = carry_out(command, self._situation(now))
            except CommandError as error:
                effects.append(self._answer(command, False, str(error), now))
                continue
            self._command_queue.pending = Pending(command, message, self._settings)
            self._settings = settings
        return effects

    def _situation(self, now: float) -> Situation:
        return Situation(
            pipeline=self._pipeline,
            settings=self._settings,
            devices=self._members.devices,
            plans=self._history.plans,
            neighbours=self._other_pipelines(now),
        )

    def _solve(self, now: float) -> list[Effect]:
        # Without reports no demand is known: only a command replaces the plan in force.
        deaf = self._members.isolated(now) and self._command_queue.pending is None
        if self._in_flight is not None or deaf:
            return []
        if now >= self._replan_s:
            self._reasons.append(INTERVAL if self._plan else FIRST)
        elif self._asked is not None and now - self._asked_s >= UNLIKE_S:
            unlike = self._estimates.unlike(self._asked, self._settings, now)
            self._reasons += [unlike] if unlike else []
        if not self._reasons and self._command_queue.pending is None:
            return []
        self._job += 1
        problem = self._problem(self._settings, now)
        self._in_flight = _Flight(
            job=self._job,
            problem=problem,
            settings=self._settings,
            reasons=tuple(self._reasons),
            pending=self._command_queue.pending,
        )
        self._reasons = []
        self._asked, self._asked_s = problem, now
        self._replan_s = now + problem.policy.interval_s
        return [Solve(self._job, problem.policy.kind, problem)]

    def _advance(self, now: float) -> list[Effect]:
        """Publish the next step to the target, or new routes, if there is one."""
        settings = self._target.settings(now)
        if self._in_flight is not None or self._plan is None or settings is None:
            return []
        if self._members.isolated(now):
            return []
        plan = self._target.step(self._ground(settings, now), now)
        return self._publish(plan, now) if plan else []

    def _ground(self, settings: Settings, now: float) -> PlanningContext:
        policy = self._policy(settings)
        return PlanningContext(
            pipeline=self._pipeline,
            profile=self._estimates.profile,
            history=self._history,
            members=self._members.members(settings.drained, now),
            in_force=self._plan,
            expected=self._estimates.expected(policy, settings, now),
        )

    def _policy(self, settings: Settings) -> Policy:
        return policy_named(self._pipeline, settings.policy) or Policy(name=settings.policy)

    def _problem(self, settings: Settings, now: float) -> Problem:
        members = self._members.members(settings.drained, now)
        policy = self._policy(settings)
        return Problem(
            pipeline=self._estimates.planned(policy),
            policy=policy,
            slo_s=settings.slo_s,
            demand_qps=self._demand_qps(settings, now),
            devices=tuple(member.device for member in members if member.usable),
            profile=self._estimates.keep_pace(policy),
            memory=self._memory,
            multiplicity=self._estimates.multiplicity,
            arriving=self._estimates.arriving(now),
            queued=self._estimates.queued(now),
            running=running(self._plan.leases if self._plan else ()),
            path_accuracy=self._profile.path_accuracy if self._profile else {},
        )

    # ------------------------------------------------------------------ results of solves

    def _solved(self, event: Solved, now: float) -> list[Effect]:
        flight = self._in_flight
        if flight is None or event.job != flight.job:
            return self._table_jobs.solved(event, now)
        target = self._target.choose(event.plan, flight.problem, flight.settings, now)
        ground = self._ground(flight.settings, now)
        plan = self._target.first(target, ground, self._reasons_of(flight), now)
        violations = (
            *self._gate.allocation(event.plan, target.allocation, flight.problem),
            *self._gate.plan(plan, ground),
        )
        if violations:
            reason = f"the plan would violate constraints: {sentences(violations)}"
            return [*self._gate.reject(violations), *self._give_up(reason, now)]
        self._target.take(target, now)
        plan = self._table_jobs.expecting(plan, self._estimates.arriving_qps(now))
        plan = replace(plan, release=self._releases.agree(now))
        if self._plan is not None and same(plan, self._plan) and not self._contested:
            tables = self._table_jobs.follow(self._plan, self._members.devices, now)
            return [*tables, *self._land(now)]
        return [*self._publish(plan, now), *self._land(now)]

    def _failed(self, event: Failed, now: float) -> list[Effect]:
        if self._in_flight is None or event.job != self._in_flight.job:
            return self._table_jobs.failed(event, now)
        return self._give_up(event.error, now)

    def _reasons_of(self, flight: _Flight) -> list[PlanReason]:
        command = flight.pending.command if flight.pending else None
        asked = [by_command(command.action, command.id)] if command else []
        trouble = [after_failure(self._trouble)] if self._trouble else []
        return [*asked, *flight.reasons, *trouble]

    def _publish(self, plan: Plan, now: float) -> list[Effect]:
        """Put a plan in force, unless it violates a constraint: then the old one stays."""
        plan = replace(
            plan,
            epoch=self._history.highest + 1,
            issued_s=now,
            demand_qps=self._demand_qps(plan.settings, now),
            factors=self._estimates.factors,
            release=self._releases.agree(now),
        )
        plan = self._table_jobs.expecting(plan, self._estimates.arriving_qps(now))
        violations = self._gate.plan(plan, self._ground(plan.settings, now))
        if violations:
            self._trouble = sentences(violations)
            return self._gate.reject(violations)
        version = self._history.version(plan)
        self._members.follow(plan, self._held())
        self._plan = plan
        self._history.add(plan)
        self._contested = False
        self._trouble = ""
        self._gate.passed()
        out = Send(PLANS, plan, slot=0, key=f"{plan.pipeline}/{version}")
        outdated, self._history.outdated = self._history.outdated, []
        gone = [Forget(PLANS, f"{plan.pipeline}/{version}") for version in outdated]
        return [out, *gone, *self._table_jobs.follow(plan, self._members.devices, now)]

    def _land(self, now: float) -> list[Effect]:
        """End a solve that led to the plan in force: answer the command that waited for it."""
        assert self._in_flight is not None
        pending = self._in_flight.pending
        self._in_flight = None
        if pending is None:
            return []
        self._command_queue.pending = None
        return [self._answer(pending.command, True, pending.message, now)]

    def _give_up(self, error: str, now: float) -> list[Effect]:
        """End a solve that gave no plan: the old plan and its settings stay."""
        assert self._in_flight is not None
        flight, self._in_flight = self._in_flight, None
        if flight.pending is None:
            self._trouble = error
            return []
        self._settings = flight.pending.before
        self._reasons = [*flight.reasons, *self._reasons]
        self._command_queue.pending = None
        return [self._answer(flight.pending.command, False, error, now)]

    def _answer(self, command: Command, ok: bool, message: str, now: float) -> Send:
        result = CommandResult(
            id=command.id,
            pipeline=self._pipeline.name,
            action=command.action,
            ok=ok,
            message=message,
            epoch=self._plan.epoch if self._plan else 0,
            finished_s=now,
        )
        # The topic is compacted and serves every pipeline: under the bare id another pipeline's
        # answer to the same command would replace ours.
        return Send(COMMAND_RESULTS, result, key=f"{result.pipeline}/{command.id}")

    # ------------------------------------------------------------------ state

    def _other_pipelines(self, now: float) -> tuple[str, ...]:
        """Return the other pipelines that are up on the broker."""
        known = self._neighbours
        self._neighbours = {name: at for name, at in known.items() if now - at <= NEIGHBOUR_S}
        return tuple(sorted(self._neighbours))

    def _held(self) -> dict[str, Lease]:
        return {lease.worker: lease for lease in self._plan.leases} if self._plan else {}

    def _demand_qps(self, settings: Settings, now: float) -> float:
        return self._estimates.demand_qps(self._policy(settings), settings, now)


def _name(event: Arrived) -> str:
    """Return an id for a command without one."""
    return f"{event.topic}@{event.offset}"
