"""The slots that an edge process's workers read, and the work handed to them in memory.

A worker commits the offsets of its slots. So a slot's records are numbered in the order in which
the worker gets them, whether from the broker or in memory; once it has finished some numbers, the
broker's offsets among them are committed. Work in memory dies with the process, so ingress holds
back the offset of its query until the work has left the process.
"""

from collections import deque
from collections.abc import Iterable

from schemas.effects import Done
from schemas.records import Origin, Work

Place = tuple[str, int]  # a work topic and a slot
IN_MEMORY = -1  # the offset of work handed over in memory


class _Slot:
    """A slot that ``node`` reads: its unfinished records by number, oldest first."""

    __slots__ = ("next", "node", "unfinished")

    def __init__(self, node: str) -> None:
        self.node = node
        self.next = 0
        # number, the broker's offset, and the work if it was handed over in memory
        self.unfinished: deque[tuple[int, int, Work | None]] = deque()


class LocalSlots:
    """State that the ingress and the workers of one process share."""

    def __init__(self) -> None:
        self._slots: dict[Place, _Slot] = {}
        self._open: dict[int, dict[int, int]] = {}  # pieces in memory by partition and origin
        self._paused: set[str] = set()  # workers that are full

    @property
    def full(self) -> bool:
        """Whether a worker has more work than it should hold."""
        return bool(self._paused)

    def reader(self, place: Place) -> str:
        """Return the node of this process that reads a slot, else ""."""
        slot = self._slots.get(place)
        return slot.node if slot is not None else ""

    # ------------------------------------------------------------------ queries under way

    def hold(self, origin: Origin) -> None:
        """Hold a query for one piece of work in memory."""
        held = self._open.setdefault(origin.partition, {})
        held[origin.offset] = held.get(origin.offset, 0) + 1

    def release(self, origin: Origin) -> None:
        """Release a query from one piece of work, which has left this process."""
        held = self._open[origin.partition]
        held[origin.offset] -= 1
        if not held[origin.offset]:
            del held[origin.offset]

    def holds(self, origin: Origin) -> bool:
        """Return whether a query would be read again if this process died now."""
        return origin.offset in self._open.get(origin.partition, ())

    def oldest(self, partition: int) -> int | None:
        """Return the oldest held place of a partition; None if none is held."""
        return min(self._open.get(partition, ()), default=None)

    # ------------------------------------------------------------------ a worker's slots

    def read(self, node: str, topic: str, slots: Iterable[int]) -> list[tuple[int, Work]]:
        """Let a node read exactly these slots of a topic.

        Return the unfinished work of the slots that it gives up, released, with each slot.
        """
        wanted = {(topic, slot) for slot in slots}
        gone = [p for p, s in self._slots.items() if s.node == node and p[0] == topic]
        left: list[tuple[int, Work]] = []
        for place in gone:
            if place not in wanted:
                rest = self._slots.pop(place).unfinished
                left += [(place[1], work) for _, _, work in rest if work is not None]
        for place in sorted(wanted):
            if self.reader(place) != node:
                self._slots[place] = _Slot(node)
        for _, work in left:
            self.release(work.origin)
        return left

    def pause(self, node: str, *, paused: bool) -> None:
        """Set whether a worker takes no more work for now."""
        (self._paused.add if paused else self._paused.discard)(node)

    def number(self, place: Place, offset: int, work: Work | None) -> int:
        """Return the number of the next record read from a slot."""
        slot = self._slots[place]
        number = slot.next
        slot.next += 1
        slot.unfinished.append((number, offset, work))
        return number

    def finish(self, place: Place, below: int) -> Done | None:
        """Finish the records of a slot below a number; return the broker's offset to commit."""
        slot = self._slots.get(place)
        offset = IN_MEMORY
        while slot is not None and slot.unfinished and slot.unfinished[0][0] < below:
            _, at, work = slot.unfinished.popleft()
            if work is not None:
                self.release(work.origin)
            else:
                offset = at
        return None if offset == IN_MEMORY else Done(place[1], offset + 1)
