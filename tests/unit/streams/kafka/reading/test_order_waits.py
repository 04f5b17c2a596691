"""How long the reading thread waits for a record before it checks its orders again."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.reading import partition_reader
from streams.kafka.reading.partition_reader import ORDERS_WAIT_S, RESUME_WAIT_S, PartitionReader

PLACE = ("p.work.read", 0)


class Silent:
    """A consumer without records; ``waits`` records the timeouts of its polls, ``calls`` the
    answered requests for leaders and the assignments."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.calls: list[str] = []
        self.answers = True

    def poll(self, timeout_s: float) -> None:
        self.waits.append(timeout_s)

    def list_topics(self, topic: str, timeout: float) -> None:
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.calls.append(f"leaders of {topic}")

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.calls.append("assign")

    def pause(self, places: list[TopicPartition]) -> None:
        pass

    resume = seek = pause


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Silent:
    client = Silent()
    monkeypatch.setattr(partition_reader, "consumer", lambda *_, **__: client)
    return client


def a_reader() -> PartitionReader:
    def nothing(*_: Any) -> None:
        pass

    reader = PartitionReader(KafkaConfig("nowhere:1"), "g", {}, nothing, nothing)
    reader.read([TopicPartition(*PLACE, 0)], 1)
    return reader


def test_a_resumption_waits_less_than_a_lease(client: Silent) -> None:
    reader = a_reader()
    reader.fetch(1.0)
    reader.pause([PLACE], [PLACE])
    reader.fetch(1.0)
    reader.pause([], [PLACE])
    reader.fetch(1.0)
    assert client.waits == [ORDERS_WAIT_S, RESUME_WAIT_S, ORDERS_WAIT_S]
    assert RESUME_WAIT_S < ORDERS_WAIT_S


def test_a_shorter_wait_is_rounded_up_to_milliseconds(client: Silent) -> None:
    a_reader().fetch(0.0031)
    assert client.waits == [0.004]


def test_a_reader_that_is_held_fetches_nothing_and_still_takes_orders(client: Silent) -> None:
    reader = a_reader()
    reader.held = True
    assert reader.fetch(1.0) == []
    assert (reader.assigned, client.waits) == (1, [])
    assert reader.fetch(0.001) == []
    reader.held = False
    reader.fetch(1.0)
    assert client.waits == [ORDERS_WAIT_S]


def test_a_newly_assigned_slot_is_read_once_its_leader_is_asked_for(client: Silent) -> None:
    a_reader().fetch(0.1)
    assert client.calls == [f"leaders of {PLACE[0]}", "assign"]


def test_a_slot_is_assigned_although_no_broker_names_its_leader(client: Silent) -> None:
    client.answers = False
    a_reader().fetch(0.1)
    assert client.calls == ["assign"]
