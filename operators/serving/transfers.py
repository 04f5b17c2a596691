"""Transfers of sessions' work between tiers: measured, or emulated on one machine.

A link takes ``bytes / rate + delay`` per record, and carries a session's records one after another.
If all tiers are processes of one machine, a worker holds a record from another tier for that long
after its arrival, and counts those seconds: the time between processes (``comm``) passes in any
case, over a real link too. A real link needs no emulation: the seconds from sending to arrival are
counted. The control app learns from these counts how fast links are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

from control.problem.tiers import Link
from operators.record_size import record_size
from operators.reporter import Reporter
from schemas.pipeline import Pipeline
from schemas.records import Work

T = TypeVar("T")
Hop = tuple[str, str]  # tiers
COUNTS = ("records", "bytes", "busy_s")


@dataclass(slots=True)
class SessionLinks:
    """The tier of the sessions' inputs, and the links to emulate: by session and hop, which may
    change, else by hop. Without links nothing is held."""

    origin: str
    emulated: Mapping[Hop, Link] = field(default_factory=dict)
    changed: dict[tuple[str, Hop], Link] = field(default_factory=dict)

    def link(self, session: str, hop: Hop) -> Link | None:
        """Return the link to emulate, or None."""
        if not self.emulated:
            return None
        return self.changed.get((session, hop)) or self.emulated.get(hop)


class Transfers(Generic[T]):
    """The transfers to one worker or egress; ``T`` is held until its transfer has ended."""

    def __init__(self, links: SessionLinks, pipeline: Pipeline, reporter: Reporter) -> None:
        self._links = links
        self._parents = {c: task.name for task in pipeline.tasks for c in task.children}
        self._reporter = reporter
        self._free_s: dict[tuple[str, Hop], float] = {}  # when a session's link is idle again
        self._held: list[tuple[float, int, T]] = []
        self._count = 0

    def end_s(self, work: Work, sent_s: float, now: float) -> float:
        """Return when the transfer of a record that arrives now ends, and count it.

        ``sent_s`` is the time of sending.
        """
        session = work.session
        if session is None:
            return now
        parent = self._parents.get(work.task)
        tier = session.stage(work.task).tier
        hop = (session.stage(parent).tier if parent else self._links.origin), tier
        return self._end_s(work, session.session, hop, sent_s, now)

    def back_s(self, work: Work, sent_s: float, now: float) -> float:
        """Return when a record for egress reaches the session's own tier, now or later.

        Only emulated links are counted: a real result is transferred after egress.
        """
        session, end = work.session, work.items[0].end if work.items else None
        if session is None or end is None:
            return now
        hop = session.stage(end.task).tier, self._links.origin
        if self._links.link(session.session, hop) is None:
            return now
        return self._end_s(work, session.session, hop, sent_s, now)

    def _end_s(self, work: Work, session: str, hop: Hop, sent_s: float, now: float) -> float:
        if hop[0] == hop[1]:
            return now
        size = sum(record_size(item.value) for item in work.items)
        key = session, hop
        link = self._links.link(session, hop)
        if link is None:
            begins_s, ends_s = sent_s, now
        else:
            # The counts exclude the broker's own time, which is long on a busy machine.
            begins_s = max(now, self._free_s.get(key, now))
            ends_s = begins_s + size / link.bytes_per_s + link.delay_s
        self._free_s[key] = ends_s if link is None else ends_s - link.delay_s
        for what, amount in zip(COUNTS, (1, size, ends_s - begins_s), strict=True):
            self._reporter.count(count_of(*key, what), amount)
        return ends_s

    def hold(self, held: T, until_s: float) -> None:
        """Hold a value until its transfer has ended."""
        self._count += 1
        heappush(self._held, (until_s, self._count, held))

    def ended(self, now: float) -> list[T]:
        """Return the values whose transfer has ended."""
        found: list[T] = []
        while self._held and self._held[0][0] <= now:
            found.append(heappop(self._held)[2])
        return found

    def forget(self, sessions: frozenset[str]) -> None:
        """Forget the counts of all other sessions: they have closed."""
        for key in [each for each in self._free_s if each[0] not in sessions]:
            del self._free_s[key]
            for what in COUNTS:
                self._reporter.counts.pop(count_of(*key, what), None)


def count_of(session: str, hop: Hop, what: str) -> str:
    """Return the name of a count of transfers."""
    return f"hop/{session}/{hop[0]}>{hop[1]}/{what}"
