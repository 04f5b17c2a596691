"""Brokers that never pass a barrier."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.leases import write_barrier
from streams.kafka.leases.write_barrier import pass_barrier


class Client:
    """The library's clients of a topic with two copies; the brokers refuse every transaction."""

    def __init__(self, code: int) -> None:
        self.asked = 0
        self._code = code

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        partitions = {0: SimpleNamespace(replicas=[1, 2])}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions, error=None)})

    def init_transactions(self, timeout: float) -> None:
        self.asked += 1
        raise KafkaException(KafkaError(self._code))

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "raise transaction.max.timeout.ms"),
        (KafkaError._TIMED_OUT, "check that every broker is well"),
    ],
)
def test_the_sentence_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    client = Client(code)
    for name in ("producer", "consumer"):
        monkeypatch.setattr(write_barrier, name, lambda *_, **__: client)
    with pytest.raises(BrokerError, match=told):
        pass_barrier(KafkaConfig("b:1"), "p.egress.0", "p.results", within_s=0.0)


def test_a_setting_of_the_brokers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Egress asked again for a minute, in each of its lives."""
    client = Client(KafkaError.INVALID_TRANSACTION_TIMEOUT)
    for name in ("producer", "consumer"):
        monkeypatch.setattr(write_barrier, name, lambda *_, **__: client)
    with pytest.raises(BrokerError):
        pass_barrier(KafkaConfig("b:1"), "p.egress.0", "p.results")
    assert client.asked == 1
