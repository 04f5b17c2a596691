"""Run the live driver without Kafka or waiting: topics in memory, a virtual clock, and an inbox
that advances the clock to the next event."""

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from schemas.pipeline import Pipeline
from schemas.records import Record
from schemas.trace_context import Headers
from streams.codecs.wire import Fetched, encoder
from streams.live.inbox import FetchedBatch, Inbox
from streams.live.live_driver import Live
from streams.topics import physical, topics

Place = tuple[str, int]
Fed = tuple[float, str, bytes, int, Headers]  # time, topic, value, slot, headers


class VirtualClock:
    """A callable clock, set by tests."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class MemoryTransport:
    """A broker for one driver. Records can be fetched ``hop_s`` after they were sent."""

    def __init__(self, pipeline: Pipeline, clock: VirtualClock, hop_s: float) -> None:
        self._clock = clock
        self._hop_s = hop_s
        self._slots = {topic.name: topic.partitions for topic in topics(pipeline)}
        self._logs: dict[Place, list[tuple[int, Fetched]]] = {}
        self._positions: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._since: dict[Place, float] = {}
        self._paused: set[Place] = set()
        self._count = 0
        self.committed: dict[Place, tuple[int, str]] = {}
        self.assigned = 0
        self.patience_s = 1.0

    def log(self, topic: str) -> list[Fetched]:
        """Return every record of a topic, by slot and offset."""
        places = sorted(place for place in self._logs if place[0] == topic)
        return [fetched for place in places for _, fetched in self._logs[place]]

    def _landing_s(self, place: Place) -> float:
        """Return when the next record of a slot can be fetched."""
        position, log = self._positions[place], self._logs.get(place, [])
        if place in self._paused or position >= len(log):
            return float("inf")
        return max(log[position][1].at_s + self._hop_s, self._since[place])

    def next_s(self) -> float:
        return min(map(self._landing_s, self._positions), default=float("inf"))

    def landed(self) -> list[Fetched]:
        """Return the records that can be fetched now, in the order of their sends."""
        found: list[tuple[int, Fetched]] = []
        for place in self._positions:
            while self._landing_s(place) <= self._clock():
                found.append(self._logs[place][self._positions[place]])
                self._positions[place] += 1
        return [fetched for _, fetched in sorted(found, key=lambda each: each[0])]

    # ------------------------------------------------------------------ the protocol

    def fetch(self, timeout_s: float) -> list[Fetched]:
        raise AssertionError("the inbox fetches")

    def assign(self, new: Iterable[Place], gone: Iterable[Place], commits: bool) -> int:
        for place in gone:
            del self._positions[place]
            self._paused.discard(place)
        starts = {place: self.committed.get(place, (0, ""))[0] if commits else 0 for place in new}
        self._positions.update(starts)
        self._ends.update({place: len(self._logs.get(place, ())) for place in starts})
        self._since.update(dict.fromkeys(starts, self._clock() + self._hop_s))
        self.assigned += 1
        return self.assigned

    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None:
        wanted, among = set(places), set(among)
        for place in self._paused & among - wanted:
            self._since[place] = self._clock() + self._hop_s
        self._paused = (self._paused - among) | (wanted & among)

    def send(self, topic: str, value: bytes, slot: int, key: str, headers: Headers = ()) -> None:
        slot = slot if slot >= 0 else crc32(key.encode()) % self._slots[topic]
        log = self._logs.setdefault((topic, slot), [])
        self._count += 1
        fetched = Fetched(
            topic, slot, len(log), self._clock(), key.encode(), value, list(headers) or None
        )
        log.append((self._count, fetched))

    def done(self, place: Place, offset: int, note: str) -> None:
        self.committed[place] = (offset, note)

    def end_of(self, place: Place) -> int | None:
        return self._ends.get(place)

    def end_turn(self, now: float) -> None:
        """Do nothing: every send is confirmed immediately."""

    def abandon(self) -> None:
        """Do nothing: no send is pending."""

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


class JumpingInbox(Inbox):
    """An inbox that, instead of waiting, advances the clock to the next record, timer or input."""

    def __init__(self, clock: VirtualClock, transport: MemoryTransport) -> None:
        super().__init__()
        self._clock = clock
        self._transport = transport
        self._live: Live | None = None
        self._inputs: list[Fed] = []

    def feed(self, live: Live, inputs: Iterable[Fed]) -> None:
        """Set the inputs of external producers, sorted by time."""
        self._live = live
        self._inputs = list(inputs)

    def drain(self, timeout_s: float) -> list[Any]:
        assert self._live is not None
        timers = self._live._timers  # the driver exposes its timers nowhere else
        timer_s = timers[0][0] if timers else float("inf")
        input_s = self._inputs[0][0] if self._inputs else float("inf")
        next_s = min(self._transport.next_s(), timer_s, input_s)
        self._clock.now = max(self._clock.now, next_s)
        while self._inputs and self._inputs[0][0] <= self._clock.now:
            _, topic, value, slot, headers = self._inputs.pop(0)
            self._transport.send(topic, value, slot, "", headers)
        landed = self._transport.landed()
        return [FetchedBatch(self._transport.assigned, landed)] if landed else []


def drive(
    pipeline: Pipeline,
    live: Live,
    inbox: JumpingInbox,
    clock: VirtualClock,
    inputs: Iterable[tuple[float, str, int, Record]],
    until_s: float,
) -> None:
    """Run the live driver's own loop until the clock shows ``until_s``."""
    inbox.feed(live, [
        (at_s, physical(pipeline.name, topic), encoder(pipeline, topic)(record), slot, ())
        for at_s, topic, slot, record in sorted(inputs, key=lambda each: each[0])
    ])  # fmt: skip
    live.start()
    while clock() < until_s:
        live.turn()
