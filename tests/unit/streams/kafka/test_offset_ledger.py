"""The ledger of committed offsets, over a client that fails as the broker makes it fail."""

import time
from threading import Event as Flag
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.offset_ledger import Commit, OffsetLedger

PLACE = ("t", 0)


class Coordinator:
    """Offsets of a consumer; ``errors`` are raised in place of the next answers."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.offsets: dict[tuple[str, int], tuple[int, str]] = {}
        self.epochs: dict[tuple[str, int], int | None] = {}
        self.calls: list[str] = []
        self.held = Flag()
        self.held.set()

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        self.held.wait(5)
        self.calls.append("commit")
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        self.offsets.update({(p.topic, p.partition): (p.offset, p.metadata) for p in offsets})
        self.epochs.update({(p.topic, p.partition): p.leader_epoch for p in offsets})
        return offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> Any:
        self.calls.append("committed")
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        places = [(place.topic, place.partition) for place in partitions]
        return [TopicPartition(*p, *self.offsets.get(p, (-1001, ""))) for p in places]

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 0, 7

    def poll(self, timeout: float) -> None:
        self.calls.append("poll")

    def close(self) -> None:
        self.calls.append("close")


def ledger(client: Coordinator) -> OffsetLedger:
    return OffsetLedger(KafkaConfig("nobody:1"), "group", client)


def until(true: Any) -> None:
    by_s = time.monotonic() + 5
    while not true():
        assert time.monotonic() < by_s
        time.sleep(0.001)  # the ledger's thread


@pytest.fixture
def found() -> list[Any]:
    return []


def test_a_commit_that_fails_is_counted_and_made_with_the_next_one() -> None:
    client = Coordinator(KafkaError.REQUEST_TIMED_OUT)
    book = ledger(client)
    book.commit({PLACE: Commit(5, "note")})
    until(lambda: book.failures == 1)
    assert book.unsettled
    book.commit({("t", 1): Commit(3, "")})
    until(lambda: not book.unsettled)
    book.close()
    assert client.offsets == {PLACE: (5, "note"), ("t", 1): (3, "")}
    assert "timed out" in book.why.lower()


def test_note_refused_by_the_broker_is_reported_once_and_the_commit_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Coordinator(*[KafkaError.OFFSET_METADATA_TOO_LARGE] * 2)
    book = ledger(client)
    for failures in (1, 2):
        book.commit({PLACE: Commit(5, "x" * 5000), ("t", 1): Commit(3, "1:3")})
        until(lambda failures=failures: book.failures == failures)
    book.commit({})
    until(lambda: not book.unsettled)
    book.close()
    (line,) = caplog.records
    assert (line.levelname, line.event, line.fields) == (  # type: ignore[attr-defined]
        "ERROR", "commit.note_too_long", {"topic": "t", "slot": 0, "bytes": 5000},
    )  # fmt: skip
    assert "group 'group': its offset metadata has 5000 bytes" in line.getMessage()
    assert "raise that, or egress_partitions" in line.getMessage()
    assert client.offsets == {PLACE: (5, "x" * 5000), ("t", 1): (3, "1:3")}


def test_offsets_are_looked_up_again_where_a_frozen_broker_does_not_answer(
    found: list[Any],
) -> None:
    client = Coordinator(KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
    client.offsets[PLACE] = (5, "note")
    book = ledger(client)
    book.look_up("t", [0], found.append)
    until(lambda: found)
    book.check()
    book.close()
    assert [(p.topic, p.partition, p.offset) for p in found[0]] == [("t", 0, 5)]
    assert book.failures == 2


def test_a_newer_offset_is_not_overwritten_by_one_that_failed_before_it() -> None:
    client = Coordinator(KafkaError.REQUEST_TIMED_OUT)
    book = ledger(client)
    client.held.clear()
    book.commit({PLACE: Commit(5, "")})
    until(lambda: book._pending == {})
    book.commit({PLACE: Commit(9, "")})
    client.held.set()
    book.close()
    assert client.offsets == {PLACE: (9, "")}


def test_a_right_that_was_withdrawn_is_raised_with_what_to_do() -> None:
    book = ledger(Coordinator(KafkaError.GROUP_AUTHORIZATION_FAILED))
    book.commit({PLACE: Commit(5, "")})
    until(lambda: book._error is not None)
    with pytest.raises(BrokerError, match=r"no right to Read on group 'group'"):
        book.check()


def test_a_slot_that_was_released_is_committed_first_and_never_after(found: list[Any]) -> None:
    client = Coordinator(KafkaError.REQUEST_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
    book = ledger(client)
    book.commit({PLACE: Commit(5, "")})
    book.release([PLACE])
    book.look_up("t", [0], lambda places: found.extend(p.offset for p in places))
    until(lambda: found)
    book.commit({("t", 1): Commit(1, "")})
    book.close()
    assert client.offsets == {("t", 1): (1, "")}
    assert client.calls == ["commit", "commit", "committed", "commit", "close"]
    assert found == [0]  # the start of the log


def test_the_driver_does_not_wait_for_a_coordinator_that_does_not_answer(found: list[Any]) -> None:
    client = Coordinator()
    client.held.clear()
    book = ledger(client)
    book.commit({PLACE: Commit(5, "")})
    book.ends([PLACE], found.append)
    assert book.unsettled
    assert found == []
    client.held.set()
    book.close()
    assert found == [{PLACE: 7}]
    assert not book.unsettled


def test_commits_are_renewed_as_they_stand_since_brokers_forget_old_ones(found: list[Any]) -> None:
    client = Coordinator()
    client.offsets = {("t", 0): (5, "a"), ("t", 1): (6, "b"), ("t", 3): (7, "c")}
    book = ledger(client)
    book.look_up("t", [0, 1, 2, 3], found.append)
    book.commit({("t", 0): Commit(9, "d", 4)})
    book.release([("t", 3)])
    until(lambda: not book.unsettled)
    client.offsets, kept = {}, {("t", 0): (9, "d"), ("t", 1): (6, "b")}  # forgotten
    book.renew()
    book.close()
    assert client.offsets == kept
    assert client.epochs["t", 0] == 4


def test_a_renewal_leaves_what_another_process_has_committed(found: list[Any]) -> None:
    """The renewal of a replaced ingress could arrive once the network heals."""
    client = Coordinator()
    client.offsets = {("t", 0): (5, "a"), ("t", 1): (6, "b")}
    book = ledger(client)
    book.look_up("t", [0, 1], found.append)
    until(lambda: not book.unsettled)
    client.offsets["t", 0] = (3, "another generation")
    client.calls.clear()
    book.renew()
    book.close()
    assert client.offsets == {("t", 0): (3, "another generation"), ("t", 1): (6, "b")}
    assert client.calls.count("commit") == 1


def test_a_commit_passes_the_markers_behind_the_last_record_that_is_done(found: list[Any]) -> None:
    """The last marker of a transaction counted as a query that waited for ever."""
    client = Coordinator()
    client.offsets = {("t", 0): (5, "a"), ("t", 1): (6, "b"), ("t", 2): (7, "c")}
    book = ledger(client)
    book.look_up("t", [0, 1, 2], found.append)
    until(lambda: found)
    client.offsets["t", 2] = (4, "another process")
    book.pass_markers({("t", 0): (5, 6), ("t", 1): (8, 9), ("t", 2): (7, 8), ("u", 0): (1, 2)})
    book.close()
    theirs = {("t", 2): (4, "another process")}
    assert client.offsets == {("t", 0): (6, "a"), ("t", 1): (6, "b"), **theirs}
    assert book.confirmed["t", 0] == 6
