"""Offsets are found even if a partition briefly has no leader or a group no coordinator."""

from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import (
    await_leaders,
    committed,
    log_offsets,
    offset_since,
    watermarks,
)

PLACE = TopicPartition("plans", 0)


class Leaderless:
    """A consumer that finds no leader this many times."""

    def __init__(self, times: int, code: int = KafkaError._UNKNOWN_PARTITION) -> None:
        self._answers: Iterator[bool] = iter([False] * times)
        self._code = code

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        if next(self._answers, True):
            return 3, 7
        raise KafkaException(KafkaError(self._code, f"no {place.topic}"))

    def offsets_for_times(
        self, places: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        self.get_watermark_offsets(places[0], timeout)
        # As in the library: a time in, an offset out, -1 if no record is as new.
        return [TopicPartition(p.topic, p.partition, 5 if p.offset < 9_000 else -1) for p in places]


def test_a_leader_is_awaited() -> None:
    assert watermarks(Leaderless(2), PLACE) == (3, 7)  # type: ignore[arg-type]


def test_missing_leader_is_reported() -> None:
    with pytest.raises(BrokerError, match="offsets of 'plans' cannot be read: no plans"):
        watermarks(Leaderless(9), PLACE, timeout_s=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("since_s", "offset"), [(8.0, 5), (10.0, None)])
def test_the_first_record_from_a_time_on_is_found_once_there_is_a_leader(
    since_s: float, offset: int | None
) -> None:
    assert offset_since(Leaderless(2), PLACE, since_s) == offset  # type: ignore[arg-type]


def test_the_end_of_a_log_is_asked_for_until_there_is_a_leader() -> None:
    """A new topic briefly has none, and `headrace status` used to end there."""
    new = Leaderless(2, KafkaError.NOT_LEADER_FOR_PARTITION)
    found = log_offsets(new, [PLACE], OFFSET_END, timeout_s=5.0)  # type: ignore[arg-type]
    assert found == {("plans", 0): 5}


def test_an_error_of_a_log_that_waiting_does_not_mend_is_raised_at_once() -> None:
    reader = Leaderless(1, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="no plans"):
        log_offsets(reader, [PLACE], OFFSET_END, timeout_s=5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_the_leaders_of_a_new_topic_are_awaited(code: int) -> None:
    """`headrace up` started its roles earlier, which kept the broker from creating the logs."""
    new = Leaderless(2, code)
    await_leaders(new, [PLACE], timeout_s=5.0)  # type: ignore[arg-type]
    assert new.get_watermark_offsets(PLACE, 0.0) == (3, 7)  # both refusals were seen


def test_missing_leaders_of_a_new_topic_are_reported() -> None:
    new = Leaderless(9, KafkaError.NOT_LEADER_FOR_PARTITION)
    with pytest.raises(BrokerError, match="offsets of 'plans' cannot be read"):
        await_leaders(new, [PLACE], timeout_s=0.0)  # type: ignore[arg-type]


class Uncoordinated:
    """A consumer whose group has no coordinator this many times."""

    def __init__(self, times: int, code: int = KafkaError.NOT_COORDINATOR) -> None:
        self._answers: Iterator[bool] = iter([False] * times)
        self._code = code

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if not next(self._answers, True):
            raise KafkaException(KafkaError(self._code, "not the one"))
        return [TopicPartition(p.topic, p.partition, 4 - 5 * p.partition) for p in places]


def test_a_coordinator_is_awaited() -> None:
    found = committed(Uncoordinated(2), "plans", [0, 1])  # type: ignore[arg-type]
    assert [place.offset for place in found] == [4, OFFSET_BEGINNING]


def test_missing_coordinator_is_reported() -> None:
    with pytest.raises(BrokerError, match="offsets of 'plans' cannot be read: not the one"):
        committed(Uncoordinated(9), "plans", [0], timeout_s=0.0)  # type: ignore[arg-type]


def test_what_waiting_does_not_mend_is_raised_at_once() -> None:
    reader = Uncoordinated(1, KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="not the one"):
        committed(reader, "plans", [0])  # type: ignore[arg-type]
