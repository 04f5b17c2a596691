"""Refused records wait until it is certain whether they were written."""

import threading
import time
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, ClassVar

from streams.kafka.kafka_errors import BrokerError
from streams.kafka.leases.refused_records import RefusedRecords, Written, identity
from streams.kafka.turn import Turn


def a_message(key: str, value: bytes = b"answer") -> Any:
    return SimpleNamespace(partition=lambda: 0, key=key.encode, value=lambda: value)


class Topic:
    """A topic that holds some records; its broker may be unavailable for the first looks."""

    looked: ClassVar[list[threading.Thread]] = []  # the threads of all looks

    def __init__(self, *keys: str, away: int = 0) -> None:
        self._keys, self._away = keys, away
        self.looks: list[list[bytes]] = []

    def find(self, messages: Collection[Any], since_s: float) -> frozenset[Written]:
        self.looked.append(threading.current_thread())
        self.since_s = since_s
        self.looks.append([message.key() for message in messages])
        if len(self.looks) <= self._away:
            raise BrokerError("away")
        return frozenset(identity(a_message(key)) for key in self._keys)


def decided(records: RefusedRecords) -> dict[str, bool]:
    """Return what is known after a look that has started has ended."""
    found = records.decided()
    # From Python 3.13 on a thread leaves ``enumerate()`` before it counts as ended.
    running = [thread for thread in threading.enumerate() if thread.name == "refused"]
    for thread in [*running, *Topic.looked]:
        thread.join(10)
    found += records.decided()
    return {each.message.key().decode(): written for each, written in found}


def test_what_is_on_the_topic_counts_as_written_and_the_rest_does_not() -> None:
    topic = Topic("b", "c")
    records, turn = RefusedRecords(topic.find), Turn()
    records.add(turn, [a_message("a"), a_message("b"), a_message("c", b"another")], 98.0)
    assert turn.held == 3
    assert decided(records) == {"a": False, "b": True, "c": False}
    assert turn.held == 0
    assert decided(records) == {}


def test_the_topic_is_read_from_the_oldest_stamp_on() -> None:
    topic = Topic()
    records = RefusedRecords(topic.find)
    records.add(Turn(), [a_message("a")], 98.0)
    records.add(Turn(), [a_message("b")], 97.0)
    assert decided(records) == {"a": False, "b": False}
    assert topic.since_s == 97.0


def test_records_that_are_refused_during_a_look_wait_for_the_next_one() -> None:
    topic = Topic("b")
    records = RefusedRecords(topic.find)
    records.add(Turn(), [a_message("a")], 98.0)
    found = {each.message.key().decode(): written for each, written in records.decided()}
    records.add(Turn(), [a_message("b")], 99.0)
    while len(found) < 2:
        found |= decided(records)
    assert found == {"a": False, "b": True}
    assert topic.looks == [[b"a"], [b"b"]]


def test_a_look_that_the_broker_does_not_answer_is_repeated() -> None:
    topic = Topic("a", away=1)
    records = RefusedRecords(topic.find)
    records.add(Turn(), [a_message("a")], 98.0)
    found: dict[str, bool] = {}
    while not found:
        found = decided(records)
    assert found == {"a": True}
    assert topic.looks == [[b"a"], [b"a"]]


def test_the_deciding_thread_does_not_wait_for_the_broker() -> None:
    answer = threading.Event()

    def find(_: Collection[Any], since_s: float) -> frozenset[Written]:
        answer.wait(10)
        return frozenset()

    records = RefusedRecords(find)
    records.add(Turn(), [a_message("a")], 98.0)
    began_s = time.monotonic()
    assert records.decided() == []
    assert records.decided() == []
    assert time.monotonic() - began_s < 5
    answer.set()
    assert decided(records) == {"a": False}
