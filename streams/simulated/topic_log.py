"""Simulated slots of topics: their records, readers and commits.

Records are written, land after a hop, and are read in order. Records that no reader needs are
trimmed, so that memory does not grow with the length of a run.
"""

from dataclasses import dataclass, field
from math import inf

from schemas.effects import Done
from schemas.records import Record
from streams.simulated.delays import Delay

Place = tuple[str, int]  # logical topic, slot

PAUSED = inf  # since when a paused reader reads
TRIM = 256  # number of records that land between two trims


class Subscriber:
    """A node that reads slots: its name, and its reader of each."""

    __slots__ = ("name", "readers")

    def __init__(self, name: str) -> None:
        self.name = name
        self.readers: dict[Place, SlotReader] = {}


@dataclass(slots=True, eq=False)
class SlotReader:
    """A node's position in a slot; no record reaches the reader before ``since_s``, and none at all
    once the node has lost the slot.

    ``done`` is committed as of ``due_s``, lazily when the commit is next needed.
    """

    log: "Log"
    node: Subscriber
    position: int
    since_s: float
    done: Done | None = None
    due_s: float = 0.0

    def settle(self, now: float) -> None:
        """Commit the pending offset if it is due."""
        done = self.done
        if done is not None and self.due_s <= now:
            self.log.committed, self.log.note = done.offset, done.note
            self.done = None

    def close(self) -> None:
        """Stop reading the slot, even in the middle of a backlog."""
        self.log.readers = tuple(each for each in self.log.readers if each is not self)
        self.since_s = PAUSED


@dataclass(slots=True, eq=False)
class Log:
    """One slot. Invariant: ``records`` holds the records from offset ``first`` on, in order."""

    place: Place
    keeps: bool  # retain every record for inspection after the run
    commits: bool  # readers begin at the committed offset
    unread: bool  # no node has read the topic so far
    reports: bool  # a slot of the reports topic
    apart: bool  # each record has its own hop
    hop: Delay  # from a write to its readers
    records: list[tuple[Record, float]] = field(default_factory=list)
    first: int = 0
    landed: int = 0  # the offset after the newest readable record
    trims: int = TRIM  # the value of ``landed`` at which to trim next
    last_s: float = 0.0  # time at which the newest record lands
    readers: tuple[SlotReader, ...] = ()  # replaced as a whole: one may close while records land
    committed: int = 0
    note: str = ""

    def settle(self, now: float) -> None:
        """Commit the due offsets of all readers."""
        for reader in self.readers:
            reader.settle(now)

    def open(self, node: Subscriber, now: float) -> SlotReader:
        """Let a node read on from the offset at which a new reader begins."""
        if self.unread:  # so far; the new reader gets the retained records, or those to come
            self.unread, self.commits = False, True
            self.landed = self.first + len(self.records)
        reader = SlotReader(self, node, self._start(now), now)
        self.readers = (*self.readers, reader)
        return reader

    def _start(self, now: float) -> int:
        self.settle(now)
        if self.reports:
            return self.landed  # earlier reports are obsolete
        return max(self.committed, self.first) if self.commits else self.first

    def trim(self, now: float) -> None:
        """Delete records that no reader will read again."""
        self.settle(now)
        self.trims = self.landed + TRIM
        if self.keeps:
            return
        needed = min((r.position for r in self.readers), default=self.landed)
        if self.commits:
            needed = min(needed, self.committed)
        # Moving the remaining records must not cost more than the deletion saves.
        if (needed - self.first) * 2 >= len(self.records):
            del self.records[: needed - self.first]
            self.first = needed
