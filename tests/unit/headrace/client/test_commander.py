"""Commands of a client: their partition, and what it says while it waits for the result."""

import pytest

from headrace.client import topic_clients
from headrace.errors import Unsuccessful
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


class Silent:
    """A topic of results without any."""

    def take(self, timeout_s: float) -> list[bytes]:
        return []


def test_a_wait_for_the_control_app_is_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`headrace policy apply` said nothing for 20 s while the control app was down."""
    monkeypatch.setattr(topic_clients, "producer", lambda _: Broker())
    monkeypatch.setattr(topic_clients, "Tail", lambda *_: Silent())
    monkeypatch.setattr(topic_clients, "SLOW_AFTER_S", 0.0)
    said: list[str] = []
    commander = topic_clients.Commander(KafkaConfig("x:9092"), "p")
    with pytest.raises(Unsuccessful, match="did not answer within"):
        commander.result("any", 0.01, said.append)
    assert said == ["the control app has not answered yet; waiting 0.01 s at most"]
