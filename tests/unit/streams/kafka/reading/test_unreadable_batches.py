"""A batch that the client cannot decompress and would otherwise retry forever."""

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.reading import partition_reader
from streams.kafka.reading.partition_reader import UNREADABLE, PartitionReader

TOPIC = "p.queries"
# First offset and end; the second batch cannot be decompressed. Offset 1 is the mark of a
# transaction, which no client receives.
BATCHES = ((0, 1), (2, 4), (4, 5))


class Read:
    """A message of the partition, or an error."""

    def __init__(self, offset: int, error: int | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 0

    def value(self) -> bytes:
        return b"payload"

    def nothing(self) -> None:
        return None

    key = headers = leader_epoch = nothing


class Client:
    """A consumer of the partition. An error has the first offset of its batch."""

    def __init__(self) -> None:
        self._next = 0

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        (place,) = places
        self._next = max(0, place.offset)

    def seek(self, place: TopicPartition) -> None:
        self._next = place.offset

    def poll(self, timeout_s: float) -> Read | None:
        batch = self._batch()
        if batch is None:
            return None
        if batch == BATCHES[1]:
            return Read(batch[0], KafkaError._BAD_COMPRESSION)
        at = max(self._next, batch[0])
        self._next = at + 1
        return Read(at)

    def consume(self, most: int, timeout_s: float) -> list[Read]:
        """Return errors from attempts at the same batch since the last poll."""
        error = Read(BATCHES[1][0], KafkaError._BAD_COMPRESSION)
        return [error] * 3 if self._batch() == BATCHES[1] else []

    def _batch(self) -> tuple[int, int] | None:
        return next((each for each in BATCHES if self._next < each[1]), None)


@pytest.mark.parametrize("begin", [-2, 0, 1, 3])
def test_its_records_are_passed_over_one_by_one_and_those_behind_it_are_read(
    monkeypatch: pytest.MonkeyPatch, begin: int
) -> None:
    client: Any = Client()
    monkeypatch.setattr(partition_reader, "consumer", lambda *_, **__: client)
    reader = PartitionReader(KafkaConfig("nobody:1"), "g", {}, lambda *_: None, lambda *_: None)
    reader.read([TopicPartition(TOPIC, 0, begin)], 1)
    found = [each for _ in range(6) for each in reader.fetch(0.0)]
    read = [(each.offset, each.value, each.fault) for each in found]
    every = [(0, b"payload", ""), (2, None, UNREADABLE), (3, None, UNREADABLE), (4, b"payload", "")]
    assert read == [each for each in every if each[0] >= begin]
