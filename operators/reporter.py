"""Signs of life: what a node tells the control plane every 200 ms."""

from collections.abc import Callable

from schemas.effects import REPORTS, Effect, Send, Wake
from schemas.enumerations import NodeState
from schemas.records import Report, SlotState

INTERVAL_S = 0.2
FAULTS = frozenset((NodeState.FAILED, NodeState.STUCK))  # states that come with an error


class Reporter:
    """Keeps a node's counts and sends its reports when they are due."""

    __slots__ = (
        "_epoch", "_incarnation", "_next", "_pipeline", "_role", "counts", "device", "error",
        "name", "slots", "state", "task", "variant",
    )  # fmt: skip

    def __init__(
        self, name: str, role: str, pipeline: str, incarnation: float, device: str = ""
    ) -> None:
        self.name = name
        self.device = device
        self.state = NodeState.IDLE
        self.error = ""  # why the state is one of ``FAULTS``
        self.task = ""
        self.variant = ""
        self.counts: dict[str, float] = {}
        self.slots: Callable[[], tuple[SlotState, ...]] = tuple
        self._role = role
        self._pipeline = pipeline
        self._incarnation = incarnation
        self._epoch = 0
        self._next = float("-inf")

    def follow(self, epoch: int, state: NodeState) -> None:
        """The node follows another plan, or is in another state."""
        self._epoch = epoch
        self.state = state

    def count(self, name: str, amount: float = 1.0) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def due(self, now: float) -> list[Effect]:
        """The report, with the wake-up for the next one, if it is time for it."""
        if now < self._next:
            return []
        # From now, not from the last one: after a stall there is nothing to catch up on.
        self._next = now + INTERVAL_S
        return [Send(REPORTS, self.report(now), 0), Wake(self._next)]

    def at_once(self, now: float) -> list[Effect]:
        """A report that cannot wait for its turn."""
        return [Send(REPORTS, self.report(now), 0)]

    def report(self, now: float) -> Report:
        """What the node has to say."""
        return Report(
            node=self.name, role=self._role, pipeline=self._pipeline, epoch=self._epoch,
            incarnation=self._incarnation, sent_s=now, state=self.state, device=self.device,
            task=self.task, variant=self.variant, slots=self.slots(), counts=dict(self.counts),
            error=self.error if self.state in FAULTS else "",
        )  # fmt: skip
