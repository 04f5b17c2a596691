"""Topics in memory and virtual time: records land after a hop and are read in order.

Only hops, fetches and commits (``streams/simulated/delays.py``) take time.
"""

from bisect import insort
from collections.abc import Callable, Collection, Iterable
from heapq import heappush
from operator import attrgetter
from typing import Any
from zlib import crc32

from operators.plan_follower import CatchUp
from schemas.effects import (
    ACCURACY,
    COMMAND_RESULTS,
    COMMANDS,
    COMPLETIONS,
    DEAD_LETTERS,
    OUTPUTS,
    PLANS,
    QUERIES,
    REPORTS,
    RESULTS,
    SHADOWS,
    Arrived,
    Assign,
    Event,
    Send,
    work_topic,
)
from schemas.pipeline import Pipeline
from schemas.records import Record
from streams.simulated.agenda import LANDING, Agenda
from streams.simulated.delays import Delays
from streams.simulated.topic_log import PAUSED, Log, Place, SlotReader, Subscriber
from streams.topics import logical, topics

_UNREAD = (RESULTS, COMMAND_RESULTS, DEAD_LETTERS, ACCURACY, SHADOWS)  # until a node reads one
_UNCOMMITTED = (PLANS, REPORTS, COMMANDS, COMPLETIONS, *_UNREAD)

_Written = tuple[Log, Record, float]  # with its time stamp
_Waiting = tuple[float, int, _Written]  # with the time of writing and its order on the agenda

# Delivers an event to a node, now; the node is the driver's own kind of subscriber.
Deliver = Callable[[Any, Event], None]


