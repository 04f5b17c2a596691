"""The broker warm-up sends records through a topic of its own and reads each before the next."""

import pytest
from confluent_kafka import TopicPartition

from headrace.broker.broker_warm_up import PARTITIONS, TOPIC, warm_up_broker
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import watermarks

pytestmark = pytest.mark.kafka


def test_every_turn_is_a_record_that_was_written_and_read(broker: str) -> None:
    kafka = KafkaConfig(broker)
    reader = consumer(kafka, "looks-on")
    try:
        before = written(reader) if warm_up_broker(kafka, 0.05) else 0
        turns = len(warm_up_broker(kafka, 0.5))
        assert turns > 0
        assert written(reader) - before == turns
    finally:
        reader.close()


def test_a_warm_up_reads_its_own_records_only(broker: str) -> None:
    kafka = KafkaConfig(broker)
    warm_up_broker(kafka, 0.2)
    warm_up_broker(kafka, 0.05)
    reader = consumer(kafka, TOPIC)
    try:
        done = reader.committed(places(), timeout=10.0)
        ends = [watermarks(reader, place)[1] for place in places()]
        # A slot without records of the last run keeps the offset of the run before, or has none.
        assert [max(0, place.offset) for place in done] == ends
    finally:
        reader.close()


def places() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]


def written(reader: object) -> int:
    return sum(watermarks(reader, place)[1] for place in places())  # type: ignore[arg-type]
