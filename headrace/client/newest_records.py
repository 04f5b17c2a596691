"""Read the newest records of a topic: backwards, one stretch at a time."""

from collections.abc import Iterator

from confluent_kafka import Message, TopicPartition

from streams.kafka.admin.topic_admin import readable_partitions
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import TELLS_ENDS, records_between, watermarks

STRETCH = 2_000  # records of a partition per read
WAIT_S = 10.0


def newest_first(
    kafka: KafkaConfig, topic: str, stretch: int = STRETCH, wait_s: float = WAIT_S
) -> Iterator[list[Message]]:
    """Yield the records of a topic in stretches, the latest stretch of every partition first.

    Within a stretch the newest record by time stamp is first. Raises ``BrokerError`` if the topic
    does not exist, or a partition's stretch cannot be read within ``wait_s``.
    """
    count = readable_partitions(kafka, topic, WAIT_S)
    if not count:
        raise BrokerError(f"topic {topic!r} is not on the broker; run `headrace up FILE` first")
    reader = consumer(kafka, "headrace.reader", **TELLS_ENDS)
    try:
        left = {p: watermarks(reader, TopicPartition(topic, p)) for p in range(count)}
        while any(low < high for low, high in left.values()):
            found: list[Message] = []
            for partition, (low, high) in left.items():
                start = max(low, high - stretch)
                place = TopicPartition(topic, partition, start)
                found += records_between(reader, place, high, wait_s)
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
        place = TopicPartition(topic, partition, offset)
        return next(records_between(reader, place, offset + 1, WAIT_S), None)
    finally:
        reader.close()
