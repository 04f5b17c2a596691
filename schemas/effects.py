"""Events that a node handles and effects that it returns.

A node is one method, ``handle(event, now) -> list[Effect]``. It performs nothing, reads no clock,
draws no random number and never blocks. Drivers (``streams/live/live_driver.py``,
``streams/simulated/simulated_driver.py``) perform its effects in order and deliver the events.

Topics have logical names here ("queries", "work.read", "outputs"); ``streams/topics.py`` has their
names on the broker.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from msgspec import Struct

from schemas.records import Origin, Record, Trace, Value

QUERIES = "queries"
OUTPUTS = "outputs"
RESULTS = "results"
DEAD_LETTERS = "dead-letters"
PLANS = "plans"
REPORTS = "reports"
COMMANDS = "commands"
COMMAND_RESULTS = "command-results"
COMPLETIONS = "completions"
LEASES = "leases"
SESSIONS = "sessions"
PROFILE_REQUESTS = "profile-requests"
PROFILE_RESULTS = "profile-results"
LABELS = "labels"
ACCURACY = "accuracy"
SHADOWS = "shadows"


@cache
def work_topic(task: str) -> str:
    """Return the topic that feeds a task."""
    return f"work.{task}"


@cache
def waiting_topic(task: str) -> str:
    """Return the topic of the items that wait at a task's dispatcher."""
    return f"waiting.{task}"


class Arrived(Struct, frozen=True, gc=False):
    """A record arrived on a topic that the node reads. ``at_s`` is the broker's time stamp,
    ``trace`` a query's trace context."""

    record: Record
    topic: str
    slot: int
    offset: int
    at_s: float
    trace: Trace | None = None


class Inferred(Struct, frozen=True, gc=False):
    """A batch has run: one output per value, in order. ``charged_s``: the CPU time that its worker
    pays for it, 0 for a worker with a device to itself."""

    job: int
    outputs: tuple[Any, ...]
    started_s: float
    finished_s: float
    charged_s: float = 0.0


class Loaded(Struct, frozen=True, gc=False):
    """A variant ("task/variant") is on the device and ready."""

    variant: str
    seconds: float


class Solved(Struct, frozen=True, gc=False):
    """A solver has returned."""

    job: int
    plan: Any


class Counted(Struct, frozen=True, gc=False):
    """The input topic was read at ``at_s``: it had received ``arrived`` queries so far, of which
    ingress had not consumed ``waiting``."""

    arrived: int
    waiting: int
    at_s: float


class Heartbeat(Struct, frozen=True, gc=False):
    """A worker's report without news: its sender, and its time by the sender's clock."""

    pipeline: str
    worker: str
    incarnation: float
    sent_s: float


class Heartbeats(Struct, frozen=True, gc=False):
    """Reports of workers that repeat their last ones; only their counts may differ."""

    beats: tuple[Heartbeat, ...]


class Woke(Struct, frozen=True, gc=False):
    """The time of a ``Wake`` has come; also a node's first event. May come more than once."""


class Failed(Struct, frozen=True, gc=False):
    """A job (``Infer``, ``Solve``) or a load ended in an error.

    ``error`` is one sentence; ``trace`` has the frames of the user's code for the log.
    """

    job: int | str  # a load's variant, a count's topic
    error: str
    trace: str = ""


Event = Arrived | Inferred | Loaded | Solved | Counted | Heartbeats | Woke | Failed


class Send(Struct, frozen=True, gc=False):
    """Write a record to a topic, with ``headers``: to ``slot`` if it is not negative, else by
    ``key``."""

    topic: str
    record: Record
    slot: int = -1
    key: str = ""
    headers: tuple[tuple[str, bytes], ...] = ()


