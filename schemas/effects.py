"""What a node is told and what it may ask for.

A node is one method, ``handle(event, now) -> list[Effect]``. It performs nothing, reads no clock,
draws no random number and never blocks. Drivers (``streams/live/live_driver.py``,
``streams/simulated/simulated_driver.py``)
perform its effects in order and bring it the events.

Topics are named logically here ("queries", "work.read", "outputs"); ``streams/topics.py`` knows
their names on the broker.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from schemas.records import Origin, Record, Value

QUERIES = "queries"
OUTPUTS = "outputs"
RESULTS = "results"
DEAD_LETTERS = "dead-letters"
PLANS = "plans"
REPORTS = "reports"
COMMANDS = "commands"
COMMAND_RESULTS = "command-results"
COMPLETIONS = "completions"


def work_topic(task: str) -> str:
    """The topic that feeds a task."""
    return f"work.{task}"


class Arrived(Struct, frozen=True, gc=False):
    """A record came in on a topic the node reads. ``at_s`` is the broker's time stamp."""

    record: Record
    topic: str
    slot: int
    offset: int
    at_s: float


class Inferred(Struct, frozen=True, gc=False):
    """A batch ran: one output per value, in order."""

    job: int
    outputs: tuple[Any, ...]
    started_s: float
    finished_s: float


class Loaded(Struct, frozen=True, gc=False):
    """A variant is on the device and ready. ``variant`` is "task/variant"."""

    variant: str
    seconds: float


class Solved(Struct, frozen=True, gc=False):
    """A solver returned."""

    job: int
    plan: Any


class Counted(Struct, frozen=True, gc=False):
    """The input topic was read at ``at_s``: ``arrived`` queries came to it so far, of which
    ``waiting`` have not been taken in by an ingress."""

    arrived: int
    waiting: int
    at_s: float


class Woke(Struct, frozen=True, gc=False):
    """The time a node asked for has come; also a node's first event. May come more than once."""


class Failed(Struct, frozen=True, gc=False):
    """A job (``Infer``, ``Solve``) or a load ended in an error.

    ``error`` is one sentence; ``trace`` has the frames of the user's code for the log.
    """

    job: int | str  # a load's variant, a count's topic
    error: str
    trace: str = ""


Event = Arrived | Inferred | Loaded | Solved | Counted | Woke | Failed


class Send(Struct, frozen=True, gc=False):
    """Write a record to a topic: to ``slot`` if it is not negative, else by ``key``."""

    topic: str
    record: Record
    slot: int = -1
    key: str = ""


class Infer(Struct, frozen=True, gc=False):
    """Run a loaded variant over a batch; comes back as ``Inferred`` or ``Failed``.

    ``items`` name what runs, for the worker's crash journal. ``size`` is that of all
    its values together, where queries have sizes (0: one each).
    """

    job: int
    variant: str
    values: tuple[Value, ...]
    items: tuple[str, ...] = ()
    size: int = 0

    @property
    def cost(self) -> int:
        """What the batch's latency is looked up by."""
        return self.size or len(self.values)


class Load(Struct, frozen=True, gc=False):
    """Bring a variant ("task/variant") to the device. What is there stays until the new one
    is first used, so that a swap leaves no gap; ``beside`` it stays for good."""

    variant: str
    beside: bool = False


class Solve(Struct, frozen=True, gc=False):
    """Run a solver by name over a problem, away from the event loop."""

    job: int
    solver: str
    problem: Any


class Done(Struct, frozen=True, gc=False):
    """Offsets below ``offset`` of a slot need nobody any more; committed once every effect
    before it is performed. ``note`` is stored with the commit."""

    slot: int
    offset: int
    note: str = ""


class Assign(Struct, frozen=True, gc=False):
    """Which slots of a topic to read from now on, which of them are paused, how far each is done.

    ``slots`` is the full set (None: as before). A slot that is new to the node is read from the
    committed offset, on topics without commits (plans) from the beginning.
    """

    topic: str
    slots: tuple[int, ...] | None = None
    paused: tuple[int, ...] | None = None
    done: tuple[Done, ...] = ()


class Wake(Struct, frozen=True, gc=False):
    """Send ``Woke`` when the clock shows ``at_s``, after what has already arrived."""

    at_s: float


class Forget(Struct, frozen=True, gc=False):
    """Delete what a compacted topic of one partition holds under ``key``."""

    topic: str
    key: str


class Count(Struct, frozen=True, gc=False):
    """Read how many queries have come to the input topic; comes back as ``Counted``, or as
    ``Failed`` with the topic for its job."""


class Reject(Struct, frozen=True, gc=False):
    """A plan was made and is not put in force: the names of the constraints that it violates, and
    the reason for people. Observers log and count it; there is nothing to perform."""

    constraints: tuple[str, ...]
    reason: str


# What operators ask for, and what the controller and its host do; drivers perform all of one set.
OperatorEffect = Send | Infer | Load | Assign | Wake
ControlEffect = Send | Forget | Solve | Count | Assign | Wake | Reject
Effect = OperatorEffect | ControlEffect


class Node(Protocol):
    """A state machine: told what happened and when, it says what should happen."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]: ...


__all__ = [
    "COMMANDS", "COMMAND_RESULTS", "COMPLETIONS", "DEAD_LETTERS", "OUTPUTS", "PLANS", "QUERIES",
    "REPORTS", "RESULTS", "Arrived", "Assign", "ControlEffect", "Count", "Counted", "Done",
    "Effect", "Event", "Failed", "Forget", "Infer", "Inferred", "Load", "Loaded", "Node",
    "OperatorEffect", "Origin", "Reject", "Send", "Solve", "Solved", "Wake", "Woke", "work_topic",
]  # fmt: skip
