"""Leader epochs of commits reveal, on the next read, a log that lost its end."""

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport
from tests.kafka_clients import replace_clients

PLACE = ("p.queries", 0)


class Read:
    """A message reduced to offset and leader epoch."""

    def __init__(self, offset: int, epoch: int) -> None:
        self._offset, self._epoch = offset, epoch

    def topic(self) -> str:
        return PLACE[0]

    def partition(self) -> int:
        return PLACE[1]

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> int:
        return self._epoch

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 0

    def nothing(self) -> None:
        return None

    error = key = value = headers = nothing


class Client:
    """Clients of the library: what is to be read, and what was committed."""

    def __init__(self) -> None:
        self.unread: list[Read] = []
        self.commits: list[TopicPartition] = []

    def poll(self, timeout_s: float) -> Read | None:
        return self.unread.pop(0) if self.unread else None

    def consume(self, most: int, timeout_s: float) -> list[Read]:
        return []

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        self.commits += offsets
        return offsets

    def flush(self, timeout_s: float) -> int:
        return 0

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    replace_clients(monkeypatch, made)
    return made


def test_a_commit_has_the_epoch_of_its_records_and_not_of_those_behind_a_cut(
    client: Client,
) -> None:
    """By that of the first record behind the cut, the next process would skip this record."""
    ingress = KafkaTransport(KafkaConfig("nobody:1"), "p.ingress", validates=True)
    client.unread = [Read(49, epoch=4)]
    ingress.fetch(0.0)
    ingress.done(PLACE, 50, "")
    client.unread = [Read(40, epoch=5)]  # the log has lost its end
    ingress.fetch(0.0)
    ingress.close()
    assert [(each.offset, each.leader_epoch) for each in client.commits] == [(50, 4)]