class Infer(Struct, frozen=True, gc=False):
    """Run a loaded variant over a batch; the result is ``Inferred`` or ``Failed``.

    ``items`` names the batch's items, for the worker's crash journal. ``size`` is the sum of the
    values' sizes, if queries have sizes (0: one each). ``deadlines`` are those of the values, in
    epoch seconds, for operators that wait for other services (empty: unknown).
    """

    job: int
    variant: str
    values: tuple[Value, ...]
    items: tuple[str, ...] = ()
    size: int = 0
    deadlines: tuple[float, ...] = ()

    @property
    def cost(self) -> int:
        """The batch size by which its latency is looked up."""
        return self.size or len(self.values)


class Load(Struct, frozen=True, gc=False):
    """Load a variant ("task/variant") onto the device.

    The present variant stays until the new one is first used, so that a swap leaves no gap; with
    ``beside`` it stays permanently. ``fresh``: read the user's code anew, and replace the variant
    if it is on the device already.
    """

    variant: str
    beside: bool = False
    fresh: bool = False


class Unload(Struct, frozen=True, gc=False):
    """Free a variant that was loaded ``beside`` others and is not running."""

    variant: str


class Solve(Struct, frozen=True, gc=False):
    """Run a solver by name on a problem, outside the event loop."""

    job: int
    solver: str
    problem: Any


class Done(Struct, frozen=True, gc=False):
    """Offsets below ``offset`` of a slot are finished. They are committed once every earlier effect
    is performed; ``note`` is stored with the commit."""

    slot: int
    offset: int
    note: str = ""


class Assign(Struct, frozen=True, gc=False):
    """The slots of a topic to read from now on, the paused ones, and the finished offsets.

    ``slots`` is the full set (None: unchanged). A slot that is new to the node is read from the
    committed offset, on topics without commits (plans) from the beginning.
    """

    topic: str
    slots: tuple[int, ...] | None = None
    paused: tuple[int, ...] | None = None
    done: tuple[Done, ...] = ()


class Wake(Struct, frozen=True, gc=False):
    """Send ``Woke`` when the clock shows ``at_s``, after the events that have already arrived."""

    at_s: float


class Deliver(Struct, frozen=True, gc=False):
    """Deliver an event to another node of the same process, after those that have arrived."""

    node: str
    event: "Event"


class Forget(Struct, frozen=True, gc=False):
    """Delete the record of ``key`` from a compacted topic of one partition."""

    topic: str
    key: str


class Count(Struct, frozen=True, gc=False):
    """Read the number of queries that the input topic has received; the result is ``Counted``, or
    ``Failed`` with the topic as its job."""


class Reject(Struct, frozen=True, gc=False):
    """A plan was not put in force: the constraints that it violates, and the reason for people.

    Observers log and count it; drivers perform nothing.
    """

    constraints: tuple[str, ...]
    reason: str


class Scale(Struct, frozen=True, gc=False):
    """Rent or release devices until ``count`` of a type run.

    The plan in force says the same (``Plan.mix``). ``headrace up`` follows the plan, the simulated
    driver the effect.
    """

    type: str
    count: int


# Effects of operators, and of the controller and its host; each driver performs one set in full.
OperatorEffect = Send | Infer | Load | Unload | Assign | Wake | Deliver
ControlEffect = Send | Forget | Solve | Count | Assign | Wake | Reject | Scale
Effect = OperatorEffect | ControlEffect


class Node(Protocol):
    """A state machine: takes an event and the time, and returns effects."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]: ...


class Observer(Protocol):
    """Sees every event of a node with its effects; changes nothing."""

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None: ...


__all__ = [
    "COMMANDS", "COMMAND_RESULTS", "COMPLETIONS", "DEAD_LETTERS", "LEASES", "OUTPUTS", "PLANS",
    "QUERIES", "REPORTS", "RESULTS", "SESSIONS", "Arrived", "Assign", "ControlEffect", "Count",
    "Counted", "Deliver", "Done", "Effect", "Event", "Failed", "Forget", "Heartbeat",
    "Heartbeats", "Infer", "Inferred", "Load", "Loaded", "Node", "Observer", "OperatorEffect",
    "Origin", "Reject", "Scale", "Send",
    "Solve", "Solved", "Unload", "Wake", "Woke", "waiting_topic", "work_topic",
]  # fmt: skip
