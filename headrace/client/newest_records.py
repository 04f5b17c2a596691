"""Read the newest records of a topic: backwards, one stretch at a time."""

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_admin import readable_partitions
from streams.kafka.topic_contents import TELLS_ENDS, watermarks

STRETCH = 2_000  # records of a partition per read
WAIT_S = 10.0


def newest_first(kafka: KafkaConfig, topic: str, stretch: int = STRETCH) -> Iterator[list[Message]]:
    """Yield the records of a topic in stretches, the latest stretch of every partition first.

    Within a stretch the newest record by time stamp is first. Raises ``BrokerError`` if the topic
    does not exist or cannot be read.
    """
    count = readable_partitions(kafka, topic, WAIT_S)
    if not count:
        raise BrokerError(f"topic {topic!r} is not on the broker; run `headrace up FILE` first")
    reader = consumer(kafka, "headrace.reader", **TELLS_ENDS)
    try:
        left = {p: watermarks(reader, TopicPartition(topic, p)) for p in range(count)}
        while any(low < high for low, high in left.values()):
            found = []
            for partition, (low, high) in left.items():
                start = max(low, high - stretch)
                found += _between(reader, TopicPartition(topic, partition, start), high)
                left[partition] = (low, start)
            yield sorted(found, key=lambda m: m.timestamp()[1], reverse=True)
    finally:
        reader.close()


def one_record(kafka: KafkaConfig, topic: str, partition: int, offset: int) -> Message | None:
    """Return the record at an offset; None if there is none (any more). Raises ``BrokerError``."""
    count = readable_partitions(kafka, topic, WAIT_S)
    if not 0 <= partition < count:
        return None
    reader = consumer(kafka, "headrace.reader", **TELLS_ENDS)
    try:
        low, high = watermarks(reader, TopicPartition(topic, partition))
        if not low <= offset < high:
            return None
        found = _between(reader, TopicPartition(topic, partition, offset), offset + 1)
        return found[0] if found else None
    finally:
        reader.close()


def _between(reader: Consumer, start: TopicPartition, end: int) -> list[Message]:
    """Return the records of a partition in [``start.offset``, ``end``)."""
    if start.offset >= end:
        return []
    reader.assign([start])
    found: list[Message] = []
    until = time.monotonic() + WAIT_S
    at = start.offset
    while at < end:
        if time.monotonic() > until:
            raise BrokerError(
                f"topic {start.topic!r} could not be read within {WAIT_S:g} s; try again"
            )
        for message in reader.consume(500, timeout=0.05):
            error = message.error()
            if error is None:
                found.append(message)
                at = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, message.offset())
    return [m for m in found if m.offset() < end]
