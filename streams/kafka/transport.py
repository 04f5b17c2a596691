"""Kafka under the live driver: fetch, send, assign, and commit behind confirmed sends.

The rules that keep work from being lost (docs/decisions/0004):

1. what a turn sends is handed to the producer, in order;
2. offsets that the turn reported done wait for the broker's confirmation of those sends, and of
   every earlier turn's;
3. then they are committed, at most every ``COMMIT_S``, never backwards within a lease.

A send that the broker refuses for good ends the process: its input is not committed, so the next
one to hold the slot does the work again.
"""

from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from streams.codecs.wire import Fetched
from streams.kafka.connectivity import Presence
from streams.kafka.kafka_client import (
    BrokerError,
    KafkaConfig,
    committed,
    consumer,
    heeding,
    producer,
)
from streams.kafka.kafka_errors import refusal

COMMIT_S = 0.2
STALLED_S = 20.0  # a broker that delivers and confirms nothing for so long: start anew
ORDERS_WAIT_S = 0.02  # a new lease waits at most this long for the reading thread
MOST_PER_FETCH = 500
Place = tuple[str, int]  # topic on the broker, slot


class _Turn:
    """What one turn of the driver sent, and which offsets it reported done."""

    __slots__ = ("absent", "done", "ended_s", "error", "topic", "waiting")

    def __init__(self) -> None:
        self.ended_s = 0.0
        self.waiting = 0
        self.absent = False  # sent while the broker was thought away
        self.done: dict[Place, tuple[int, str]] = {}
        self.error: KafkaError | None = None
        self.topic = ""  # of what was refused

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        self.waiting -= 1
        if error is not None:
            self.error, self.topic = error, message.topic()


