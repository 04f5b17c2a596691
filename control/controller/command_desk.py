"""The command desk: what a command changes, or the result of one that is done or refused.

``pause``, ``resume`` and commands on sessions overtake the others (``CommandQueue.urgent``); the
controller and the session desk carry them out.
"""

from typing import TYPE_CHECKING

from control.controller.command_queue import CommandQueue, Pending
from control.controller.commands import (
    Change,
    CommandError,
    Situation,
    carry_out,
    done_before,
    unexpired,
)
from control.controller.control_state import ControlState
from control.controller.session_commands import SESSION_ACTIONS
from control.controller.session_desk import NoSessions, SessionDesk
from schemas.effects import Effect, Send
from schemas.records import Command

if TYPE_CHECKING:
    from control.controller.rental import Rental  # solvers take most of a second to import

NO_WORKER = "no worker has reported, and nothing can be planned; start one, then try again"


class CommandDesk:
    """The commands of one controller that change its settings."""

    def __init__(
        self,
        state: ControlState,
        commands: CommandQueue,
        sessions: SessionDesk | NoSessions,
        rental: "Rental | None",
    ) -> None:
        self._state, self._commands = state, commands
        self._sessions, self._rental = sessions, rental

    def begin_next(self, now: float) -> list[Effect]:
        """Apply the settings of the next command, which a solve then answers; return the results
        of commands that need none."""
        effects: list[Effect] = []
        while (command := self._commands.next()) is not None:
            change = self.change(command, now)
            if isinstance(change, Send):
                effects.append(change)
                continue
            settings, message = change
            self._commands.pending = Pending(command, message, self._state.settings)
            self._state.settings = settings
        return effects

    def change(self, command: Command, now: float) -> Change | Send:
        """Return what a command changes, or its result if it is done or refused."""
        state = self._state
        if done := done_before(command, state.history.plans.values()):
            return state.answer(command, True, done, now)
        situation = Situation(
            pipeline=state.pipeline,
            settings=state.settings,
            devices=state.members.devices,
            plans=state.history.plans,
            neighbours=state.neighbours(now),
            types=() if self._rental is None else self._rental.types,
            others=SESSION_ACTIONS,
        )
        try:
            unexpired(command, now)
            return carry_out(command, situation)
        except CommandError as error:
            return state.answer(command, False, str(error), now)

    def expire(self, now: float) -> list[Effect]:
        """Return the results of commands that have waited too long for workers."""
        return [self._left(each, now) for each in self._commands.expired(now)]

    def _left(self, command: Command, now: float) -> Send:
        plans = self._state.history.plans.values()
        done = done_before(command, plans) or self._sessions.done_before(command, now)
        return self._state.answer(command, bool(done), done or NO_WORKER, now)
