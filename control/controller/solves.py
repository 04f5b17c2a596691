"""Solves: when one begins, why, and what its end does to the command that waits for it.

One solve is in flight at a time. It begins when the policy's interval elapses, when estimates no
longer fit the last problem, or for a reason or command that waits.
"""

import dataclasses
from dataclasses import dataclass

from msgspec.structs import replace

from control.controller.command_queue import CommandQueue, Pending
from control.controller.control_state import ControlState
from control.problem.plan_reasons import FIRST, INTERVAL, PlanReason, after_failure, by_command
from control.problem.problem import Problem
from schemas.effects import Effect, Solve
from schemas.records import Settings

UNLIKE_S = 1.0  # least time from a solve to the next because estimates have changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A solve in flight: its problem, its reasons, and the command that waits for it."""

    job: int
    problem: Problem
    settings: Settings
    reasons: tuple[PlanReason, ...]
    pending: Pending | None


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

    def begin(self, now: float) -> list[Effect]:
        """Begin a solve if there is a reason for one and none is in flight."""
        state, pending = self._state, self._commands.pending
        # Without reports no demand is known: only a command replaces the plan in force.
        deaf = state.members.isolated(now) and pending is None
        if self.in_flight is not None or deaf:
            return []
        state.reasons += self._due(now)
        if not state.reasons and pending is None:
            return []
        self._job += 1
        problem = state.problem(state.settings, now)
        self.in_flight = Flight(
            job=self._job,
            problem=problem,
            settings=state.settings,
            reasons=tuple(state.reasons),
            pending=pending,
        )
        state.reasons = []
        self._asked, self._asked_s = problem, now
        state.replan_s = now + problem.policy.interval_s
        return [Solve(self._job, problem.policy.kind, problem)]

    def _due(self, now: float) -> list[PlanReason]:
        state = self._state
        if now >= state.replan_s:
            return [INTERVAL if state.plan else FIRST]
        if self._asked is None or now - self._asked_s < UNLIKE_S:
            return []
        unlike = state.estimates.unlike(self._asked, state.settings, now)
        return [unlike] if unlike else []

    def reasons(self, flight: Flight) -> list[PlanReason]:
        """Return the reasons of a plan that a solve gave."""
        command = flight.pending.command if flight.pending else None
        asked = [by_command(command.action, command.id)] if command else []
        trouble = [after_failure(self._state.trouble)] if self._state.trouble else []
        return [*asked, *flight.reasons, *trouble]

    def land(self, flight: Flight, now: float) -> list[Effect]:
        """End a solve that led to the plan in force: answer the command that waited for it."""
        self.in_flight = None
        if flight.pending is None:
            return []
        self._commands.pending = None
        return [self._state.answer(flight.pending.command, True, flight.pending.message, now)]

    def give_up(self, flight: Flight, error: str, now: float) -> list[Effect]:
        """End a solve that gave no plan: the old plan and its settings stay."""
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
