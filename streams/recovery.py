"""What egress must know after a restart, read back from its topics.

Its committed offsets stand behind closed queries, with a note of how far each input partition
was closed. Queries above that may have their answer already: the answers written since the
oldest record that will be read again tell which.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from streams.kafka import (
    BrokerError,
    KafkaConfig,
    committed,
    consumer,
    readable_partitions,
    watermarks,
)

WAIT_S = 30.0
# Answers carry the clock of egress, the records behind them those of ingress and workers: an answer
# may bear an earlier time than the record that it answers, by milliseconds even on one machine.
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
    """Where some slots will be read from, with their notes; from the beginning where nothing was
    committed. Raises ``BrokerError`` where the broker does not tell."""
    reader = consumer(config, group)
    try:
        return tuple(_committed(reader, place) for place in committed(reader, topic, slots, WAIT_S))
    finally:
        reader.close()


def _committed(reader: Consumer, place: TopicPartition) -> Committed:
    low, high = watermarks(reader, place, WAIT_S)
    offset = max(place.offset, low)
    at_s = None
    if offset < high:
        reader.assign([TopicPartition(place.topic, place.partition, offset)])
        at_s = _stamp_s(reader, place.topic)
        reader.unassign()
    return Committed(place.partition, offset, place.metadata or "", at_s)


def _stamp_s(reader: Consumer, topic: str) -> float:
    for _ in range(int(WAIT_S)):
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            return float(message.timestamp()[1]) / 1e3
    raise BrokerError(f"topic {topic!r} could not be read within {WAIT_S:g} s")


def answers_from_s(places: Iterable[Committed]) -> float | None:
    """Since when answers may belong to records that will be read again; None: to none of them."""
    since = [place.at_s for place in places if place.at_s is not None]
    return max(0.0, min(since) - CLOCK_SKEW_S) if since else None


def answered_since(
    config: KafkaConfig, topic: str, since_s: float | None, origins: OriginsOf
) -> frozenset[tuple[int, int]]:
    """Origins (partition, offset) of the answers written since then.

    ``origins`` finds them in a record's value (streams/wire.py). Raises ``BrokerError`` where the
    broker does not tell.
    """
    if since_s is None:
        return frozenset()
    reader = consumer(config, "headrace.reader")
    try:
        count = readable_partitions(config, topic, WAIT_S)
        stamps = [TopicPartition(topic, p, int(since_s * 1e3)) for p in range(count)]
        starts = reader.offsets_for_times(stamps, timeout=WAIT_S)
        for start in starts:
            if start.error is not None:
                raise BrokerError(f"answers of {topic!r} cannot be found: {start.error.str()}")
        values = [v for start in starts if start.offset >= 0 for v in _values(reader, start)]
        return frozenset(origin for value in values for origin in origins(value))
    finally:
        reader.close()


def _values(reader: Consumer, start: TopicPartition) -> Iterator[bytes]:
    _, high = watermarks(reader, start, WAIT_S)
    reader.assign([start])
    at = start.offset
    while at < high:
        for message in reader.consume(_ANSWERS_AT_ONCE, timeout=0.1):
            if message.error() is None:
                yield message.value() or b""
                at = message.offset() + 1
