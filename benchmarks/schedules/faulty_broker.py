"""A broker in virtual time: logs, committed offsets, outages, and the links that lead to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from streams.codecs.wire import Fetched
from streams.kafka.leases.lease_table import LEASE_S
from streams.topics import physical, topics

Place = tuple[str, int]  # topic on the broker, slot
Do = Callable[[], None]

HOP_S = 0.002  # one way, without faults
RETRY_S = 0.1  # a client tries an unreachable broker again after this time

__all__ = ["HOP_S", "RETRY_S", "Agenda", "Broker", "Do", "Link", "Place", "Watcher"]


class Agenda:
    """Actions in order of virtual time; simultaneous ones in order of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[float, int, Do]] = []
        self._count = 0

    def at(self, at_s: float, do: Do) -> None:
        """Call ``do`` at ``at_s``, or now if that has passed."""
        self._count += 1
        heappush(self._heap, (max(at_s, self.now), self._count, do))

    def after(self, seconds: float, do: Do) -> None:
        """Call ``do`` in ``seconds``."""
        self.at(self.now + seconds, do)

    def run(self, until_s: float) -> None:
        """Run every action up to ``until_s``."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now, _, do = heappop(self._heap)
            self.steps += 1
            do()
        self.now = max(self.now, until_s)


class Watcher(Protocol):
    """Checks every record and commit that the broker accepts."""

    def appended(self, fetched: Fetched) -> None: ...
    def committed(self, group: str, place: Place, offset: int, life: str) -> None: ...


@dataclass(slots=True)
class Link:
    """The way between a process and the broker; each direction may be cut, both may be slow."""

    out: bool = True
    back: bool = True
    delay_s: float = 0.0


@dataclass
class Broker:
    """Logs and committed offsets. Appends wake the subscribers of a slot."""

    agenda: Agenda
    pipeline: Pipeline
    watcher: Watcher
    up: bool = True
    logs: dict[Place, list[Fetched]] = field(default_factory=dict)
    offsets: dict[tuple[str, Place], tuple[int, str]] = field(default_factory=dict)
    subscribers: dict[Place, list[Do]] = field(default_factory=dict)
    stuck: dict[str, int] = field(default_factory=dict)  # topic -> faults that hold it
    ends: dict[Place, int] = field(default_factory=dict)  # readable offsets of stuck places

    def __post_init__(self) -> None:
        self.leased = physical(self.pipeline.name, RESULTS)
        self.slots = {topic.name: topic.partitions for topic in topics(self.pipeline)}

    def places(self, topic: str) -> list[Place]:
        """Return every slot of a topic."""
        return [(topic, slot) for slot in range(self.slots[topic])]

    def log(self, place: Place) -> list[Fetched]:
        """Return the records of a slot."""
        return self.logs.setdefault(place, [])

    def end(self, place: Place) -> int:
        """Return the offset up to which a slot can be read."""
        return self.ends.get(place, len(self.logs.get(place, ())))

    def readable(self, place: Place, start: int = 0, most: int | None = None) -> list[Fetched]:
        """Return the records of a slot that can be read, from an offset on."""
        end = self.end(place)
        return self.log(place)[start : end if most is None else min(end, start + most)]

    def settled(self, place: Place) -> bool:
        """Return whether every record of a slot can be read, and is confirmed."""
        return self.end(place) == len(self.log(place))

    def hold(self, topic: str) -> None:
        """Freeze a replica of a topic: what is written from now on is neither read nor confirmed
        before its release."""
        self.stuck[topic] = self.stuck.get(topic, 0) + 1
        for place in self.places(topic):
            self.ends.setdefault(place, len(self.log(place)))

    def release(self, topic: str) -> None:
        """The replica is back, or dropped: every record can be read."""
        self.stuck[topic] -= 1
        if self.stuck[topic]:
            return
        for place in self.places(topic):
            del self.ends[place]
            self._wake(place)

    def append(self, place: Place, key: bytes | None, value: bytes | None, at_s: float) -> bool:
        """Append a record with its producer's time stamp; return False if that is of an expired
        lease."""
        if self.expired(place, at_s):
            return False
        log = self.log(place)
        fetched = Fetched(place[0], place[1], len(log), at_s, key, value, None)
        log.append(fetched)
        self.watcher.appended(fetched)
        self._wake(place)
        return True

    def _wake(self, place: Place) -> None:
        for wake in tuple(self.subscribers.get(place, ())):
            wake()

    def expired(self, place: Place, at_s: float) -> bool:
        """Return whether a time stamp is that of an expired lease, where leases count."""
        return place[0] == self.leased and self.agenda.now - at_s > LEASE_S

    def commit(self, group: str, offsets: dict[Place, tuple[int, str]], life: str) -> None:
        """Commit offsets; the last commit wins, as without group membership in Kafka."""
        for place, (offset, note) in offsets.items():
            self.offsets[group, place] = (offset, note)
            self.watcher.committed(group, place, offset, life)

    def start_of(self, group: str, place: Place) -> int:
        """Return the committed offset, else the beginning."""
        return self.offsets.get((group, place), (0, ""))[0]

    def notes(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """Return committed offsets and notes by slot."""
        return {
            p[1]: found for (g, p), found in self.offsets.items() if g == group and p[0] == topic
        }

    def reaches(self, link: Link) -> bool:
        """Return whether a request over the link gets an answer."""
        return self.up and link.out and link.back
