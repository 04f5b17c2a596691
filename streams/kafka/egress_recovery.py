"""Recovery of egress after a restart, from its topics.

Only records of closed queries are committed, with a note of the offset up to which each input
partition is closed. Queries above it may already have an answer. Egress finds these among the
answers written since the oldest record to be read again, or since the creation of a query in one.
(A query can be older than a record that was rewritten after its log lost its end.)
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from operators.egress.egress import made_s
from schemas.codec.single_object import CodecError, decode
from streams.kafka.admin.topic_admin import readable_partitions
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.offset_ledger import NO_EPOCH
from streams.kafka.topic_contents import (
    TELLS_ENDS,
    committed,
    offset_since,
    records_between,
    watermarks,
)

WAIT_S = 30.0
# Answers have egress's clock, the records behind them those of ingress and workers. So an answer
# may have an earlier time stamp than its query's records, by milliseconds even on one machine.
CLOCK_SKEW_S = 8.0

OriginsOf = Callable[[bytes], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Committed:
    """A slot's committed offset and note.

    ``since_s`` is the earliest time among the records to be read again and the queries in them, in
    seconds; None if no record will be read again.
    """

    slot: int
    offset: int
    note: str
    since_s: float | None


def committed_notes(
    config: KafkaConfig, group: str, topic: str, slots: Iterable[int]
) -> tuple[Committed, ...]:
    """Return the slots' committed offsets and notes; the beginning for a slot without a commit.

    If the commit is beyond the slot's end, the topic was recreated or has lost its end: commit the
    beginning. From a commit with a leader epoch the client would go to the slot's present end, and
    leave its records out.

    Raise ``BrokerError`` if the broker does not answer.
    """
    reader = consumer(config, group, **TELLS_ENDS)
    try:
        found = committed(reader, topic, slots, WAIT_S)
        places = [_within(config, group, reader, place) for place in found]
        return tuple(_committed(reader, place) for place in places)
    finally:
        reader.close()


def notes_by_slot(
    config: KafkaConfig, group: str, topic: str, slots: Iterable[int]
) -> dict[int, tuple[int, str]]:
    """Return a group's committed offset and note by slot, as ``commits``."""
    return by_slot(commits(config, group, topic, slots))


def by_slot(found: Iterable[TopicPartition]) -> dict[int, tuple[int, str]]:
    """Return the offset and the note of commits, by slot."""
    return {p.partition: (p.offset, p.metadata or "") for p in found}


def commits(
    config: KafkaConfig, group: str, topic: str, slots: Iterable[int]
) -> list[TopicPartition]:
    """Return a group's commits, without slots that have none.

    Raise ``BrokerError`` if the broker does not answer.
    """
    reader = consumer(config, group)
    try:
        return [p for p in committed(reader, topic, slots, WAIT_S) if p.offset >= 0]
    finally:
        reader.close()


def commit_now(config: KafkaConfig, group: str, places: Iterable[TopicPartition]) -> None:
    """Commit offsets with their notes synchronously; raise ``BrokerError``."""
    client = consumer(config, group)
    try:
        client.commit(offsets=list(places), asynchronous=False)
    except KafkaException as error:
        raise BrokerError(
            f"group {group!r} cannot commit: {error.args[0].str()}; check that the broker is well"
        ) from error
    finally:
        client.close()


def _within(
    config: KafkaConfig, group: str, reader: Consumer, place: TopicPartition
) -> TopicPartition:
    """Return a commit, after committing the slot's beginning if it is beyond the slot's end."""
    low, high = watermarks(reader, place, WAIT_S)
    if place.offset <= high:
        return place
    beginning = TopicPartition(place.topic, place.partition, low, place.metadata or "")
    commit_now(config, group, [beginning])
    return beginning


def _committed(reader: Consumer, place: TopicPartition) -> Committed:
    low, high = watermarks(reader, place, WAIT_S)
    epoch = NO_EPOCH if place.leader_epoch is None else place.leader_epoch
    offset = max(place.offset, low)
    start = TopicPartition(place.topic, place.partition, offset, leader_epoch=epoch)
    since_s = min(
        (s for message in records_between(reader, start, high) for s in _times_s(message)),
        default=None,
    )
    return Committed(place.partition, start.offset, place.metadata or "", since_s)


def _times_s(message: Message) -> list[float]:
    written_s = message.timestamp()[1] / 1e3
    try:
        return [written_s, *made_s(decode(message.value() or b""))]
    except CodecError:
        return [written_s]


def answers_from_s(places: Iterable[Committed]) -> float | None:
    """Return the time from which answers may belong to records that will be read again, or None."""
    since = [place.since_s for place in places if place.since_s is not None]
    return max(0.0, min(since) - CLOCK_SKEW_S) if since else None


def answered_since(
    config: KafkaConfig, topic: str, since_s: float | None, origins: OriginsOf
) -> frozenset[tuple[int, int]]:
    """Return the origins (partition, offset) of the answers written since ``since_s``.

    ``origins`` extracts them from a record's value (streams/codecs/wire.py). Raise ``BrokerError``
    if the broker does not answer, or does not know the topic, as just after its start.
    """
    if since_s is None:
        return frozenset()
    reader = consumer(config, "headrace.reader", **TELLS_ENDS)
    try:
        count = readable_partitions(config, topic, WAIT_S)
        if not count:
            raise BrokerError(f"no broker knows topic {topic!r} at present; restart this role")
        found = ((p, offset_since(reader, TopicPartition(topic, p), since_s)) for p in range(count))
        starts = [TopicPartition(topic, p, at) for p, at in found if at is not None]
        values = [value for start in starts for value in _values(reader, start)]
        return frozenset(origin for value in values for origin in origins(value))
    finally:
        reader.close()


def _values(reader: Consumer, start: TopicPartition) -> Iterator[bytes]:
    _, high = watermarks(reader, start, WAIT_S)
    return (message.value() or b"" for message in records_between(reader, start, high))
