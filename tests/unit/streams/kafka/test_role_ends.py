"""A role that ends with an error of its sends reports that error, and closes its clients."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.transport import KafkaTransport
from tests.kafka_clients import replace_clients


class Message:
    """A message reduced to its topic."""

    def topic(self) -> str:
        return "a"


class Client:
    """The library's clients; the broker is away, and the producer takes no value ``b"large"``, and
    nothing for the topic "denied"."""

    def __init__(self) -> None:
        self.commits: list[TopicPartition] = []
        self.closed = 0
        self._queued: list[Callable[[KafkaError, Message], None]] = []
        self._purged: list[Callable[[KafkaError, Message], None]] = []

    def produce(self, topic: str, value: bytes, *_: Any, on_delivery: Any, **__: Any) -> None:
        if value == b"large":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if topic == "denied":
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        self._queued.append(on_delivery)

    def purge(self) -> None:
        self._purged, self._queued = self._queued, []

    def flush(self, timeout_s: float) -> None:
        purged, self._purged = self._purged, []
        for delivered in purged:
            delivered(KafkaError(KafkaError._PURGE_QUEUE), Message())

    def poll(self, timeout_s: float) -> None:
        """Nothing arrives."""

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        self.commits += offsets
        return offsets

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    replace_clients(monkeypatch, made)
    return made


def test_records_discarded_after_an_error_do_not_hide_it_and_nothing_behind_them_is_committed(
    client: Client,
) -> None:
    role = KafkaTransport(KafkaConfig("nobody:1"), "p.ingress")
    role.send("a", b"small", 0, "")
    role.done(("p.queries", 0), 7, "")
    role.end_turn(1.0)
    with pytest.raises(BrokerError, match="cannot send to 'b'"):
        role.send("b", b"large", 0, "")
    role.close()
    assert client.commits == []
    assert client.closed == 2  # the reader's consumer and the ledger's


def test_a_topic_that_the_user_may_no_longer_write_is_named_with_the_right(client: Client) -> None:
    role = KafkaTransport(KafkaConfig("nobody:1"), "p.workers")
    with pytest.raises(BrokerError, match=r"no right to Write on topic 'denied'; `headrace acls"):
        role.send("denied", b"small", 0, "")
    role.close()
