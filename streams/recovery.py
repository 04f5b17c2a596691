"""What egress must know after a restart, read back from its topics.

Its committed offsets stand behind closed queries, with a note of how far each input partition
was closed. Queries above that may have their answer already: the answers written since the
oldest record that will be read again tell which.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from streams.kafka import KafkaConfig, consumer, readable_partitions

WAIT_S = 30.0
# Answers carry the clock of egress, the records behind them those of ingress and workers.
CLOCK_SKEW_S = 5.0
_ANSWERS_AT_ONCE = 1000

OriginsOf = Callable[[bytes], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Committed:
    """Where reading goes on in one slot, and what was noted there. ``at_s`` is the time stamp of
    the first record to be read again, None when there is none."""

    slot: int
    offset: int
    note: str
    at_s: float | None


def committed_notes(
    config: KafkaConfig, group: str, topic: str, slots: Iterable[int]
) -> tuple[Committed, ...]:
    """The committed offsets of some slots with their notes; slots without one are left out."""
    reader = consumer(config, group)
    try:
        places = reader.committed([TopicPartition(topic, s) for s in slots], timeout=WAIT_S)
        return tuple(_committed(reader, place) for place in places if place.offset >= 0)
    finally:
        reader.close()


def _committed(reader: Consumer, place: TopicPartition) -> Committed:
    _, high = reader.get_watermark_offsets(place, timeout=WAIT_S)
    at_s = None
    if place.offset < high:
        reader.assign([TopicPartition(place.topic, place.partition, place.offset)])
        message = reader.poll(WAIT_S)
        at_s = message.timestamp()[1] / 1e3 if message is not None else None
        reader.unassign()
    return Committed(place.partition, place.offset, place.metadata or "", at_s)


def answered_since(
    config: KafkaConfig, topic: str, places: Sequence[Committed], origins: OriginsOf
) -> frozenset[tuple[int, int]]:
    """Origins (partition, offset) of the answers written since the oldest of these places.

    ``origins`` finds them in a record's value (streams/wire.py).
    """
    since = [place.at_s for place in places if place.at_s is not None]
    if not since:
        return frozenset()
    reader = consumer(config, "headrace.reader")
    try:
        count = readable_partitions(config, topic, WAIT_S)
        stamps = [TopicPartition(topic, p, int(min(since) * 1e3)) for p in range(count)]
        starts = reader.offsets_for_times(stamps, timeout=WAIT_S)
        values = [v for start in starts if start.offset >= 0 for v in _values(reader, start)]
        return frozenset(origin for value in values for origin in origins(value))
    finally:
        reader.close()


def _values(reader: Consumer, start: TopicPartition) -> Iterator[bytes]:
    _, high = reader.get_watermark_offsets(start, timeout=WAIT_S)
    reader.assign([start])
    at = start.offset
    while at < high:
        for message in reader.consume(_ANSWERS_AT_ONCE, timeout=0.1):
            if message.error() is None:
                yield message.value() or b""
                at = message.offset() + 1
