"""streams/kafka.py: offsets of a partition that has no leader for a moment, found all the same."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streams.kafka import BrokerError, offset_since, watermarks

PLACE = TopicPartition("plans", 0)


class Leaderless:
    """A consumer that finds no leader so many times."""

    def __init__(self, times: int) -> None:
        self._answers: Iterator[bool] = iter([False] * times)

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        if next(self._answers, True):
            return 3, 7
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, f"no {place.topic}"))

    def offsets_for_times(
        self, places: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        self.get_watermark_offsets(places[0], timeout)
        # As the library has it: a time in, an offset out, -1 where no record is as new.
        return [TopicPartition(p.topic, p.partition, 5 if p.offset < 9_000 else -1) for p in places]


def test_a_leader_is_awaited() -> None:
    assert watermarks(Leaderless(2), PLACE) == (3, 7)  # type: ignore[arg-type]


def test_a_leader_that_does_not_come_is_said() -> None:
    with pytest.raises(BrokerError, match="offsets of 'plans' cannot be read: no plans"):
        watermarks(Leaderless(9), PLACE, timeout_s=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("since_s", "offset"), [(8.0, 5), (10.0, None)])
def test_the_first_record_from_a_time_on_is_found_once_there_is_a_leader(
    since_s: float, offset: int | None
) -> None:
    assert offset_since(Leaderless(2), PLACE, since_s) == offset  # type: ignore[arg-type]
