"""A process's records on their way to the broker, in the order of each partition.

A record leaves at once if none of its partition is in flight. Others leave at the end of their
turn, and wait for earlier ones (``streams/kafka/send_window.py``).

With a lease, records of its topic are stamped by it, and wait while its stamp is not fresh, as
after an absence of the broker, or while a quota delays what is sent. A record that reaches the
broker too late for its stamp is refused. If it is not on the topic, it is sent again under the
renewed lease (``streams/kafka/leases/refused_records.py``).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from streams.kafka.kafka_client import Callbacks, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import FORBIDDEN, BrokerError, forbidden
from streams.kafka.leases.refused_records import RefusedRecords, find_written
from streams.kafka.send_window import Departure, SendWindow, TurnRecord
from streams.kafka.turn import Turn
from streams.topics import Place

WARM_WITHIN_S = 5.0
POLLS, POLL_S = 200, 0.05  # wait for room in the producer's queue
MOST_WAITING_BYTES = 64 * 1024 * 1024
MEASURE_S = 1.0  # it takes 10 ms with the most records
# In a backlog, later records of a partition would arrive without earlier, expired ones.
NO_EXPIRY = {"delivery.timeout.ms": 0}


class PartitionLease(Protocol):
    """The right to write to the topic ``stamped`` (``streams/kafka/leases/egress_lease.py``)."""

    @property
    def stamped(self) -> str: ...
    @property
    def place(self) -> Place: ...  # of its renewals
    @property
    def stamp_ms(self) -> int: ...
    @property
    def fresh(self) -> bool: ...
    def check(self) -> None: ...
    def settle(self) -> None: ...
    def end(self, *, confirmed: bool) -> None: ...


class Sender:
    """One producer for all nodes of a process; used on the driver's thread only."""

    def __init__(
        self, config: KafkaConfig, lease: PartitionLease | None, callbacks: Callbacks,
        delayed: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._config = config
        self._lease, self._leased = lease, "" if lease is None else lease.stamped
        self._delayed = delayed  # whether the broker would delay a record by a quota
        self._producer = producer(config, **callbacks, **NO_EXPIRY)
        self._window = SendWindow()
        self._heard = False  # the broker's confirmations, since the last turn
        self._measure_at_s, self._crowded = 0.0, False
        self.abandoned = False
        self._refusals = RefusedRecords(
            partial(find_written, config, lease.settle if lease else None)
        )

    def warm(self, topics: Iterable[str]) -> bool:
        """Connect and fetch these topics' metadata; False if the broker is away.

        Otherwise the first query would wait 100 to 300 ms: reports do not warm this producer, as
        they have a separate one.
        """
        try:
            for name in topics:
                self._producer.list_topics(name, timeout=WARM_WITHIN_S)
        except KafkaException:
            return False  # roles wait for a broker that is away, and so may the first record
        return True

    def send(self, place: Place, record: TurnRecord) -> None:
        """Send a record, now or at its turn's end or later."""
        record.turn.waiting += 1
        queue = self._window.queue(place)
        idle = queue.idle
        if not idle and not self._heard:
            # The last turn ended long before its records were confirmed.
            self._hear()
            idle = queue.idle
        if idle and self._may_leave(queue.topic):
            self._leave(record, queue.depart(record.turn))
        else:
            self._window.add(queue, record)

    def progress(self, turns: Iterable[Turn], now: float) -> None:
        """Process the broker's confirmations, then send the records that may leave.

        Refused records of the open ``turns`` that are not on the topic are sent again. Raise
        ``LeaseLost``, or ``BrokerError`` if a record can never be sent.
        """
        self._hear()
        self._heard = False
        if self._lease is not None:
            self._lease.check()
            self._send_again(turns, now)
        if self._window:
            self._release()

    def _hear(self) -> None:
        self._producer.poll(0)
        self._heard = True

    @property
    def refused(self) -> bool:
        """Whether the broker refused a record for good; its turn has the error."""
        return self._window.refused

    @property
    def places(self) -> frozenset[Place]:
        """The partitions whose records are unconfirmed, and that of the lease."""
        return self._window.places | ({self._lease.place} if self._lease is not None else set())

    def crowded(self, now: float) -> bool:
        """Return whether ``MOST_WAITING_BYTES`` wait for confirmations; measured every
        ``MEASURE_S``."""
        if now >= self._measure_at_s:
            self._measure_at_s = now + MEASURE_S
            self._crowded = self._window.waiting_bytes > MOST_WAITING_BYTES
        return self._crowded

    @property
    def holds(self) -> bool:
        """Whether records wait for the confirmation of others."""
        return self._window.closed

    def flush(self, within_s: float) -> None:
        """Send everything that has a stamp or needs none; wait for the confirmations."""
        self._release(every=True)
        self._producer.flush(within_s)

    def abandon(self) -> None:
        """Discard everything that has not left yet."""
        self.abandoned = True
        self._window.clear()
        self._producer.purge()

    def _send_again(self, turns: Iterable[Turn], now: float) -> None:
        for turn in turns:
            if turn.refused:
                self._refusals.add(turn, turn.refused, turn.stamp_ms / 1e3)
                turn.refused = []
        for one, written in self._refusals.decided():
            if written:
                one.turn.waiting -= 1
                continue
            one.turn.ended_s = now
            m = one.message
            queue = self._window.queue((m.topic() or "", m.partition() or 0))
            again = TurnRecord(one.turn, m.value() or b"", m.key(), m.headers() or ())
            self._window.add(queue, again)

    def _release(self, *, every: bool = False) -> None:
        for record, departure in self._window.release(self._may_leave, every=every):
            self._leave(record, departure)

    def _leave(self, record: TurnRecord, departure: Departure) -> None:
        lease, queue = self._lease, departure.queue
        stamp_ms, delivered = 0, departure.delivered
        if lease is not None and queue.topic == self._leased:
            stamp_ms = lease.stamp_ms
            record.turn.stamp_ms = record.turn.stamp_ms or stamp_ms
            delivered = partial(departure.stamped, record.headers)
        try:
            self._produce(queue.topic, queue.slot, record, stamp_ms, delivered)
        except BrokerError:
            self.abandon()  # later records of the partition must not arrive without this one
            raise

    def _may_leave(self, topic: str) -> bool:
        if topic != self._leased or self._lease is None:
            return True
        return self._lease.fresh and not self._delayed()

    def _produce(
        self, topic: str, slot: int, record: TurnRecord, stamp_ms: int,
        delivered: Callable[[KafkaError | None, Any], None],
    ) -> None:  # fmt: skip
        """Hand a record to the producer; ``stamp_ms`` 0 is the present time.

        Raise ``BrokerError`` if it cannot be sent, or the queue stays full.
        """
        for _ in range(POLLS):
            try:
                self._producer.produce(
                    topic, record.value, record.key, slot, on_delivery=delivered,
                    timestamp=stamp_ms, headers=list(record.headers) or None,
                )  # fmt: skip
            except BufferError:
                self._producer.poll(POLL_S)  # wait for the broker instead of discarding
                continue
            except KafkaException as error:
                why = error.args[0]
                if why.code() in FORBIDDEN:
                    text = forbidden(self._config, "Write", "topic", topic)
                    raise BrokerError(text) from error
                raise BrokerError(f"cannot send to {topic!r}: {why.str()}") from error
            return
        raise BrokerError(
            f"the broker takes nothing of what waits for {topic!r} and other topics, and no more "
            "fits; restart this role"
        )
