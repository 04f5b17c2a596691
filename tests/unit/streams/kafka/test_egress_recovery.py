"""Records that egress reads again on a log that lost its end, and on an unknown topic."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from streams.kafka import egress_recovery
from streams.kafka.egress_recovery import answered_since, committed_notes
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

CUT, EPOCH = 6, 4  # records from offset 6 on were written after that epoch
NOBODY = KafkaConfig("nobody:1")


class Read:
    """A message of the log; its time in seconds is its offset."""

    def __init__(self, offset: int, error: int | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._offset * 1000

    def value(self) -> bytes:
        return b""


class Log:
    """A consumer of a partition with the offsets 0 to ``end`` - 1, whose group has committed
    ``done`` with ``EPOCH``. It finds the cut by a sought epoch as librdkafka does."""

    def __init__(self, end: int, done: int) -> None:
        self._end, self._done = end, done
        self._unread: list[Read] = []
        self.made: list[tuple[int, str]] = []  # commits: offset and note

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.made += [(place.offset, place.metadata or "") for place in offsets]

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(p.topic, 0, self._done, "", leader_epoch=EPOCH) for p in places]

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return 0, self._end

    def assign(self, places: list[TopicPartition]) -> None:
        (place,) = places
        self._read_from(place.offset)

    def seek(self, place: TopicPartition) -> None:
        self._read_from(min(place.offset, CUT) if place.leader_epoch == EPOCH else place.offset)

    def _read_from(self, begin: int) -> None:
        records = [Read(offset) for offset in range(begin, self._end)]
        self._unread = [*records, Read(self._end, KafkaError._PARTITION_EOF)]

    def unassign(self) -> None:
        self._unread = []

    def poll(self, timeout_s: float) -> Read | None:
        return self._unread.pop(0) if self._unread else None

    def consume(self, most: int, timeout_s: float) -> list[Read]:
        return []

    def close(self) -> None:
        """Do nothing."""


# The commit at the log's end; within what was written since the cut; beyond the log's end, where
# the topic may have been recreated.
@pytest.mark.parametrize(("end", "done", "since_s"), [(6, 6, None), (12, 9, 6.0), (8, 9, 0.0)])
def test_the_records_behind_a_cut_are_those_that_will_be_read_again(
    monkeypatch: pytest.MonkeyPatch, end: int, done: int, since_s: float | None
) -> None:
    """Queries in them may have answers, which are searched from the first of them on."""
    log: Any = Log(end, done)
    monkeypatch.setattr(egress_recovery, "consumer", lambda *_, **__: log)
    (found,) = committed_notes(NOBODY, "p.egress", "p.outputs", [0])
    assert found.since_s == since_s
    assert log.made == ([(0, "")] if done > end else [])


def test_a_topic_that_no_broker_knows_does_not_count_as_one_without_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress_recovery, "consumer", lambda *_, **__: Log(0, 0))
    monkeypatch.setattr(egress_recovery, "readable_partitions", lambda *_: 0)
    with pytest.raises(BrokerError, match="no broker knows topic"):
        answered_since(NOBODY, "p.results", 5.0, lambda value: [])
