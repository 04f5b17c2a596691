"""Transaction markers behind the last record of a slot, which the client passes but never
returns."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.reading import partition_reader
from streams.kafka.reading.partition_reader import PartitionReader

PLACE, END = ("p.queries", 0), 6


class Client:
    """A consumer of a slot with 6 offsets; the reader begins at the last one. ``assigned`` are the
    offsets of its assignments."""

    def __init__(self, position: int) -> None:
        self.assigned: list[int] = []
        self._position = position

    def poll(self, timeout_s: float) -> None:
        """Return no record."""

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.assigned += [place.offset for place in places]

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        """Do nothing."""

    resume = incremental_unassign

    def get_watermark_offsets(self, place: TopicPartition, cached: bool) -> tuple[int, int]:
        return 0, END

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(*PLACE, self._position)]


def a_reader(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    passed: Callable[[Any], None] = lambda _: None,
) -> PartitionReader:
    """Return the reader after a few looks at the broker's end."""

    def bounds(_: Iterable[Any], then: Callable[[dict[Any, tuple[int, int]]], None]) -> None:
        then({PLACE: (0, END)})

    monkeypatch.setattr(partition_reader, "consumer", lambda *_, **__: client)
    reader = PartitionReader(KafkaConfig("nowhere:1"), "g", {}, bounds, passed)
    reader.read([TopicPartition(*PLACE, END - 1)], 1)
    for _ in range(4):
        reader.look()
        reader.fetch(0.0)
    return reader


@pytest.mark.parametrize(("position", "assigned"), [(END, 1), (-1001, 2)])
def test_a_client_that_has_passed_the_marker_has_not_stopped_reading(
    monkeypatch: pytest.MonkeyPatch, position: int, assigned: int
) -> None:
    """Each pause of a transactional producer was logged as a client that stopped."""
    client = Client(position)
    a_reader(client, monkeypatch)
    assert client.assigned == [END - 1] * assigned


@pytest.mark.parametrize(("position", "lag"), [(END, 0), (-1001, 1)])
def test_marker_behind_what_is_committed_is_no_lag(
    monkeypatch: pytest.MonkeyPatch, position: int, lag: int
) -> None:
    reader = a_reader(Client(position), monkeypatch)
    assert reader._lag({PLACE: END - 1}) == {PLACE: lag}
    assert reader._lag({PLACE: END - 2}) == {PLACE: 2}


@pytest.mark.parametrize(("position", "passed"), [(END, {PLACE: (END - 1, END)}), (-1001, None)])
def test_markers_that_the_client_has_passed_are_to_be_committed(
    monkeypatch: pytest.MonkeyPatch, position: int, passed: Any
) -> None:
    """The control app said after ten seconds that no ingress read them."""
    found: list[Any] = []
    a_reader(Client(position), monkeypatch, found.append)
    assert found[-1:] == ([passed] if passed else [])
