"""Arrivals from time stamps of a topic's records, and topics without time stamps."""

from dataclasses import dataclass

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
)

from headrace.arrivals.from_topic import arrival_times
from headrace.errors import ArrivalsError


@dataclass
class Stamped:
    """A record reduced to its time stamp."""

    milliseconds: int
    kind: int = TIMESTAMP_CREATE_TIME

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.milliseconds

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7


def test_arrivals_are_counted_from_the_oldest_record_over_all_partitions() -> None:
    stamps = [1_700_000_000_250, 1_700_000_001_000, 1_700_000_000_000, 1_700_000_000_300]
    times = arrival_times("p.queries", [Stamped(stamp) for stamp in stamps])
    assert times.tolist() == [0.0, 0.25, 0.3, 1.0]


def test_the_brokers_own_stamps_serve_too() -> None:
    assert arrival_times("t", [Stamped(5, TIMESTAMP_LOG_APPEND_TIME)]).tolist() == [0.0]


def test_a_topic_without_time_stamps_or_records_is_refused() -> None:
    with pytest.raises(ArrivalsError, match=r"t\[2\] offset 7 has no time stamp; its producer"):
        arrival_times("t", [Stamped(-1, TIMESTAMP_NOT_AVAILABLE)])
    with pytest.raises(ArrivalsError, match="topic 't' has no records any more"):
        arrival_times("t", [])
