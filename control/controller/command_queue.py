"""Which command is next, and which ones have had their answer?"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from schemas.records import Command, Settings

KNOWN_IDS = 10_000
# A sender waits a little longer for the result: what it gave up must not be carried out later.
COMMAND_VALID_S = 15.0


@dataclass(frozen=True, slots=True)
class Pending:
    """A command under way: what to answer once its plan is out, and what to go back to if not."""

    command: Command
    message: str
    before: Settings


class CommandQueue:
    """Commands are carried out one at a time, in order; each id counts once."""

    __slots__ = ("_ids", "_queue", "pending")

    def __init__(self) -> None:
        self.pending: Pending | None = None
        self._queue: deque[Command] = deque()
        self._ids: OrderedDict[str, None] = OrderedDict()

    def know(self, command_id: str) -> bool:
        """Remember an id; False if it was known."""
        if command_id in self._ids:
            return False
        self._ids[command_id] = None
        if len(self._ids) > KNOWN_IDS:
            self._ids.popitem(last=False)
        return True

    def answered(self, command_id: str) -> None:
        """A result of an earlier life: its command is not carried out again."""
        self.know(command_id)
        self._queue = deque(command for command in self._queue if command.id != command_id)

    def accept(self, command: Command) -> None:
        """Queue a command, unless its id is known."""
        if self.know(command.id):
            self._queue.append(command)

    def next(self) -> Command | None:
        """The next command, if none is under way."""
        return self._queue.popleft() if self._queue and self.pending is None else None
