"""The partition of a command."""

import pytest

from headrace.client import topic_clients
from streams.kafka.kafka_config import KafkaConfig


class Broker:
    """A producer; ``sent`` are topics with their partitions."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []

    def produce(self, topic: str, value: bytes, key: str, partition: int = -1) -> None:
        self.sent.append((topic, partition))

    def poll(self, timeout: float) -> None:
        """Deliver nothing."""


def test_commands_are_written_where_the_control_app_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(topic_clients, "producer", lambda _: broker)
    monkeypatch.setattr(topic_clients, "Tail", lambda *_: None)
    commander = topic_clients.Commander(KafkaConfig("x:9092"), "p")
    for _ in range(3):
        commander.give("pause", {})
    assert broker.sent == [("headrace.commands", 0)] * 3
