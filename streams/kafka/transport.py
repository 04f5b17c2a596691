"""Kafka under the live driver: fetch, send, assign, and commit behind confirmed sends.

The rules that keep work from being lost (docs/decisions/0004):

1. what a turn sends is handed to the producer, in order;
2. offsets that the turn reported done wait for the broker's confirmation of those sends, and of
   every earlier turn's;
3. then they are committed, at most every ``COMMIT_S``, never backwards within a lease.

Reports stand outside these rules: they have a producer of their own, and one that is lost is
followed by the next. A reports topic without a leader stops no work.

A send that the broker refuses for good ends the process: its input is not committed, so the next
one to hold the slot does the work again.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from schemas.effects import REPORTS
from streams.codecs.wire import Fetched
from streams.kafka.connectivity import Connectivity
from streams.kafka.kafka_client import (
    BrokerError,
    KafkaConfig,
    consumer,
    heeding,
    producer,
    report_producer,
)
from streams.kafka.kafka_errors import refusal
from streams.kafka.offset_ledger import HOPELESS, OffsetLedger
from streams.topics import physical

COMMIT_S = 0.2
FLUSH_S = 10.0  # a role that ends waits at most this long for confirmations
HAND_OVER_S = 10.0  # a slot is given up so long after it was asked for, confirmed or not
SILENCE_S = 2.0  # a broker that is away and delivers again after so long has come back
STALLED_S = 20.0  # a broker that delivers and confirms nothing for so long: start anew
ORDERS_WAIT_S = 0.02  # a new lease waits at most this long for the reading thread
MOST_PER_FETCH = 500
WARM_WITHIN_S = 5.0
_REPORTS = physical("", REPORTS)
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


class _HandOver(NamedTuple):
    """A change of what is read: it waits until what was sent before it is confirmed."""

    number: int
    new: tuple[Place, ...]
    gone: tuple[Place, ...]
    commits: bool
    behind: int  # turns that must be confirmed first
    by_s: float  # and no longer than this


class KafkaTransport:
    """One consumer and one producer for all nodes of a process, and a producer for reports.

    Since 2.16 the client lets one thread at a time into a consumer, and a thread that polls in a
    loop starves the others. So the reading thread has a consumer to itself and takes orders from
    a queue; offsets are looked up and committed through a second one, on its own thread. No call
    of the driver's thread waits for the broker.
    """

    def __init__(self, config: KafkaConfig, group: str) -> None:
        self._config, self._group = config, group
        self._connectivity = Connectivity(config)
        heed = heeding(config, self._connectivity.told)
        self._reader = consumer(config, group, error_cb=heed)
        self._ledger = OffsetLedger(config, group, consumer(config, group))
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._asked = 0  # assignments ordered
        self.assigned = 0  # assignments carried out, by the reading thread
        self._producer = producer(config, error_cb=heed)
        self._reporter = report_producer(config, error_cb=heeding(config))
        self._refused: KafkaError | None = None  # a report, for good
        self._now = 0.0  # at the end of the last turn
        self._turn = _Turn()
        self._turns: deque[_Turn] = deque()
        self._ended = self._confirmed = 0  # turns
        self._hand_overs: deque[_HandOver] = deque()
        self._ends: dict[Place, int] = {}
        self._ready: dict[Place, tuple[int, str]] = {}
        self._paused: set[Place] = set()
        self._read: set[Place] = set()  # by the reading thread, whose own it is
        self._left: dict[Place, int] = {}  # likewise: slots given up, by the last number
        self._commit_at = 0.0
        self._heard = False  # the broker has confirmed what was sent while it was thought away
        self._delivers = False  # the reading thread got something since the last turn
        self._delivered_s = self._back_s = 0.0

    def warm(self, topics: Iterable[str]) -> bool:
        """Connect the producer and learn where these topics lie; False if the broker is away.

        Left to the first query, it costs that one 100 to 300 ms: reports, which leave all the
        time, have a producer of their own.
        """
        try:
            for name in topics:
                self._producer.list_topics(name, timeout=WARM_WITHIN_S)
        except KafkaException:
            return False  # the roles wait for a broker that is away, and so does the first record
        return True

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
        self._asked += 1
        number = self._asked
        if gone:
            # What this turn did so far counts as done; what it does later is the next turn's.
            self._close_turn(self._now)
            self._paused -= set(gone)
            self._orders.put(lambda: self._leave(gone, number))
        behind = self._ended if gone else 0
        by_s = self._now + HAND_OVER_S
        self._hand_overs.append(_HandOver(number, tuple(new), tuple(gone), commits, behind, by_s))
        self._hand_over()
        return number

    def end_of(self, place: Place) -> int | None:
        """The offset behind the last record that a slot without commits had when it was assigned;
        None until the broker has said so."""
        return self._ends.get(place)

    def _hand_over(self) -> None:
        """Begin the changes of what is read that wait for nothing any more, in their order."""
        while self._hand_overs:
            change = self._hand_overs[0]
            if self._confirmed < change.behind and self._now < change.by_s:
                return
            self._hand_overs.popleft()
            if change.gone:
                self._commit()
                self._ledger.release(change.gone)
            self._begin(change)

    def _begin(self, change: _HandOver) -> None:
        def read_from(places: list[TopicPartition]) -> None:
            self._orders.put(lambda: self._read_from(places, change.number))

        def read_all(ends: dict[Place, int]) -> None:
            self._ends.update(ends)
            read_from([TopicPartition(t, s, OFFSET_BEGINNING) for t, s in change.new])

        if change.new and change.commits:
            slots = [slot for _, slot in change.new]
            self._ledger.look_up(change.new[0][0], slots, read_from)
        else:
            self._ledger.ends(change.new, read_all)

    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None:
        """Pause just these of the slots in ``among``."""
        wanted, among = set(places), set(among)
        stop, go = (wanted & among) - self._paused, (self._paused & among) - wanted
        # Before the orders: a slot that is still on its way to the reading thread is looked up.
        self._paused = (self._paused - among) | (wanted & among)
        if stop:
            self._orders.put(lambda: self._reader.pause(self._read_of(stop)))
        if go:
            self._orders.put(lambda: self._reader.resume(self._read_of(go)))

    # ------------------------------------------------------------------ on the reading thread

    def _leave(self, places: Iterable[Place], number: int) -> None:
        left = self._read_of(places)
        self._left.update(dict.fromkeys(places, number))
        self._read -= {(p.topic, p.partition) for p in left}
        if left:
            # The client remembers a pause beyond the assignment: the slot would come back paused.
            self._reader.resume(left)
            self._reader.incremental_unassign(left)

    def _read_from(self, places: list[TopicPartition], number: int) -> None:
        # One order: between two a fetch could read the new slots under the old number.
        # A slot may have been given up again while its offset was looked up.
        fresh = [p for p in places if self._left.get((p.topic, p.partition), 0) <= number]
        if fresh:
            self._reader.incremental_assign(fresh)
            self._read |= {(p.topic, p.partition) for p in fresh}
            held = self._read_of({(p.topic, p.partition) for p in fresh} & self._paused)
            if held:
                self._reader.pause(held)
        self.assigned = number

    def _read_of(self, places: Iterable[Place]) -> list[TopicPartition]:
        """Those of some slots that are read."""
        return [TopicPartition(*place) for place in sorted(places) if place in self._read]

    # ------------------------------------------------------------------ writing

    def send(self, topic: str, value: bytes, slot: int, key: str) -> None:
        """Hand a record to the producer. Raises ``BrokerError`` when it can never be sent."""
        if topic == _REPORTS:
            self._report(value, slot, key)
            return
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

    def _report(self, value: bytes, slot: int, key: str) -> None:
        away = self._connectivity.away

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is None:
                self._heard = self._heard or away
            elif error.code() in HOPELESS:
                self._refused = error

        # A full queue loses it: the next report has all its counts.
        with contextlib.suppress(BufferError):
            self._reporter.produce(
                _REPORTS, value, key or None, partition=slot, on_delivery=delivered
            )

    def done(self, place: Place, offset: int, note: str) -> None:
        """Offsets below ``offset`` of a slot need nobody any more, once the turn is confirmed."""
        self._turn.done[place] = (offset, note)

    def end_turn(self, now: float) -> None:
        """Serve the broker's confirmations, and commit what they allow."""
        self._now = now
        self._close_turn(now)
        self._producer.poll(0)
        self._reporter.poll(0)
        self._settle()
        self._hand_over()
        self._ledger.check()
        self._check_stall(now)
        self._connectivity.look(now)
        if self._heard:
            self._heard = False
            self._connectivity.heard(now)
        if now >= self._commit_at and (self._ready or self._ledger.unsettled):
            self._commit_at = now + COMMIT_S
            self._commit()

    def _close_turn(self, now: float) -> None:
        if self._turn.waiting or self._turn.done:
            self._turn.absent = self._connectivity.away and self._turn.waiting > 0
            self._turn.ended_s = now
            self._turns.append(self._turn)
            self._ended += 1
            self._turn = _Turn()

    def _commit(self) -> None:
        ready, self._ready = self._ready, {}
        self._ledger.commit(ready)

    def _check_stall(self, now: float) -> None:
        """Raises ``BrokerError`` when sends stay unconfirmed although the broker delivers.

        After a broker was away a producer has been seen to send nothing for minutes. What it holds
        is not committed: the next one to read it does the work again. A broker that comes back
        delivers first and confirms then, so time counts from its return on.
        """
        if self._delivers:
            if self._connectivity.away and now - self._delivered_s > SILENCE_S:
                self._back_s = now
            self._delivers, self._delivered_s = False, now
        if not self._turns:
            return
        # A report may have come through first, and ended the outage.
        began_s = max(self._turns[0].ended_s, self._back_s, self._connectivity.since_s)
        if self._delivered_s - began_s > STALLED_S:
            raise BrokerError(
                f"the broker delivers, but has confirmed nothing of what was sent for "
                f"{STALLED_S:g} s; start this role anew"
            )

    @property
    def unsettled(self) -> bool:
        """True while sends wait for confirmation or offsets for their commit."""
        return bool(self._turns or self._ready or self._hand_overs or self._ledger.unsettled)

    def _settle(self) -> None:
        while self._turns and self._turns[0].waiting == 0:
            turn = self._turns.popleft()
            self._confirmed += 1
            if turn.error is not None:
                raise BrokerError(refusal(self._config, turn.error, "Write", "topic", turn.topic))
            self._ready.update(turn.done)
            self._heard = self._heard or turn.absent
        if self._refused is not None:
            raise BrokerError(refusal(self._config, self._refused, "Write", "topic", _REPORTS))

    @property
    def away(self) -> bool:
        """No broker answers."""
        return self._connectivity.away

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
        for place, offset in list(self._ledger.confirmed.items()):
            # What the last fetch told; it asks nobody.
            low, high = self._reader.get_watermark_offsets(TopicPartition(*place), cached=True)
            if high >= 0:
                found[place] = max(0, high - max(offset, low, 0))
        return found

    @property
    def commit_failures(self) -> int:
        """Commits that the broker refused so far; each was tried again with the next one."""
        return self._ledger.failures

    def _usable(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.fatal() or error.code() in HOPELESS:
            of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            what = ("group", self._group) if of_group else ("topic", message.topic() or "")
            raise BrokerError(refusal(self._config, error, "Read", *what))
        return False  # librdkafka tries again by itself

    def abandon(self) -> None:
        """Forget what was not sent or committed yet; ``close`` then only leaves."""
        self._producer.purge()
        self._turns.clear()
        self._turn, self._ready = _Turn(), {}

    def close(self) -> None:
        """Wait for what was sent, commit, leave."""
        self._close_turn(self._now)
        self._producer.flush(FLUSH_S)
        self._reporter.flush(1.0)
        self._settle()
        self._commit()
        self._reader.close()
        self._ledger.close()


def _fetched(message: Any) -> Fetched:
    kind, milliseconds = message.timestamp()
    at_s = 0.0 if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds / 1e3
    return Fetched(
        message.topic(), message.partition(), message.offset(), at_s, message.key(),
        message.value(), message.headers(),
    )  # fmt: skip
