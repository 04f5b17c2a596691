"""The transport where what it sends stays unconfirmed, while a real broker delivers or not."""

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from streams.kafka import transport as module
from streams.kafka.kafka_client import BrokerError, KafkaConfig, admin, producer
from streams.kafka.transport import KafkaTransport

pytestmark = pytest.mark.kafka


NOBODY = KafkaConfig("127.0.0.1:1")


@pytest.fixture
def transport(broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaTransport]:
    """It reads from the broker, and writes to nobody."""
    monkeypatch.setattr(module, "producer", lambda _, **settings: producer(NOBODY, log_level=0))
    transport = KafkaTransport(KafkaConfig(broker), "transport")
    transport.send("anywhere", b"x", 0, "")
    yield transport
    transport._producer.purge()
    transport._producer.poll(0)
    transport._turns.clear()
    transport.close()


def a_topic(broker: str) -> str:
    name = f"transport-{uuid.uuid4().hex[:8]}"
    client = admin(KafkaConfig(broker))
    client.create_topics([NewTopic(name, 1)])[name].result(20)
    return name


def test_a_role_whose_sends_stay_unconfirmed_while_it_is_served_ends_with_a_sentence(
    broker: str, transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALLED_S", 1.0)
    topic = a_topic(broker)
    source = producer(KafkaConfig(broker))
    transport.assign([(topic, 0)], [], commits=False)
    until_s = time.monotonic() + 30

    def served() -> None:
        while time.monotonic() < until_s:
            source.produce(topic, b"x")
            source.poll(0)
            transport.fetch(0.05)
            transport.end_turn(time.time())

    with pytest.raises(BrokerError, match="has confirmed nothing of what was sent for 1 s"):
        served()
    assert source.flush(5) == 0


def test_a_broker_that_is_merely_silent_is_waited_for(
    transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALLED_S", 0.2)
    until_s = time.monotonic() + 1.0
    while time.monotonic() < until_s:
        transport.fetch(0.05)
        transport.end_turn(time.time())
    assert transport.unsettled