class SimulatedTopics:
    """The slots of a pipeline's topics.

    ``keep`` lists the topics whose records ``written`` retains (None: all of them). Nothing is
    delivered or committed before ``away_until_s``, the end of the broker's outage. ``turn`` has the
    slots of the records sent in one turn of a node, which share a hop; the driver clears it between
    two turns.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        agenda: Agenda,
        delays: Delays,
        keep: Collection[str] | None,
        deliver: Deliver,
    ) -> None:
        self.away_until_s = agenda.now
        self.turn: list[Log] | None = None
        self._turn_s = 0.0  # time at which the turn's records land
        self._pipeline = pipeline.name
        self._agenda, self._delays, self._deliver = agenda, delays, deliver
        self._apart = delays.apart
        way_in, way_out = delays.way_in or delays.hop, delays.way_out or delays.hop
        root = work_topic(pipeline.root.name)
        self._hops = {
            QUERIES: way_in, root: way_in, OUTPUTS: way_out, REPORTS: delays.report,
        }  # fmt: skip
        self._keep = keep
        self._ignored = set(_UNREAD if keep is not None else ()) - set(keep or ())
        self._slots = {logical(pipeline.name, t.name): t.partitions for t in topics(pipeline)}
        self._logs: dict[Place, Log] = {}
        self._used: dict[str, list[Log]] = {}  # the slots of each topic that exist so far, in order

    # ------------------------------------------------------------------ from outside

    def inputs(self, topic: str, records: Iterable[tuple[float, int, Record, float]]) -> None:
        """Write an external producer's records, in order of time: (time, slot, record, time stamp)
        of each.

        Raise ``ValueError`` for the past.
        """
        order = self._agenda.order
        waiting: list[_Waiting] = []
        for at_s, slot, record, stamp_s in records:
            log = self._logs.get((topic, slot)) or self._log((topic, slot))
            waiting.append((at_s, order(), (log, record, stamp_s)))
        if waiting:
            self._agenda.refuse_past(waiting[0][0])
            waiting.reverse()
            self._wait(waiting)

    def _wait(self, waiting: list[_Waiting]) -> None:
        """Schedule the next record of a producer, the last one of ``waiting``.

        The agenda holds one at a time: with all of a slice it is several times as long, and each
        of its steps compares more entries.
        """
        at_s, order, _ = waiting[-1]
        heappush(self._agenda.heap, (at_s, LANDING, order, self._produce, waiting, at_s))

    def _produce(self, waiting: list[_Waiting], now: float) -> None:
        _, _, written = waiting.pop()
        if waiting:
            self._wait(waiting)
        if self._delays.sent is not None:
            self._delays.sent()
        self._write(written, now)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each slot of a topic."""
        return {log.place[1]: log.first + len(log.records) for log in self._used.get(topic, ())}

    def written(self, topic: str) -> dict[int, list[tuple[Record, float]]]:
        """Return a topic's retained records with their time stamps, by slot, in offset order."""
        return {log.place[1]: log.records for log in self._used.get(topic, ()) if log.records}

    def committed(self, topic: str) -> dict[int, tuple[int, str]]:
        """Return the committed offset of each slot of a topic, with its note."""
        return {
            slot: (done, self._logs[topic, slot].note) for slot, done in self.done(topic).items()
        }

    def done(self, topic: str) -> dict[int, int]:
        """Return the committed offset of each slot of a topic that has one."""
        logs = self._used.get(topic, ())
        for log in logs:
            log.settle(self._agenda.now)
        return {log.place[1]: log.committed for log in logs if log.committed}

    def _log(self, place: Place) -> Log:
        topic, slot = place
        slots = self._slots[topic]
        if not 0 <= slot < slots:
            raise ValueError(f"topic {topic!r} has slots 0 to {slots - 1}; found {slot}")
        log = self._logs[place] = Log(
            place,
            keeps=self._keep is None or topic in self._keep,
            commits=topic not in _UNCOMMITTED,
            unread=topic in _UNREAD,
            reports=topic == REPORTS,
            apart=self._apart or topic == REPORTS,
            hop=self._hops.get(topic, self._delays.hop),
        )
        insort(self._used.setdefault(topic, []), log, key=attrgetter("place"))
        return log

    # ------------------------------------------------------------------ writing

    def send(self, effect: Send, now: float) -> None:
        """Write a record that shares its hop with the others of the turn, as in a live run."""
        topic, slot = effect.topic, effect.slot
        if topic in self._ignored:
            return
        if slot < 0:
            slot = self._slot_of(effect)
        place = (topic, slot)
        log = self._logs.get(place) or self._log(place)
        if log.apart or log.unread:
            self._write((log, effect.record, now), now)
            return
        log.records.append((effect.record, now))
        turn = self.turn
        if turn is None:
            turn = self.turn = []
            hop = log.hop  # the hop of the turn's first send
            lands_s = self._turn_s = now + hop()
            self._agenda.land(lands_s, self._land, turn)
        else:
            lands_s = self._turn_s
        if log.last_s <= lands_s:
            log.last_s = lands_s
            turn.append(log)
        else:  # a slot keeps its order: no record overtakes its predecessor
            self._agenda.land(log.last_s, self._land, [log])

    def _slot_of(self, effect: Send) -> int:
        return crc32(effect.key.encode()) % self._slots[effect.topic]

    def _write(self, written: _Written, now: float) -> None:
        """Write a record with a time stamp and its own hop; it lands after its predecessors in the
        slot."""
        log, record, stamp_s = written
        if log.keeps or not log.unread:
            log.records.append((record, stamp_s))
        if log.unread:
            return
        hop = log.hop
        lands_s = now + hop()
        if lands_s < log.last_s:
            lands_s = log.last_s
        log.last_s = lands_s
        self._agenda.land(lands_s, self._land, [log])

    # ------------------------------------------------------------------ reading

    def _land(self, logs: list[Log], now: float) -> None:
        """Land the next record of each slot."""
        if now < self.away_until_s:
            self._agenda.land(self.away_until_s, self._land, logs)
            return
        for log in logs:
            log.landed += 1
            for reader in log.readers:
                self._read(reader, now)
            if log.landed >= log.trims:
                log.trim(now)

    def _read(self, reader: SlotReader, now: float) -> None:
        """Deliver landed records to a reader while it reads."""
        log = reader.log
        topic, slot = log.place
        for offset in range(reader.position, log.landed):
            if now < reader.since_s:
                return
            reader.position = offset + 1
            record, at_s = log.records[offset - log.first]
            self._deliver(reader.node, Arrived(record, topic, slot, offset, at_s))

    def _read_past(self, reader: SlotReader, now: float) -> None:
        """Deliver the newest plan and tables to a new reader, as the live driver does."""
        log = reader.log
        topic, slot = log.place
        past = CatchUp(self._pipeline)
        for offset in range(reader.position, log.landed):
            record, at_s = log.records[offset - log.first]
            past.take(Arrived(record, topic, slot, offset, at_s))
        reader.position = max(reader.position, log.landed)
        for event in past.newest():
            self._deliver(reader.node, event)

    def _catch_up(
        self, reader: SlotReader, read: Callable[[SlotReader, float], None], now: float
    ) -> None:
        reader.since_s = max(now + self._delays.fetch(), self.away_until_s)
        self._agenda.land(reader.since_s, read, reader)

    # ------------------------------------------------------------------ slots and commits

    def assign(self, node: Subscriber, effect: Assign, now: float) -> None:
        """Commit offsets of a node, and change which slots it reads."""
        for done in effect.done:
            reader = node.readers[effect.topic, done.slot]
            reader.settle(now)
            if reader.done is None:
                reader.due_s = max(now + self._delays.commit(), self.away_until_s)
            reader.done = done
        if effect.slots is not None:
            self._lease(node, effect.topic, effect.slots, now)
        if effect.paused is not None:
            self._pause(node, effect.topic, effect.paused, now)

    def leave(self, node: Subscriber) -> None:
        """Close the slots of a node that was killed; its commits so far remain."""
        for reader in node.readers.values():
            reader.log.settle(self._agenda.now)
            reader.close()

    def _lease(self, node: Subscriber, topic: str, slots: tuple[int, ...], now: float) -> None:
        for place, reader in list(node.readers.items()):
            if place[0] == topic and place[1] not in slots:
                reader.settle(float("inf"))
                reader.close()
                del node.readers[place]
        self._ignored.discard(topic)
        for place in sorted((topic, slot) for slot in slots):
            if place not in node.readers:
                log = self._logs.get(place) or self._log(place)
                reader = node.readers[place] = log.open(node, now)
                self._catch_up(reader, self._read_past if topic == PLANS else self._read, now)

    def _pause(self, node: Subscriber, topic: str, slots: tuple[int, ...], now: float) -> None:
        for place, reader in node.readers.items():
            if place[0] == topic:
                if place[1] in slots:
                    reader.since_s = PAUSED
                elif reader.since_s == PAUSED:
                    self._catch_up(reader, self._read, now)
