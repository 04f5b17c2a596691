"""A broker within the Kafka library's own client, which keeps records in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from headrace.client import topic_clients
from streams.kafka.kafka_config import KafkaConfig


@contextmanager
def a_library_broker(
    monkeypatch: pytest.MonkeyPatch, *topics: str, **properties: str
) -> Iterator[KafkaConfig]:
    """Run a broker with topics of one record each; yield a configuration with ``properties``,
    underscores for dots."""
    brokers = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = brokers.list_topics(timeout=20).brokers.values()
    for topic in topics:
        brokers.produce(topic, b"makes the topic")
    assert brokers.flush(20) == 0
    # The library's broker does not answer the administrator that counts partitions.
    monkeypatch.setattr(topic_clients, "readable_partitions", lambda *_: 1)
    named = {name.replace("_", "."): said for name, said in properties.items()}
    yield KafkaConfig(f"{broker.host}:{broker.port}", named)
    brokers.close()
