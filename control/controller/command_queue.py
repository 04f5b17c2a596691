"""The queue of commands: one at a time, in order, each id once."""

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass

from schemas.records import Command, Settings

KNOWN_IDS = 10_000
# Slightly shorter than a sender's wait for the result, so that a command is not carried out after
# its sender has given up.
COMMAND_VALID_S = 15.0


@dataclass(frozen=True, slots=True)
class Pending:
    """A command in flight: the message of its result, and the settings to restore on failure."""

    command: Command
    message: str
    before: Settings


class CommandQueue:
    """Commands, carried out one at a time, in order; each id counts once."""

    __slots__ = ("_ids", "_queue", "pending")

    def __init__(self) -> None:
        self.pending: Pending | None = None
        self._queue: deque[Command] = deque()
        self._ids: OrderedDict[str, None] = OrderedDict()

    def know(self, command_id: str) -> bool:
        """Remember an id; return False if it was known."""
        if command_id in self._ids:
            return False
        self._ids[command_id] = None
        if len(self._ids) > KNOWN_IDS:
            self._ids.popitem(last=False)
        return True

    def answered(self, command_id: str) -> None:
        """Record a result from before a restart, so that its command is not carried out again."""
        self.know(command_id)
        self._queue = deque(command for command in self._queue if command.id != command_id)

    def accept(self, command: Command) -> None:
        """Queue a command, unless its id is known."""
        if self.know(command.id):
            self._queue.append(command)

    def expired(self, now: float) -> list[Command]:
        """Remove and return the commands whose senders will soon no longer wait for a result."""
        found = [each for each in self._queue if now - each.issued_s >= COMMAND_VALID_S]
        self._queue = deque(each for each in self._queue if each not in found)
        return found

    def next(self) -> Command | None:
        """Return the next command, or None while one is in flight."""
        return self._queue.popleft() if self._queue and self.pending is None else None

    def urgent(self, actions: Collection[str]) -> list[Command]:
        """Remove and return the commands of these actions, which overtake the others."""
        found = [command for command in self._queue if command.action in actions]
        if found:
            self._queue = deque(x for x in self._queue if x.action not in actions)
        return found
