"""Refused records wait until it is certain whether they were written."""

import threading
import time
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from streams.kafka.kafka_errors import BrokerError
from streams.kafka.refused_records import SETTLED_S, RefusedRecords, Written, identity
from streams.kafka.turn import Turn

LATER_S = 100.0 + SETTLED_S


def a_message(key: str, value: bytes = b"answer") -> Any:
    return SimpleNamespace(partition=lambda: 0, key=key.encode, value=lambda: value)


class Topic:
    """A topic that holds some records; its broker may be away for the first looks."""

    def __init__(self, *keys: str, away: int = 0) -> None:
        self._keys, self._away = keys, away
        self.looks: list[list[bytes]] = []

    def find(self, messages: Collection[Any], since_s: float) -> frozenset[Written]:
        self.since_s = since_s
        self.looks.append([message.key() for message in messages])
        if len(self.looks) <= self._away:
            raise BrokerError("away")
        return frozenset(identity(a_message(key)) for key in self._keys)


def decided(records: RefusedRecords, now: float) -> dict[str, bool]:
    """Return what is known at ``now``, once a look that has begun has ended."""
    found = records.decided(now)
    for thread in threading.enumerate():
        if thread.name == "refused":
            thread.join(10)
    found += records.decided(now)
    return {each.message.key().decode(): written for each, written in found}


def test_what_is_on_the_topic_counts_as_written_and_the_rest_does_not() -> None:
    topic = Topic("b", "c")
    records = RefusedRecords(topic.find)
    records.add(Turn(), [a_message("a"), a_message("b"), a_message("c", b"another")], 98.0, 100.0)
    assert decided(records, LATER_S) == {"a": False, "b": True, "c": False}
    assert decided(records, LATER_S) == {}


def test_the_topic_is_read_from_the_oldest_stamp_on() -> None:
    topic = Topic()
    records = RefusedRecords(topic.find)
    records.add(Turn(), [a_message("a")], 98.0, 100.0)
    records.add(Turn(), [a_message("b")], 97.0, 100.0)
    assert decided(records, LATER_S) == {"a": False, "b": False}
    assert topic.since_s == 97.0


def test_the_topic_is_looked_at_only_when_a_lost_replica_has_been_dropped() -> None:
    topic = Topic()
    records = RefusedRecords(topic.find)
    records.add(Turn(), [a_message("a")], 98.0, 100.0)
    records.add(Turn(), [a_message("b")], 99.0, 101.0)
    assert decided(records, LATER_S - 0.1) == {}
    assert decided(records, LATER_S) == {"a": False}
    assert decided(records, LATER_S + 1.0) == {"b": False}
    assert topic.looks == [[b"a"], [b"b"]]


def test_a_look_that_the_broker_does_not_answer_is_repeated() -> None:
    topic = Topic("a", away=1)
    records = RefusedRecords(topic.find)
    records.add(Turn(), [a_message("a")], 98.0, 100.0)
    found: dict[str, bool] = {}
    while not found:
        found = decided(records, LATER_S)
    assert found == {"a": True}
    assert topic.looks == [[b"a"], [b"a"]]


def test_the_deciding_thread_does_not_wait_for_the_broker() -> None:
    answer = threading.Event()

    def find(_: Collection[Any], since_s: float) -> frozenset[Written]:
        answer.wait(10)
        return frozenset()

    records = RefusedRecords(find)
    records.add(Turn(), [a_message("a")], 98.0, 100.0)
    began_s = time.monotonic()
    assert records.decided(LATER_S) == []
    assert records.decided(LATER_S) == []
    assert time.monotonic() - began_s < 5
    answer.set()
    assert decided(records, LATER_S) == {"a": False}