class KafkaTransport:
    """One consumer and one producer for all nodes of a process.

    Since 2.16 the client lets one thread at a time into a consumer, and a thread that polls in a
    loop starves the others. So the reading thread has a consumer to itself and takes orders from
    a queue; offsets are looked up and committed through a second one, which never reads.
    """

    def __init__(self, config: KafkaConfig, group: str) -> None:
        self._config, self._group = config, group
        self._presence = Presence(config)
        heed = heeding(config, self._presence.told)
        self._reader = consumer(config, group, error_cb=heed)
        self._ledger = consumer(config, group)
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._asked = 0  # assignments ordered
        self.assigned = 0  # assignments carried out, by the reading thread
        self._producer = producer(config, error_cb=heed)
        self._turn = _Turn()
        self._turns: deque[_Turn] = deque()
        self._ready: dict[Place, tuple[int, str]] = {}
        self._paused: set[Place] = set()
        self._commit_at = 0.0
        self._heard = False  # the broker has confirmed what was sent while it was thought away
        self._delivers = False  # the reading thread got something since the last turn
        self._delivered_s = 0.0
        self._committed: dict[Place, int] = {}  # of the slots that are read, with commits

    # ------------------------------------------------------------------ reading

    def fetch(self, timeout_s: float) -> list[Fetched]:
        """Wait for one record, then take what is there. Called from the reading thread."""
        while not self._orders.empty():
            self._orders.get()()
        first = self._reader.poll(min(timeout_s, ORDERS_WAIT_S))
        if first is None:
            return []
        self._delivers = True
        # consume(N, timeout) would wait for N or the whole timeout.
        rest = self._reader.consume(MOST_PER_FETCH - 1, 0)
        return [_fetched(m) for m in (first, *rest) if self._usable(m)]

    def assign(self, new: Iterable[Place], gone: Iterable[Place], commits: bool) -> int:
        """Leave the ``gone`` slots, with what is done there committed first, and read ``new`` ones
        from their committed offsets (from the beginning where the topic has no commits). A slot
        in both is read again.

        Returns the number of this assignment: a fetch was made under it once ``assigned`` says so.
        """
        gone = list(gone)
        if gone:
            self.commit(wait=True)
            for place in gone:
                self._committed.pop(place, None)
            left = [TopicPartition(t, s) for t, s in gone]
            held = [TopicPartition(t, s) for t, s in sorted(self._paused.intersection(gone))]
            self._orders.put(lambda: self._leave(left, held))
            self._paused.difference_update(gone)
        places = [TopicPartition(t, s, OFFSET_BEGINNING) for t, s in new]
        if places and commits:
            topic = places[0].topic
            places = committed(self._ledger, topic, [p.partition for p in places])
            self._committed.update({(p.topic, p.partition): p.offset for p in places})
        self._asked += 1
        self._orders.put(lambda: self._read_from(places))
        return self._asked

    def _leave(self, left: list[TopicPartition], held: list[TopicPartition]) -> None:
        # The client remembers a pause beyond the assignment: the slot would come back paused.
        if held:
            self._reader.resume(held)
        self._reader.incremental_unassign(left)

    def _read_from(self, places: list[TopicPartition]) -> None:
        # One order: between two a fetch could read the new slots under the old number.
        if places:
            self._reader.incremental_assign(places)
        self.assigned += 1

    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None:
        """Pause just these of the slots in ``among``."""
        wanted, among = set(places), set(among)
        stop = [TopicPartition(t, s) for t, s in sorted((wanted & among) - self._paused)]
        go = [TopicPartition(t, s) for t, s in sorted((self._paused & among) - wanted)]
        if stop:
            self._orders.put(lambda: self._reader.pause(stop))
        if go:
            self._orders.put(lambda: self._reader.resume(go))
        self._paused = (self._paused - among) | (wanted & among)

    # ------------------------------------------------------------------ writing

    def send(self, topic: str, value: bytes, slot: int, key: str) -> None:
        """Hand a record to the producer. Raises ``BrokerError`` when it can never be sent."""
        turn = self._turn
        while True:
            try:
                self._producer.produce(
                    topic, value, key or None, partition=slot, on_delivery=turn.delivered
                )
            except BufferError:
                self._producer.poll(0.05)  # full: wait for the broker, never throw away
                continue
            except KafkaException as error:
                raise BrokerError(f"cannot send to {topic!r}: {error.args[0].str()}") from error
            turn.waiting += 1
            return

    def done(self, place: Place, offset: int, note: str) -> None:
        """Offsets below ``offset`` of a slot need nobody any more, once the turn is confirmed."""
        self._turn.done[place] = (offset, note)

    def end_turn(self, now: float) -> None:
        """Serve the broker's confirmations, and commit what they allow."""
        if self._turn.waiting or self._turn.done:
            self._turn.absent = self._presence.away and self._turn.waiting > 0
            self._turn.ended_s = now
            self._turns.append(self._turn)
            self._turn = _Turn()
        self._producer.poll(0)
        self._settle()
        self._check_stall(now)
        self._presence.look(now)
        if self._heard:
            self._heard = False
            self._presence.heard(now)
        if self._ready and now >= self._commit_at:
            self._commit_at = now + COMMIT_S
            self.commit(wait=False)

    def _check_stall(self, now: float) -> None:
        """Raises ``BrokerError`` when sends stay unconfirmed although the broker delivers.

        After a broker was away a producer has been seen to send nothing for minutes. What it holds
        is not committed: the next one to read it does the work again.
        """
        if self._delivers:
            self._delivers, self._delivered_s = False, now
        if self._turns and self._delivered_s - self._turns[0].ended_s > STALLED_S:
            raise BrokerError(
                f"the broker delivers, but has confirmed nothing of what was sent for "
                f"{STALLED_S:g} s; start this role anew"
            )

    @property
    def unsettled(self) -> bool:
        """True while sends wait for confirmation or offsets for their commit."""
        return bool(self._turns or self._ready)

    def _settle(self) -> None:
        while self._turns and self._turns[0].waiting == 0:
            turn = self._turns.popleft()
            if turn.error is not None:
                raise BrokerError(refusal(self._config, turn.error, "Write", "topic", turn.topic))
            self._ready.update(turn.done)
            self._heard = self._heard or turn.absent

    @property
    def away(self) -> bool:
        """No broker answers."""
        return self._presence.away

    def lag(self, timeout_s: float) -> dict[Place, int]:
        """For each slot that is read with commits: the records behind its committed offset.

        Called from any thread; the reading one answers, as only it may ask the consumer. Empty
        where it does not within the time. Slots of which nothing was fetched yet are left out.
        """
        answer: SimpleQueue[dict[Place, int]] = SimpleQueue()
        self._orders.put(lambda: answer.put(self._lag()))
        try:
            return answer.get(timeout=timeout_s)
        except Empty:
            return {}

    def _lag(self) -> dict[Place, int]:
        found = {}
        for place, offset in list(self._committed.items()):
            # What the last fetch told; it asks nobody.
            low, high = self._reader.get_watermark_offsets(TopicPartition(*place), cached=True)
            if high >= 0:
                found[place] = max(0, high - max(offset, low, 0))
        return found

    def commit(self, *, wait: bool) -> None:
        """Commit what is ready; ``wait`` for the broker's word when a slot changes hands."""
        if wait:
            self._producer.flush(10.0)
            self._settle()
        if not self._ready:
            return
        ready, self._ready = self._ready, {}
        offsets = [
            TopicPartition(topic, slot, offset, metadata=note)
            for (topic, slot), (offset, note) in ready.items()
        ]
        try:
            self._ledger.commit(offsets=offsets, asynchronous=not wait)
            self._note_committed(ready)
        except KafkaException as error:
            if error.args[0].code() in _HOPELESS:
                raise BrokerError(
                    refusal(self._config, error.args[0], "Read", "group", self._group)
                ) from error
            # A broker that is away: tried again with the next commit. Should the slot change hands
            # before that, its work is done again and counted once.
            self._ready = ready | self._ready

    def _note_committed(self, ready: dict[Place, tuple[int, str]]) -> None:
        for place, (offset, _) in ready.items():
            if place in self._committed:
                self._committed[place] = offset

    def _usable(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.fatal() or error.code() in _HOPELESS:
            of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            what = ("group", self._group) if of_group else ("topic", message.topic() or "")
            raise BrokerError(refusal(self._config, error, "Read", *what))
        return False  # librdkafka tries again by itself

    def close(self) -> None:
        """Wait for what was sent, commit, leave."""
        self._turns.append(self._turn)
        self.commit(wait=True)
        self._reader.close()
        self._ledger.close()


_HOPELESS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
)


def _fetched(message: Any) -> Fetched:
    kind, milliseconds = message.timestamp()
    at_s = 0.0 if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds / 1e3
    return Fetched(
        message.topic(), message.partition(), message.offset(), at_s, message.key(),
        message.value(), message.headers(),
    )  # fmt: skip
