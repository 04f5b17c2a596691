"""The consumer of the reading thread, which executes the orders of other threads.

Since 2.16 the client serialises the threads of a consumer, and a thread that polls in a loop
starves the others. So only one thread uses this consumer, and orders wait in a queue.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import ceil
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from streams.codecs.wire import Fetched
from streams.kafka.kafka_client import (
    Callbacks,
    KnownLeaders,
    assign_more,
    available,
    consumer,
    read_from,
    read_headers,
)
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError, unreadable
from streams.kafka.offset_ledger import NO_EPOCH, Bounds
from streams.kafka.reading.read_slots import ReadSlots
from streams.kafka.reading.silent_slots import SilentSlots, deletion_sentence, reread_sentence
from streams.observers.journal import tell
from streams.topics import Place

ORDERS_WAIT_S = 0.05  # longest wait of a new lease for the reading thread
RESUME_WAIT_S = 0.02  # of a resumption; a worker then has work for 0.1 s left
MOST_PER_FETCH = 500

UNREADABLE = "the batch of this record cannot be decompressed, or has over 100 MB then; send less"

log = logging.getLogger("headrace.broker")

LEVELS = {"broker.slot_stopped": logging.WARNING, "broker.records_deleted": logging.ERROR}

NO_EPOCHS: Mapping[Place, int] = {}

# Calls the second argument, from any thread, with the broker's bounds of some of the slots.
AskBounds = Callable[[Iterable[Place], Callable[[Bounds], None]], None]
# Takes by slot the offsets behind its last record and behind the transaction markers after it.
PassMarkers = Callable[[Mapping[Place, tuple[int, int]]], None]


class PartitionReader:
    """Reads the slots that it is ordered to, and reports the markers at their ends.

    ``fetch`` is for the reading thread, the other methods for any thread. ``assigned`` is the
    number of the last assignment executed, ``delivers`` whether a record was received since it was
    last reset. While it is ``held``, it fetches nothing. ``epochs`` gets the leader epoch of each
    slot's last record.
    """

    def __init__(
        self, config: KafkaConfig, group: str, callbacks: Callbacks, ask_bounds: AskBounds,
        pass_markers: PassMarkers, epochs: dict[Place, int] | None = None,
    ) -> None:  # fmt: skip
        self._config, self._group = config, group
        self._consumer = consumer(config, group, **callbacks)
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._slots = ReadSlots()
        self._passed: set[Place] = set()  # slots with a record skipped in the present fetch
        self._silent, self._ask_bounds = SilentSlots(), ask_bounds
        self._pass_markers = pass_markers
        self._look_due = False  # a flag: at most one waits, as the client must be polled in between
        self._epochs = epochs
        self._leaders = KnownLeaders(self._consumer)
        self.assigned = 0
        self.delivers = False
        self.held = False

    def know_leaders(self, topics: Iterable[str]) -> None:
        """Ask for the leaders of topics before reading begins: their slots are read sooner."""
        self._leaders.ask(topics)

    def fetch(self, timeout_s: float) -> list[Fetched]:
        """Wait for a record, then fetch all available ones."""
        while not self._orders.empty():
            self._orders.get()()
        if self._look_due:
            self._look()
        longest_s = RESUME_WAIT_S if self._slots.paused else ORDERS_WAIT_S
        wait_s = whole_ms(min(timeout_s, longest_s))
        if self.held:
            with suppress(Empty):
                self._orders.get(timeout=wait_s)()
            return []
        messages = available(self._consumer, wait_s, MOST_PER_FETCH)
        if not messages:
            return []
        self.delivers = True
        found = []
        self._passed.clear()
        for message in messages:
            each = self._record(message)
            if each is not None:
                self._silent.heard((each.topic, each.slot), each.offset)
                found.append(each)
        return found

    def leave(self, places: Iterable[Place], number: int) -> None:
        """Stop reading these slots, by assignment ``number``."""
        self._slots.pauses((), places)
        self._orders.put(lambda: self._leave(places, number))

    def read(self, places: list[TopicPartition], number: int) -> None:
        """Read these slots from their offsets, by assignment ``number``."""
        self._orders.put(lambda: self._read_from(places, number))

    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None:
        """Pause exactly ``places`` among the slots in ``among``; resume the others of them."""
        # Before the orders run: ``_read_from`` pauses slots that are yet to be assigned.
        stop, go = self._slots.pauses(places, among)
        if stop:
            self._orders.put(lambda: self._consumer.pause(self._read_of(stop)))
        if go:
            self._orders.put(lambda: self._resume(go))

    def lag(self, offsets: Mapping[Place, int], timeout_s: float) -> dict[Place, int]:
        """Return the number of records after the offset of each slot; slots without a fetch so far
        are omitted. Empty if the reading thread does not answer within ``timeout_s``.
        """
        answer: SimpleQueue[dict[Place, int]] = SimpleQueue()
        self._orders.put(lambda: answer.put(self._lag(offsets)))
        try:
            return answer.get(timeout=timeout_s)
        except Empty:
            return {}

    def look(self) -> None:
        """Assign slots anew that the client has stopped reading, if any."""
        self._look_due = True

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    # ------------------------------------------------------------------ on the reading thread

    def _leave(self, places: Iterable[Place], number: int) -> None:
        left = self._slots.leaves(places, number)
        for place in places:
            self._silent.leaves(place)
        if left:
            _unassign(self._consumer, [TopicPartition(*place) for place in left])

    def _read_from(self, places: list[TopicPartition], number: int) -> None:
        # A single order: between two, a fetch could read the new slots under the old number.
        by_place = {(p.topic, p.partition): p for p in places}
        fresh = self._slots.begins(by_place, number)
        if fresh:
            self._leaders.ask(topic for topic, _ in fresh)
            wanted = [place for at, place in by_place.items() if at in fresh]
            read_from(self._consumer.incremental_assign, self._consumer, wanted)
            for place in fresh:
                self._silent.reads(place, by_place[place].offset)
            held = self._read_of(fresh & self._slots.paused)
            if held:
                self._consumer.pause(held)
        self.assigned = number

    def _resume(self, places: Iterable[Place]) -> None:
        """Resume after a pause.

        If the client reads nothing else from a broker, its thread for that broker sleeps through a
        resumption, for up to 1 s; a seek wakes it (librdkafka 2.16).
        """
        resumed = self._read_of(places)
        self._consumer.resume(resumed)
        for each in resumed:
            offset = self._silent.next_offset((each.topic, each.partition))
            if offset is not None:
                with suppress(KafkaException):  # a slot that is not read yet needs no wake-up
                    self._consumer.seek(TopicPartition(each.topic, each.partition, offset))

    def _look(self) -> None:
        """Ask the broker for the bounds of the slots without records since the last look, and of
        those with skipped offsets."""
        self._look_due = False
        silent = self._silent.silent(self._slots.paused)
        asked = list(dict.fromkeys([*silent, *self._silent.skipped]))
        if asked:
            self._ask_bounds(
                asked, lambda found: self._orders.put(lambda: self._looked(silent, found))
            )

    def _looked(self, silent: Iterable[Place], bounds: Bounds) -> None:
        deleted = self._silent.deleted({place: start for place, (start, _) in bounds.items()})
        if deleted:
            event, slots = "broker.records_deleted", [f"{t}-{s}" for (t, s), _ in deleted]
            records = sum(len(gap) for _, gap in deleted)
            tell(
                log, LEVELS[event], event, deletion_sentence(deleted), slots=slots, records=records
            )
        self._read_anew({place: bounds[place][1] for place in silent if place in bounds})

    def _read_anew(self, ends: dict[Place, int]) -> None:
        """Assign the slots anew that the client has stopped reading, not those where it has read
        up to the end and found transaction markers only."""
        reached = {place: self._position(place) for place in ends}
        behind = {place: end for place, end in ends.items() if reached[place] < end}
        read = {place: self._silent.next_offset(place) or 0 for place in ends}
        markers = {at: (read[at], end) for at, end in reached.items() if 0 < read[at] < end}
        if markers:
            self._pass_markers(markers)
        stopped = self._silent.stopped(behind, self._slots.paused)
        if stopped:
            assign_anew(self._consumer, stopped, ends, self._epochs or NO_EPOCHS)

    def _read_of(self, places: Iterable[Place]) -> list[TopicPartition]:
        """Return the slots among these that are being read."""
        return [TopicPartition(*place) for place in self._slots.of(places)]

    def _lag(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        found = {}
        for place, offset in list(offsets.items()):
            # The watermarks of the last fetch, without a request.
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            if high >= 0:
                found[place] = max(0, high - max(self._done(place, offset), low, 0))
        return found

    def _done(self, place: Place, offset: int) -> int:
        """Return the offset below which all records of a slot are done; ``offset`` is committed.

        No commit reaches beyond a transaction's marker at the end, but the client's position does.
        """
        received = self._silent.next_offset(place)
        if received is not None and offset < received:
            return offset
        return max(offset, self._position(place))

    def _position(self, place: Place) -> int:
        """Return the offset that the client reads next, also behind markers; below 0 before its
        first record."""
        (position,) = self._consumer.position([TopicPartition(*place)])
        return int(position.offset)

    def _record(self, message: Any) -> Fetched | None:
        """Return a message as a record; None for an error after which librdkafka retries."""
        error = message.error()
        if error is None:
            found = _fetched(message)
            if self._epochs is not None:
                epoch = message.leader_epoch()
                if epoch is not None:  # None from Kafka before 2.1
                    self._epochs[found.topic, found.slot] = epoch
            return found
        if error.code() == KafkaError._BAD_COMPRESSION:
            return self._passed_over(message)
        why = unreadable(self._config, error, message.topic() or "", self._group)
        if why is not None:
            raise BrokerError(why)
        return None

    def _passed_over(self, message: Any) -> Fetched | None:
        """Skip a record whose batch the client cannot decompress to at most
        ``receive.message.max.bytes``; return the record without its value.

        Otherwise the client would retry the batch forever; it may already have done so several
        times between two fetches. Records of the batch are skipped one at a time, because the
        client tells where the batch begins, but not where it ends.
        """
        place = (message.topic(), message.partition())
        if place in self._passed:
            return None
        offset = max(message.offset(), self._silent.next_offset(place) or 0)
        try:
            self._consumer.seek(TopicPartition(*place, offset + 1))
        except KafkaException:
            return None  # the client retries the batch
        self._passed.add(place)
        return Fetched(*place, offset, 0.0, None, None, None, UNREADABLE)


def assign_anew(
    client: Consumer,
    stopped: list[tuple[Place, int]],
    ends: Mapping[Place, int],
    epochs: Mapping[Place, int] = NO_EPOCHS,
) -> None:
    """Log slots that the client has stopped reading, and assign them anew at their offsets.

    With the leader epochs of their last records the client notices a log that has lost its end.
    """
    slots = [f"{topic}-{slot}" for (topic, slot), _ in stopped]
    event = "broker.slot_stopped"
    tell(log, LEVELS[event], event, reread_sentence(stopped, ends), slots=slots)
    places = [
        TopicPartition(*place, at, leader_epoch=epochs.get(place, NO_EPOCH))
        for place, at in stopped
    ]
    _unassign(client, places)
    assign_more(client, places)


def _unassign(client: Consumer, places: list[TopicPartition]) -> None:
    # The client keeps a pause beyond the assignment: the slot would return paused.
    client.resume(places)
    client.incremental_unassign(places)


def whole_ms(wait_s: float) -> float:
    """Return a wait rounded up to milliseconds. The client rounds down, in the end to 0, and a
    caller that waits for the rest would spin."""
    return ceil(wait_s * 1e3) / 1e3


def _fetched(message: Any) -> Fetched:
    kind, milliseconds = message.timestamp()
    at_s = 0.0 if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds / 1e3
    return Fetched(
        message.topic(), message.partition(), message.offset(), at_s, message.key(),
        message.value(), *read_headers(message),
    )  # fmt: skip
