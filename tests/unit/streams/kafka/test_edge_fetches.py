"""An ingress at the edge reads the central broker's records however busy its input is."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from streams.kafka import edge_transport, sender, transport
from streams.kafka.edge_transport import EdgeInput, EdgeTransport
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.reading import partition_reader

INPUT, PLANS = "p.queries", "headrace.plans"


class Read:
    """A message reduced to topic and offset."""

    def __init__(self, topic: str, offset: int) -> None:
        self._topic, self._offset = topic, offset

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 0

    def nothing(self) -> None:
        return None

    error = key = value = headers = leader_epoch = nothing


class Client:
    """A consumer with the records ``unread``."""

    def __init__(self, unread: list[Read]) -> None:
        self._unread = unread

    def poll(self, timeout_s: float) -> Read | None:
        return self._unread.pop(0) if self._unread else None

    def consume(self, most: int, timeout_s: float) -> list[Read]:
        return []


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> EdgeTransport:
    """A transport whose input has a record for every fetch, and whose central broker has one."""
    of_group = {
        "p.ingress": Client([Read(INPUT, n) for n in range(100)]),
        "p.workers": Client([Read(PLANS, 0)]),
    }

    def made(_: KafkaConfig, group: str = "", **__: Any) -> Client:
        return of_group.get(group) or Client([])

    patched: list[tuple[Any, str, Callable[..., Client]]] = [
        (partition_reader, "consumer", made),
        (transport, "consumer", lambda *_, **__: Client([])),
        (edge_transport, "consumer", lambda *_, **__: Client([])),
        (transport, "report_producer", made),
        (sender, "producer", made),
    ]
    for module, name, make in patched:
        monkeypatch.setattr(module, name, make)
    kafka = KafkaConfig("nobody:1")
    return EdgeTransport(kafka, "p.workers", EdgeInput(kafka, INPUT, "p.ingress"))


def test_a_busy_input_does_not_keep_plans_waiting(edge: EdgeTransport) -> None:
    found = [record.topic for _ in range(4) for record in edge.fetch(0.1)]
    assert found == [INPUT, PLANS, INPUT, INPUT]
