"""What does a slot of a topic hold in a simulation, and who reads it from where?

Records are written, land after a hop, and are read in order. What nobody can read any more is
let go, so that a long run needs no more memory than a short one.
"""

from dataclasses import dataclass, field
from typing import Any

from schemas.effects import Done
from schemas.records import Record

Place = tuple[str, int]  # logical topic, slot

TRIM = 256  # records let go at a time


@dataclass(slots=True, eq=False)
class SlotReader:
    """A node's place in a slot. ``since_s``: no record reaches a new reader before this time.

    ``done`` waits to be committed at ``due_s``; nobody looks before somebody must know.
    """

    name: str
    node: Any  # what the driver knows of the node
    position: int
    since_s: float
    paused: bool = False
    done: Done | None = None
    due_s: float = 0.0


@dataclass(slots=True, eq=False)
class Log:
    """One slot. Invariant: records from offset ``first`` on are there, in order of offsets."""

    place: Place
    keeps: bool  # every record, for whoever looks at it afterwards
    commits: bool  # readers begin at the committed offset
    unread: bool  # by any node, ever
    reports: bool  # they travel apart, with a delay of their own
    records: list[tuple[Record, float]] = field(default_factory=list)
    first: int = 0
    landed: int = 0  # the offset behind the newest record that readers can have
    trims: int = TRIM  # looked at again when so many have landed
    last_s: float = 0.0  # when the newest record lands
    readers: dict[str, SlotReader] = field(default_factory=dict)
    committed: int = 0
    note: str = ""

    def settle(self, now: float, name: str = "") -> None:
        """Commit what is due by now, of one reader or of all."""
        for reader in self.readers.values():
            if reader.done is not None and reader.due_s <= now and name in ("", reader.name):
                self.committed, self.note = reader.done.offset, reader.done.note
                reader.done = None

    def start(self, now: float) -> int:
        """Where a new reader begins."""
        self.settle(now)
        if self.reports:
            return self.landed  # what was reported before says nothing about now
        return max(self.committed, self.first) if self.commits else self.first

    def trim(self, now: float) -> None:
        """Let go of what nobody will read again."""
        self.settle(now)
        self.trims = self.landed + TRIM
        if self.keeps:
            return
        needed = min((r.position for r in self.readers.values()), default=self.landed)
        if self.commits:
            needed = min(needed, self.committed)
        # Moving what stays must not cost more than what goes saves.
        if (needed - self.first) * 2 >= len(self.records):
            del self.records[: needed - self.first]
            self.first = needed
