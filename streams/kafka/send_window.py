"""Records that wait until the broker has confirmed earlier ones of their partition.

If no record of a partition is in flight, its next record leaves at once. While one is, further
records wait for the end of their turn, and from ``MOST_UNCONFIRMED`` on for confirmations; they
then leave together (Nagle's algorithm, RFC 896). Batches grow with the load, and nothing delays a
record at low load.

After the broker has refused a record, nothing more leaves for its partition: a reader of a later
notice of queries assumes that it has seen the earlier ones. The role ends
(``streams/kafka/transport.py``).

An idempotent librdkafka producer has the same limit, but its threads poll in a loop while it holds
records back. That took half of the roles' CPU at full load (docs/results/overhead.md).
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError
from msgspec import Struct

from schemas.trace_context import Headers
from streams.kafka.turn import TOO_OLD, Turn
from streams.topics import Place

MOST_UNCONFIRMED = 5  # most records of a partition in flight, as in librdkafka
RECORD_BYTES = 1000  # of a waiting record with its turn, besides its value


class TurnRecord(Struct, frozen=True, gc=False):
    """A record and the turn that sent it."""

    turn: Turn
    value: bytes
    key: str | bytes | None
    headers: Headers = ()


class Departure(Struct, frozen=True, gc=False):
    """A record that left for its partition; the broker confirms it."""

    queue: "PartitionQueue"
    turn: Turn

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        self.queue.unconfirmed -= 1
        self.turn.waiting -= 1
        if error is not None:
            self.queue.refuse()
            self.turn.error, self.turn.topic = error, message.topic()

    def stamped(self, headers: Headers, error: KafkaError | None, message: Any) -> None:
        """Take the delivery of a record with a lease's stamp; one that is too old waits for the
        next lease.

        The client's delivery lacks its ``headers``; they are restored, as it may be sent again.
        """
        if error is None or error.code() not in TOO_OLD:
            self.delivered(error, message)
            return
        self.queue.unconfirmed -= 1
        if headers:
            message.set_headers(list(headers))
        self.turn.refused.append(message)


class PartitionQueue:
    """The waiting records of one partition, the number in flight, and whether one was refused."""

    __slots__ = ("_tell", "refused", "slot", "topic", "unconfirmed", "waiting")

    def __init__(self, topic: str, slot: int, tell: Callable[[], None]) -> None:
        self.topic, self.slot, self._tell = topic, slot, tell
        self.waiting = deque[TurnRecord]()
        self.unconfirmed = 0
        self.refused = False

    def refuse(self) -> None:
        """Stop sending, and tell the window: the broker refused a record."""
        self.refused = True
        self._tell()

    @property
    def open(self) -> bool:
        """Whether its records may leave. Records with slot -1 always may: the client chooses their
        partitions, and one without a leader must not hold back the others."""
        return self.unconfirmed < MOST_UNCONFIRMED or self.slot < 0

    @property
    def idle(self) -> bool:
        """Whether no record waits, is in flight or was refused: the next one may leave at once."""
        return not (self.unconfirmed or self.waiting or self.refused)

    def depart(self, turn: Turn) -> Departure:
        """Count one more record as in flight; return the departure to which its delivery is
        reported."""
        self.unconfirmed += 1
        return Departure(self, turn)

    def leave(self, may: Callable[[str], bool]) -> Iterator[tuple[TurnRecord, Departure]]:
        """Remove and yield the waiting records in order, while ``may`` accepts the topic and no
        record was refused."""
        while self.waiting and not self.refused and may(self.topic):
            record = self.waiting.popleft()
            yield record, self.depart(record.turn)


class SendWindow:
    """The queues of the partitions that a process writes to.

    ``refused``: the broker refused a record for good.
    """

    def __init__(self) -> None:
        self.refused = False
        self._queues: dict[Place, PartitionQueue] = {}
        self._waiting: dict[PartitionQueue, None] = {}  # in the order of their oldest records

    def __len__(self) -> int:
        """The number of waiting records."""
        return sum(len(queue.waiting) for queue in self._waiting)

    def __bool__(self) -> bool:
        """Whether records wait."""
        return bool(self._waiting)

    def queue(self, place: Place) -> PartitionQueue:
        """Return the queue of a partition."""
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = PartitionQueue(*place, self._refuse)
        return queue

    def add(self, queue: PartitionQueue, record: TurnRecord) -> None:
        """Queue a record behind the earlier ones of its partition."""
        queue.waiting.append(record)
        self._waiting[queue] = None

    def release(
        self, may: Callable[[str], bool], *, every: bool = False
    ) -> Iterator[tuple[TurnRecord, Departure]]:
        """Remove and yield the records that may leave: those of open partitions (with ``every``, of
        all) whose topic ``may`` accepts. The caller reports each delivery to its departure."""
        for queue in list(self._waiting):
            if every or queue.open:
                yield from queue.leave(may)
                if not queue.waiting:
                    del self._waiting[queue]

    @property
    def places(self) -> frozenset[Place]:
        """The partitions with records in flight or waiting; -1: the client chooses them."""
        queues = self._queues.values()
        return frozenset((q.topic, q.slot) for q in queues if q.unconfirmed or q.waiting)

    @property
    def waiting_bytes(self) -> int:
        """The memory that the waiting records take, about."""
        return sum(
            RECORD_BYTES + len(record.value) for queue in self._waiting for record in queue.waiting
        )

    @property
    def closed(self) -> bool:
        """Whether records wait for the confirmation of others."""
        return not all(queue.open for queue in self._waiting)

    def _refuse(self) -> None:
        self.refused = True

    def clear(self) -> None:
        """Discard the waiting records."""
        for queue in self._waiting:
            queue.waiting.clear()
        self._waiting.clear()
