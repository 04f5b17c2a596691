"""What egress must know after a restart, read back from its topics.

Its committed offsets stand behind closed queries, with a note of how far each input partition
was closed. Queries above that may have their answer already: the answers written since the
oldest of the queries that will be read of again was made tell which. (Not since the oldest record:
a query may be answered before a restarted ingress notices it, and committed up to that notice.)
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from operators.egress import made_s
from schemas.codec.single_object import CodecError, decode
from streams.kafka.kafka_client import (
    BrokerError,
    KafkaConfig,
    committed,
    consumer,
    offset_since,
    readable_partitions,
    watermarks,
)

WAIT_S = 30.0
# Answers carry the clock of egress, the records behind them those of ingress and workers: an answer
# may bear an earlier time than the record that it answers, by milliseconds even on one machine.
CLOCK_SKEW_S = 5.0
_RECORDS_AT_ONCE = 1000

OriginsOf = Callable[[bytes], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Committed:
    """Where reading goes on in one slot, and what was noted there. ``since_s``: when the oldest of
    what will be read again was written, or the oldest query that it speaks of made; None: there
    is nothing to be read again."""

    slot: int
    offset: int
    note: str
    since_s: float | None


def committed_notes(
    config: KafkaConfig, group: str, topic: str, slots: Iterable[int]
) -> tuple[Committed, ...]:
    """Where some slots will be read from, with their notes; from the beginning where nothing was
    committed. Raises ``BrokerError`` where the broker does not tell."""
    reader = consumer(config, group)
    try:
        return tuple(_committed(reader, place) for place in committed(reader, topic, slots, WAIT_S))
    finally:
        reader.close()


def notes(
    config: KafkaConfig, group: str, topic: str, slots: Iterable[int]
) -> dict[int, tuple[int, str]]:
    """What a group has committed in some slots of a topic, with the notes, where it has.

    Raises ``BrokerError`` where the broker does not tell.
    """
    reader = consumer(config, group)
    try:
        found = committed(reader, topic, slots, WAIT_S)
        return {p.partition: (p.offset, p.metadata or "") for p in found if p.offset >= 0}
    finally:
        reader.close()


def commit_now(config: KafkaConfig, group: str, places: Iterable[TopicPartition]) -> None:
    """Commit offsets with their notes before anything is read. Raises ``BrokerError``."""
    client = consumer(config, group)
    try:
        client.commit(offsets=list(places), asynchronous=False)
    except KafkaException as error:
        raise BrokerError(
            f"group {group!r} cannot commit: {error.args[0].str()}; check that the broker is well"
        ) from error
    finally:
        client.close()


def _committed(reader: Consumer, place: TopicPartition) -> Committed:
    low, high = watermarks(reader, place, WAIT_S)
    start = TopicPartition(place.topic, place.partition, max(place.offset, low))
    since_s = min(
        (s for message in _read(reader, start, high) for s in _times_s(message)), default=None
    )
    return Committed(place.partition, start.offset, place.metadata or "", since_s)


def _times_s(message: Message) -> list[float]:
    written_s = message.timestamp()[1] / 1e3
    try:
        return [written_s, *made_s(decode(message.value() or b""))]
    except CodecError:
        return [written_s]


def answers_from_s(places: Iterable[Committed]) -> float | None:
    """Since when answers may belong to records that will be read again; None: to none of them."""
    since = [place.since_s for place in places if place.since_s is not None]
    return max(0.0, min(since) - CLOCK_SKEW_S) if since else None


def answered_since(
    config: KafkaConfig, topic: str, since_s: float | None, origins: OriginsOf
) -> frozenset[tuple[int, int]]:
    """Origins (partition, offset) of the answers written since then.

    ``origins`` finds them in a record's value (streams/codecs/wire.py). Raises ``BrokerError``
    where the
    broker does not tell.
    """
    if since_s is None:
        return frozenset()
    reader = consumer(config, "headrace.reader")
    try:
        count = readable_partitions(config, topic, WAIT_S)
        found = ((p, offset_since(reader, TopicPartition(topic, p), since_s)) for p in range(count))
        starts = [TopicPartition(topic, p, at) for p, at in found if at is not None]
        values = [value for start in starts for value in _values(reader, start)]
        return frozenset(origin for value in values for origin in origins(value))
    finally:
        reader.close()


def _values(reader: Consumer, start: TopicPartition) -> Iterator[bytes]:
    _, high = watermarks(reader, start, WAIT_S)
    return (message.value() or b"" for message in _read(reader, start, high))


def _read(reader: Consumer, start: TopicPartition, high: int) -> Iterator[Message]:
    """The records from ``start`` up to the offset ``high``."""
    if start.offset >= high:
        return
    reader.assign([start])
    at = start.offset
    while at < high:
        for message in reader.consume(_RECORDS_AT_ONCE, timeout=0.1):
            if message.error() is None:
                yield message
                at = message.offset() + 1
    reader.unassign()
