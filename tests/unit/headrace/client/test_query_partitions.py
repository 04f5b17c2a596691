"""The input topic partition of a query."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.client import topic_clients
from schemas.records import Query
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from tests.builders import a_pipeline


class Broker:
    """A producer whose topics have three partitions at first; ``sent`` are keys with their
    partitions."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.partitions = 3

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=dict.fromkeys(range(3)))})

    def produce(self, topic: str, value: bytes, key: str, partition: int, **_: Any) -> None:
        if partition >= self.partitions:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.sent.append((key, partition))

    def poll(self, timeout: float) -> None:
        """Deliver nothing."""


def test_queries_with_one_number_share_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(topic_clients, "producer", lambda kafka, **_: broker)
    asker = topic_clients.Asker(KafkaConfig("x:9092"), a_pipeline())
    for name, together in (("a", 7), ("b", 7), ("c", 8), ("d", 9), ("by-id", None)):
        asker.ask(Query(payload=b"x", id=name), together=together)
    assert broker.sent == [("a", 1), ("b", 1), ("c", 2), ("d", 0), ("by-id", -1)]


def test_queries_go_to_a_topic_that_was_made_anew_with_fewer_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    monkeypatch.setattr(topic_clients, "producer", lambda kafka, **_: broker)
    asker = topic_clients.Asker(KafkaConfig("x:9092"), a_pipeline())
    broker.partitions = 2
    for name, together in (("a", 2), ("b", 2), ("c", 3), ("d", 5)):
        asker.ask(Query(payload=b"x", id=name), together=together)
    assert broker.sent == [("a", -1), ("b", 0), ("c", 1), ("d", 1)]
    broker.partitions = 0
    with pytest.raises(BrokerError, match=r"refused to Write on topic '\w+.queries'"):
        asker.ask(Query(payload=b"x", id="e"), together=4)
