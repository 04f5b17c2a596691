"""The slots of a worker's lease: reading, backpressure, and the offsets to commit.

After a worker loses a slot, the next one reads from the committed offset. The first worker forgets
queued items of that slot, and egress counts running ones once.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from control.state_machine import StateMachine
from operators.offset_tracker import Progress
from operators.serving.deadline_queue import Ticket
from schemas.effects import Assign, Done, Effect, work_topic
from schemas.records import Lease, SlotState


class Reading(StrEnum):
    """The reading state of a worker."""

    IDLE = "idle"  # no lease
    READING = "reading"
    PAUSED = "paused"  # backpressure: the backlog stays on the broker


class ReadingChange(StrEnum):
    """An event that changes ``Reading``."""

    LEASE = "take a lease"
    REVOKE = "lose its lease"
    PAUSE = "pause"
    RESUME = "resume"


_S, _C = Reading, ReadingChange
TRANSITIONS: Mapping[tuple[Reading, ReadingChange], Reading] = {
    (_S.IDLE, _C.LEASE): _S.READING,
    (_S.READING, _C.LEASE): _S.READING,
    (_S.PAUSED, _C.LEASE): _S.PAUSED,  # other slots of the same task: the queue stays full
    (_S.READING, _C.REVOKE): _S.IDLE,
    (_S.PAUSED, _C.REVOKE): _S.IDLE,
    (_S.READING, _C.PAUSE): _S.PAUSED,
    (_S.PAUSED, _C.RESUME): _S.READING,
}


class LeasedSlots:
    """The leased slots of one worker, with the offset tracker of each."""

    __slots__ = ("_progress", "lease", "paused", "reading", "topic", "wanted")

    def __init__(self, worker: str) -> None:
        self.lease: Lease | None = None
        self.wanted = ""  # the lease's "task/variant"
        self.topic = ""
        self._progress: dict[int, Progress] = {}
        self.reading = StateMachine(worker, TRANSITIONS, Reading.IDLE)
        self.paused = False  # a field, not a property: read for every record

    def change(self, lease: Lease | None) -> list[Effect]:
        """Replace the lease by the plan's; another task's slots start anew."""
        before, topic = self.lease, self.topic
        self.lease = lease
        self.wanted = lease.key if lease else ""
        self.topic = work_topic(lease.task) if lease else ""
        effects: list[Effect] = []
        if before is not None and topic != self.topic:
            self._read(ReadingChange.REVOKE)
            self._progress = {}
            effects.append(Assign(topic, ()))
        if lease is not None:
            self._read(ReadingChange.LEASE)
            kept = {slot: self._progress.get(slot) or Progress() for slot in lease.slots}
            self._progress = kept
            effects.append(Assign(self.topic, lease.slots, lease.slots if self.paused else ()))
        return effects

    def _read(self, change: ReadingChange) -> None:
        self.paused = self.reading.go(change) is Reading.PAUSED

    def pause(self) -> Assign:
        """Leave the backlog on the broker."""
        assert self.lease is not None
        self._read(ReadingChange.PAUSE)
        return Assign(self.topic, paused=self.lease.slots)

    def resume(self) -> Assign:
        """Resume reading."""
        self._read(ReadingChange.RESUME)
        return Assign(self.topic, paused=())

    def begin(self, slot: int, offset: int, pieces: int) -> Progress | None:
        """Begin a record; return None for a lost slot, or a record that was seen before."""
        progress = self._progress.get(slot)
        return progress if progress is not None and progress.begin(offset, pieces) else None

    def pass_over(self, slot: int, offset: int) -> list[Effect] | None:
        """Begin and finish a record without pieces; return the offsets to commit, or None if
        ``begin`` does."""
        progress = self.begin(slot, offset, 0)
        return None if progress is None else self.commit({slot: progress})

    def holds(self, ticket: Ticket) -> bool:
        """Return whether the item's slot has been leased since the item arrived."""
        return self._progress.get(ticket.slot) is ticket.progress

    def finish(self, tickets: Iterable[Ticket]) -> list[Effect]:
        """Finish items; return the offsets to commit."""
        touched: dict[int, Progress] = {}
        for ticket in tickets:
            ticket.progress.finish(ticket.offset)
            touched[ticket.slot] = ticket.progress
        return self.commit(touched)

    def commit(self, touched: Mapping[int, Progress]) -> list[Effect]:
        """Return the offsets to commit of the slots in which records have finished."""
        done: list[Done] = []
        for slot, progress in touched.items():
            if progress.advance() and self._progress.get(slot) is progress:
                done.append(Done(slot, progress.done))
        return [Assign(self.topic, done=tuple(done))] if done else []

    def states(self) -> tuple[SlotState, ...]:
        """Return each slot's state for the worker's report."""
        if self.lease is None:
            return ()
        task = self.lease.task
        return tuple(
            SlotState(task, slot, progress.done, progress.open)
            for slot, progress in sorted(self._progress.items())
        )
