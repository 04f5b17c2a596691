"""The control node: reports and commands in, plans out.

Records from before a restart (plans, command results) arrive before the first ``Woke``, which
starts the node. The controller then solves when a worker is new, leaves or is lost, when a command
requires it, when demand jumps or fan-out drifts, and at the policy's interval. One solve is in
flight at a time. If the policy makes quick plans, one is put in force before an urgent solve.

The result of a solve is the target. On the way to it, the controller publishes plans without a
solve when workers have loaded or drained, and new routes when demand changes. It reassigns the
slots of a lost worker at once. ``pause`` and ``resume`` neither need a solve nor wait for one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from control.checks.violations import Violation, sentences
from control.controller.command_desk import CommandDesk
from control.controller.command_queue import CommandQueue
from control.controller.commands import PAUSES, Change
from control.controller.control_state import (
    GATHERING,
    PLANNING,
    RESTORING,
    ControlState,
    PhaseChange,
)
from control.controller.membership import GRACE_S
from control.controller.plan_gate import PlanGate
from control.controller.record_intake import RecordIntake
from control.controller.session_commands import SESSION_ACTIONS
from control.controller.session_desk import desk_of
from control.controller.solves import Flight, Solves
from control.estimation.size_profile import PlannedBy
from control.policies.ramsis.table_jobs import TableJobs
from control.problem.plan_reasons import (
    AT_ONCE,
    HANDOVER,
    PlanReason,
    about_worker,
    by_command,
    rented,
    workers_lost,
)
from control.problem.problem import Allocation
from control.problem.session_space import SessionSpace
from control.rollout.leases import without
from control.rollout.next_plan import Target
from control.rollout.plan_builder import same
from schemas.effects import (
    COMMANDS,
    PLANS,
    REPORTS,
    Arrived,
    Assign,
    Counted,
    Effect,
    Event,
    Failed,
    Heartbeats,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)
from schemas.enumerations import PlanCause
from schemas.pipeline import Pipeline
from schemas.records import Command, Plan, Report

if TYPE_CHECKING:
    from control.controller.rental import Rentable  # solvers take most of a second to import

TICK_S = 0.1
JUST_S = 0.001  # after the time at which a worker counts as lost
FEW, SPACING_S = 100, 2e-5  # workers; review time for each further one
FIRST_PLAN_S = 3.0  # the first plan waits this long for all workers
ANY_MEMORY: Mapping[str, int] = {}


class FirstStep(NamedTuple):
    """A target, the first plan towards it, and the constraints that they violate."""

    target: Target
    plan: Plan
    violations: tuple[Violation, ...]


class Controller:
    """The control node. ``memory`` is the bytes that one worker may use, by device; ``space`` the
    choices of sessions, if the pipeline has tiers; ``rentable`` the devices that can be rented.

    Invariants: epochs of its plans grow; it publishes no plan that ``control/checks`` refuses.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        planned_by: PlannedBy,
        expected_workers: int,
        memory: Mapping[str, int] = ANY_MEMORY,
        space: SessionSpace | None = None,
        rentable: "Rentable | None" = None,
    ) -> None:
        self._expected = expected_workers
        self._state = ControlState(pipeline, planned_by, memory)
        self._phase = self._state.phase
        self._commands = CommandQueue()
        self._rental = None if rentable is None else rentable.rental()
        self._solves = Solves(self._state, self._commands)
        self._table_jobs = TableJobs(pipeline, self._state.estimates.measured, memory)
        self._gate = PlanGate(pipeline, memory, self._table_jobs.sets, space)
        self._intake = RecordIntake(self._state, self._commands, self._rental, self._gate.forget)
        self._sessions = desk_of(pipeline, space)
        self._desk = CommandDesk(self._state, self._commands, self._sessions, self._rental)
        self._quiet: frozenset[str] = frozenset()
        self._wake_s = 0.0
        self._reviewed_s = float("-inf")

    def handle(self, event: Event, now: float) -> list[Effect]:
        if self._phase.state is RESTORING:
            return self._restore(event, now)
        self._state.members.wake(now)
        effects = self._take(event, now)
        if self._routine(event, now):
            return effects
        if type(event) is Counted:
            return [*effects, *self._follow_demand(now)]
        return [*effects, *self._review(now)]

    def _restore(self, event: Event, now: float) -> list[Effect]:
        """Take a record from before a restart, or the ``Woke`` that starts the node."""
        if type(event) is not Woke:
            return self._take(event, now)
        return [*self._start(now), *self._review(now)]

    def _routine(self, event: Event, now: float) -> bool:
        """Return whether an event can wait for the next tick, as reports without news can.

        A review examines every worker, and a thousand workers report 5,000 times a second. With
        many workers, reviews of news are spaced too: a thousand workers may start or be lost.
        """
        report = type(event) is Arrived and type(event.record) is Report
        if not (report or type(event) is Heartbeats) or now >= self._wake_s:
            return False
        if not (self._intake.news or self._sessions.changed):
            return True
        spacing_s = max(0, len(self._state.members) - FEW) * SPACING_S
        if now < self._reviewed_s + spacing_s:
            return True
        self._intake.news = False
        return False

    # ------------------------------------------------------------------ events

    def _take(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
            self._sessions.take(event.record, now)
            return self._intake.arrived(event, now)
        if type(event) is Counted:
            self._intake.counted(event, now)
        elif type(event) is Heartbeats:
            self._intake.heartbeats(event, now)
        elif isinstance(event, Solved | Failed) and not self._ended(event, now):
            return (
                self._solved(event, now) if isinstance(event, Solved) else self._failed(event, now)
            )
        return []

    def _ended(self, event: Solved | Failed, now: float) -> bool:
        """Handle the end of a session's job or of a mix's play; return whether it was one."""
        played = self._rental is not None and self._rental.played(event)
        return played or self._sessions.solved(event, now)

    def _start(self, now: float) -> list[Effect]:
        self._resume(now)
        topics = (PLANS, REPORTS, COMMANDS, *self._sessions.results)
        return [Assign(topic, (0,)) for topic in topics]

    def _resume(self, now: float) -> None:
        """Resume from the newest plan on the topic, if there is one."""
        state = self._state
        self._phase.go(PhaseChange.START)
        state.started_s = now
        state.members.wake(now)
        state.replan_s = now
        newest = state.history.newest
        if newest is None:
            self._sessions.start(None, now)
            return
        state.releases.resume(newest, now)
        state.estimates.recall(newest)
        state.settings = state.history.settings()
        state.plan = replace(newest, leases=state.history.fitting(newest))
        state.members.expect(state.plan.leases, now)
        state.target.resume(state.plan)
        self._sessions.start(state.plan, now)
        if self._rental is not None:
            self._rental.resume(state.plan)
        state.members.follow(state.plan, {})

    def _solved(self, event: Solved, now: float) -> list[Effect]:
        flight = self._solves.flight(event.job)
        if flight is None:
            return self._table_jobs.solved(event, now)
        step = self._first_step(flight, event.plan, self._solves.reasons(flight), now)
        if step.violations:
            error = f"the plan would violate constraints: {sentences(step.violations)}"
            ended = self._solves.give_up(flight, error, now)
            return [*self._gate.reject(step.violations), *ended]
        return [*self._follow(step, now), *self._solves.land(flight, now)]

    def _solve(self, now: float) -> list[Effect]:
        """Begin a solve if one is due; if it is urgent, first put a quick plan in force."""
        flight = self._solves.begin(now)
        if flight is None:
            return []
        effects = self._at_once(flight, now) if flight.urgent else []
        return [*effects, Solve(flight.job, flight.problem.policy.kind, flight.problem)]

    def _at_once(self, flight: Flight, now: float) -> list[Effect]:
        found = self._solves.quick_plan(flight)
        if found is None:
            return []
        reasons = [*self._solves.reasons(flight), AT_ONCE]
        step = self._first_step(flight, found, reasons, now)
        if step.violations:
            return []
        return [*self._follow(step, now, provisional=True), *self._solves.serve(flight, now)]

    def _first_step(
        self, flight: Flight, found: Allocation, reasons: list[PlanReason], now: float
    ) -> FirstStep:
        """Return the first step towards an allocation, and the constraints that it violates."""
        state = self._state
        target = state.target.choose(found, flight.problem, flight.settings, now)
        context = state.context(flight.settings, now)
        plan = state.target.first(target, context, reasons, now)
        violations = (
            *self._gate.allocation(found, target.allocation, flight.problem),
            *self._gate.plan(plan, context),
        )
        return FirstStep(target, plan, violations)

    def _follow(self, step: FirstStep, now: float, *, provisional: bool = False) -> list[Effect]:
        """Make an allocation the target and publish the first step towards it."""
        state = self._state
        state.target.take(step.target, now, provisional=provisional)
        plan = self._table_jobs.expecting(step.plan, state.estimates.arriving_qps(now))
        plan = replace(plan, release=state.releases.agree(now))
        if state.plan is not None and same(plan, state.plan) and not state.contested:
            state.trouble = ""
            return self._tables_for(state.plan, now)
        return self._publish(plan, now)

    def _failed(self, event: Failed, now: float) -> list[Effect]:
        flight = self._solves.flight(event.job)
        if flight is None:
            return self._table_jobs.failed(event, now)
        return self._solves.give_up(flight, event.error, now)

    # ------------------------------------------------------------------ decisions

    def _review(self, now: float) -> list[Effect]:
        """Return the effects that the current state calls for."""
        self._reviewed_s = now
        effects = self._expire(now)
        if effects and self._phase.state is PLANNING:
            # Reassign the slots before any other decision.
            self._wake_s = now
            return [*effects, Wake(now)]
        if self._phase.state is GATHERING and self._is_settled(now):
            self._phase.go(PhaseChange.SETTLE)
        if self._phase.state is PLANNING:
            self._note_moves(now)
            effects += self._pauses(now)
            effects += self._session_plans(now)
            effects += self._desk.begin_next(now)
            effects += self._rent(now)
            effects += self._solve(now)
            effects += self._advance(now)
            effects += self._table_jobs.more()
        else:
            effects += self._desk.expire(now)
        if now >= self._wake_s:
            # Also wake when a silent worker's time is up, to detect its loss at once.
            lost_s = self._state.members.next_loss_s(now) + JUST_S
            self._wake_s = min(now + TICK_S, lost_s)
            effects.append(Wake(self._wake_s))
        return effects

    def _follow_demand(self, now: float) -> list[Effect]:
        """Return the effects of a count, which changes the demand and no other input of a review.
        Counts come at every tick, right after its review."""
        if self._phase.state is not PLANNING:
            return []
        return [*self._solve(now), *self._table_jobs.more()]

    def _is_settled(self, now: float) -> bool:
        """Return whether the expected workers have reported, or have had time to; after a restart
        also an ingress, if plans depend on the sizes that it counts."""
        state = self._state
        if state.members.unreported or not state.members:
            return False
        takes_over = state.plan is not None and bool(state.plan.leases)
        patience_s = GRACE_S if takes_over else FIRST_PLAN_S
        # A solve for the file's sizes would refuse what the plan of the earlier app carries.
        complete = len(state.members) >= self._expected
        known = complete and not (takes_over and state.estimates.awaits_sizes)
        return known or now - state.started_s >= patience_s

    def _note_moves(self, now: float) -> None:
        """Record workers that have drained or serve: the target's next step may wait for them."""
        quiet = frozenset(self._state.members.quiet(now))
        moved = self._state.target.moved
        if quiet != self._quiet:
            drained = sorted(quiet - self._quiet)
            moved(about_worker(name, PlanCause.WORKER_DRAINED) for name in drained)
            self._quiet = quiet
        moved(self._intake.ready(now))
        state = self._state
        state.target.keeps_pace(state.estimates.paces(), now)
        state.target.sees(state.estimates.capacity_share(state.policy(state.settings)), now)

    def _expire(self, now: float) -> list[Effect]:
        """Reassign lost workers' slots now; placement is replanned later."""
        state = self._state
        lost = state.members.expire(now)
        if not lost:
            return []
        state.estimates.lose(lost)
        reason = workers_lost(lost)
        state.reasons.append(reason)
        held = state.held()
        if state.plan is None or held.keys().isdisjoint(lost):
            return []
        leases = without(held, lost, state.history.slots)
        return self._publish(state.amended(state.plan, leases, (reason, HANDOVER), now), now)

    def _session_plans(self, now: float) -> list[Effect]:
        """Carry out commands on sessions, and publish query plans that have changed."""
        state = self._state
        given, policy = self._commands.urgent(SESSION_ACTIONS), state.settings.policy
        answered = []
        if given:
            answered = self._sessions.carry_out(given, policy, state.releases.agree(now), now)
        searched = self._sessions.planning(policy, now)
        plan = self._sessions.moved(state.plan, state.members.devices, now)
        effects = [*searched, *(self._publish(plan, now) if plan is not None else [])]
        answers = [state.answer(command, ok, text, now) for command, ok, text in answered]
        return [*effects, *self._sessions.news(), *answers, *self._sessions.deletions()]

    def _pauses(self, now: float) -> list[Effect]:
        """Carry out ``pause`` and ``resume`` at once, whatever solve is in flight."""
        effects: list[Effect] = []
        if self._state.plan is None:  # the first plan needs a solve
            return effects
        for command in self._commands.urgent(PAUSES):
            change = self._desk.change(command, now)
            effects += [change] if isinstance(change, Send) else self._pause(command, change, now)
        return effects

    def _pause(self, command: Command, change: Change, now: float) -> list[Effect]:
        state, paused = self._state, change[0].paused
        assert state.plan is not None
        base = replace(state.plan, settings=replace(state.plan.settings, paused=paused))
        reasons = (by_command(command.action, command.id),)
        effects = self._publish(state.amended(base, base.leases, reasons, now), now)
        done = state.plan.settings.paused == paused
        if done:
            state.settings = replace(state.settings, paused=paused)
            state.target.pause(paused=paused)
            self._solves.pause(paused=paused)
        message = change[1] if done else state.trouble
        return [*effects, state.answer(command, done, message, now)]

    def _rent(self, now: float) -> list[Effect]:
        """Request changed numbers of devices, and publish the plan with them."""
        if self._rental is None:
            return []
        state = self._state
        crew, policy = state.members.by_device(), state.policy(state.settings)
        scaled = self._rental.decide(*crew, state.settings, policy, now)
        played = self._rental.play(now)
        if not scaled or state.plan is None:
            return [*scaled, *played]
        reasons = (rented(self._rental.mix),)
        plan = state.amended(state.plan, state.plan.leases, reasons, now)
        return [*scaled, *played, *self._publish(plan, now)]

    def _advance(self, now: float) -> list[Effect]:
        """Publish the next step to the target, or new routes, if due."""
        state = self._state
        settings = state.target.settings(now)
        if self._solves.in_flight is not None or state.plan is None or settings is None:
            return []
        if state.members.isolated(now):
            return []
        plan = state.target.step(state.context(settings, now), now)
        return self._publish(plan, now) if plan else []

    def _tables_for(self, plan: Plan, now: float) -> list[Effect]:
        devices, measured = self._state.members.devices, self._state.estimates.measured
        return self._table_jobs.follow(plan, devices, measured, now)

    def _publish(self, plan: Plan, now: float) -> list[Effect]:
        """Put a plan in force; if it violates a constraint, keep the old one."""
        state = self._state
        plan = state.stamped(plan, now)
        plan = self._table_jobs.expecting(plan, state.estimates.arriving_qps(now))
        plan = self._sessions.stamped(plan, state.members.devices, now)
        if self._rental is not None:
            plan = replace(plan, mix=self._rental.mix)
        violations = self._gate.plan(plan, state.context(plan.settings, now))
        if violations:
            state.trouble = sentences(violations)
            return self._gate.reject(violations)
        self._gate.passed()
        effects = state.enforce(plan)
        return [*effects, *self._tables_for(plan, now)]
