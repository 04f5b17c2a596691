"""Solves: when one begins, why, and how its end affects the command that waits for it.

One solve is in flight at a time. It begins when the policy's interval elapses, when estimates no
longer fit the last problem, or when a reason or a command waits. A command replaces the solve in
flight by a new one. A jump of demand or a lost worker also does if the policy makes quick plans to
serve meanwhile.
"""

import dataclasses
from dataclasses import dataclass

from msgspec.structs import replace

from control.controller.command_queue import CommandQueue, Pending
from control.controller.control_state import ControlState
from control.policies import spec_of
from control.policies.kept_plan import kept_plan
from control.policies.solvers import has_quick, quick
from control.problem.plan_reasons import FIRST, INTERVAL, PlanReason, after_failure, by_command
from control.problem.problem import Allocation, Problem
from schemas.effects import Effect
from schemas.enumerations import PlanCause
from schemas.records import Settings

UNLIKE_S = 1.0  # least time between solves for changed estimates
JUMPED_S = 0.3  # the same for a jump of demand if the policy makes quick plans
URGENT = frozenset((PlanCause.DEMAND_JUMPED, PlanCause.WORKER_LOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A solve in flight: its problem, its reasons, and the command that waits for it."""

    job: int
    problem: Problem
    settings: Settings
    reasons: tuple[PlanReason, ...]
    pending: Pending | None

    @property
    def urgent(self) -> bool:
        """Whether a quick plan is wanted before the solve has ended."""
        return self.pending is not None or (
            _at_once(self.problem) and any(each.cause in URGENT for each in self.reasons)
        )


def _at_once(problem: Problem) -> bool:
    """Return whether the policy makes a quick plan for a change of demand or devices."""
    return has_quick(problem) and spec_of(problem.policy.kind).follows_demand


class Solves:
    """The solve in flight, if there is one, and the problem of the last."""

    def __init__(self, state: ControlState, commands: CommandQueue) -> None:
        self._state = state
        self._commands = commands
        self._job = 0
        self._asked: Problem | None = None  # of the last solve
        self._asked_s = 0.0
        self.in_flight: Flight | None = None

    def flight(self, job: int | str) -> Flight | None:
        """Return the solve in flight if it is this one."""
        flight = self.in_flight
        return flight if flight is not None and flight.job == job else None

    def begin(self, now: float) -> Flight | None:
        """Begin a solve if there is a reason and no solve in flight that should complete."""
        state, pending = self._state, self._commands.pending
        # Without reports demand is unknown: only a command replaces the plan in force.
        deaf = state.members.isolated(now) and pending is None
        if deaf or (self.in_flight is not None and not self._overtaken(now)):
            return None
        self._give_way()
        state.reasons += self._due(now)
        if not state.reasons and pending is None:
            return None
        self._job += 1
        problem = state.problem(state.settings, now)
        flight = Flight(
            job=self._job,
            problem=problem,
            settings=state.settings,
            reasons=tuple(state.reasons),
            pending=pending,
        )
        self.in_flight = flight
        state.reasons = []
        self._asked, self._asked_s = problem, now
        state.replan_s = now + problem.policy.interval_s
        return flight

    def _overtaken(self, now: float) -> bool:
        """Return whether the solve in flight should give way to one for the present state."""
        flight, pending = self.in_flight, self._commands.pending
        assert flight is not None
        if pending is not None and flight.pending is None:
            return True
        if not _at_once(flight.problem):
            return False
        reasons = (*self._state.reasons, *self._unlike(now))
        return any(each.cause in URGENT for each in reasons)

    def _give_way(self) -> None:
        if self.in_flight is not None:
            self._state.reasons = [*self.in_flight.reasons, *self._state.reasons]
            self.in_flight = None

    def _due(self, now: float) -> list[PlanReason]:
        state = self._state
        if now >= state.replan_s:
            return [INTERVAL if state.plan else FIRST]
        return self._unlike(now)

    def _unlike(self, now: float) -> list[PlanReason]:
        """Return why the last problem no longer fits the present state, if so; a fixed policy plans
        for no demand."""
        state, asked = self._state, self._asked
        if asked is None or now - self._asked_s < JUMPED_S:
            return []
        if not spec_of(asked.policy.kind).follows_demand:
            return []
        unlike = state.estimates.unlike(state.since(asked, now), state.settings, now)
        if unlike is None:
            return []
        early = unlike.cause == PlanCause.DEMAND_JUMPED and _at_once(asked)
        return [unlike] if early or now - self._asked_s >= UNLIKE_S else []

    def reasons(self, flight: Flight) -> list[PlanReason]:
        """Return the reasons of a solve's plan."""
        command = flight.pending.command if flight.pending else None
        asked = [by_command(command.action, command.id)] if command else []
        trouble = [after_failure(self._state.trouble)] if self._state.trouble else []
        return [*asked, *flight.reasons, *trouble]

    def quick_plan(self, flight: Flight) -> Allocation | None:
        """Return the policy's quick plan. For a policy without one, return the running allocation
        on the usable workers if a command that keeps the policy waits."""
        plan, running = self._state.plan, self._state.target.allocation
        if plan is None:
            return None
        problem = flight.problem
        within = flight.pending is not None and plan.settings.policy == flight.settings.policy
        if spec_of(problem.policy.kind).quick or running is None or not within:
            return quick(problem)
        return kept_plan(running, problem)

    def serve(self, flight: Flight, now: float) -> list[Effect]:
        """Answer the command of a solve whose quick plan is in force."""
        if flight.pending is None:
            return []
        command, message = flight.pending.command, flight.pending.message
        reasons = (by_command(command.action, command.id), *flight.reasons)
        self.in_flight = dataclasses.replace(flight, pending=None, reasons=reasons)
        self._commands.pending = None
        return [self._state.answer(command, True, message, now)]

    def land(self, flight: Flight, now: float) -> list[Effect]:
        """End a solve that led to the plan in force: answer the command that waited for it."""
        served = self.serve(flight, now)
        self.in_flight = None
        return served

    def give_up(self, flight: Flight, error: str, now: float) -> list[Effect]:
        """End a solve without a plan: keep the old plan and its settings."""
        state, self.in_flight = self._state, None
        if flight.pending is None:
            state.trouble = error
            return []
        state.settings = flight.pending.before
        state.reasons = [*flight.reasons, *state.reasons]
        self._commands.pending = None
        return [state.answer(flight.pending.command, False, error, now)]

    def pause(self, *, paused: bool) -> None:
        """Apply a pause to the solve in flight and to the command that waits for it."""
        pending = self._commands.pending
        if pending is not None:
            pending = dataclasses.replace(pending, before=replace(pending.before, paused=paused))
            self._commands.pending = pending
        flight = self.in_flight
        if flight is not None:
            self.in_flight = dataclasses.replace(
                flight,
                settings=replace(flight.settings, paused=paused),
                pending=pending if flight.pending is not None else None,
            )
