"""How long the reading thread waits for a record before it checks its orders again."""

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.reading import partition_reader
from streams.kafka.reading.partition_reader import ORDERS_WAIT_S, RESUME_WAIT_S, PartitionReader

PLACE = ("p.work.read", 0)


class Silent:
    """A consumer without records; ``waits`` records the timeouts of its polls."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def poll(self, timeout_s: float) -> None:
        self.waits.append(timeout_s)

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        pass

    pause = resume = seek = incremental_assign


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
