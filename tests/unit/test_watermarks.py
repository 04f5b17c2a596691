"""streams/kafka.py: offsets of a partition that has no leader for a moment."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streams.kafka import BrokerError, watermarks

PLACE = TopicPartition("plans", 0)


class Leaderless:
    """A consumer that finds no leader so many times."""

    def __init__(self, times: int) -> None:
        self._answers: Iterator[bool] = iter([False] * times)

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        if next(self._answers, True):
            return 3, 7
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, f"no {place.topic}"))


def test_a_leader_is_awaited() -> None:
    assert watermarks(Leaderless(2), PLACE) == (3, 7)  # type: ignore[arg-type]


def test_a_leader_that_does_not_come_is_said() -> None:
    with pytest.raises(BrokerError, match="offsets of 'plans' cannot be read: no plans"):
        watermarks(Leaderless(9), PLACE, timeout_s=0.0)  # type: ignore[arg-type]
