"""Partitions without enough copies in sync: their records wait, and a line says why."""

import logging
import threading
from typing import Any

import pytest

from streams.kafka.admin.topic_copies import Copies
from streams.kafka.missing_copies import ASK_AFTER_S, REMIND_S, MissingCopies, told

WHOLE = Copies("p.results", 0, copies=3, in_sync=3, needed=2, led=True)
DEGRADED = WHOLE._replace(in_sync=2)
LACKING = WHOLE._replace(partition=1, in_sync=1)
LEADERLESS = Copies("p.work", 0, copies=1, in_sync=1, needed=1, led=False)
PLACES = frozenset({("p.results", 1)})


def never(_: object) -> list[Copies]:
    raise AssertionError("the copies were asked for")


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any]]:
    found = [(r.event, r.fields) for r in caplog.records]  # type: ignore[attr-defined]
    caplog.clear()
    return found


def test_a_partition_takes_records_while_enough_of_its_copies_are_in_sync() -> None:
    assert [each.missing for each in (WHOLE, DEGRADED, LACKING, LEADERLESS)] == [
        False,
        False,
        True,
        True,
    ]


def test_the_topics_that_wait_are_named_with_the_remedy() -> None:
    assert told([LACKING, LEADERLESS]) == (
        "p.results, p.work: the brokers take no record, and this role waits: of the 3 copies of "
        "p.results-1 1 are in sync, and its min.insync.replicas is 2; bring the other brokers "
        "back, or lower min.insync.replicas of p.results, p.work"
    )
    assert told([LEADERLESS]).endswith(
        "p.work-0 has no leader; bring the brokers of its copies back"
    )


def test_the_copies_are_not_asked_for_while_sends_are_confirmed() -> None:
    missing = MissingCopies(never)
    missing.look(100.0, None, lambda: PLACES)
    missing.look(100.0, 100.0 - ASK_AFTER_S, lambda: PLACES)
    assert missing.missed_s == 0.0


def test_missing_copies_are_one_line_with_reminders_until_the_sends_are_confirmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headrace.broker")
    missing = MissingCopies(never)
    missing.take(100.0, [WHOLE, DEGRADED])
    assert not missing.missing
    assert events(caplog) == []
    missing.take(101.0, [WHOLE, LACKING])
    missing.take(100.0 + REMIND_S, [LACKING])
    assert events(caplog) == [("broker.copies_missing", {"topics": ["p.results"]})]
    missing.take(101.0 + REMIND_S, [LACKING])
    assert events(caplog) == [("broker.copies_missing", {"topics": ["p.results"]})]
    assert missing.missed_s == 101.0 + REMIND_S
    missing.take(150.0, [DEGRADED])
    missing.look(150.0, 149.9, lambda: PLACES)
    assert events(caplog) == [("broker.copies_back", {"seconds": 49.0})]
    assert not missing.missing


def test_no_answer_is_known_while_the_copies_are_asked_for() -> None:
    answered = threading.Event()
    missing = MissingCopies(lambda _: [LACKING] if answered.wait(30) else [])
    missing.look(100.0, 90.0, lambda: PLACES)
    assert missing.asking
    answered.set()
    while missing.asking:
        missing.look(110.0, 90.0, lambda: PLACES)
    assert missing.missed_s == 110.0
    missing.look(110.0 + ASK_AFTER_S, 90.0, lambda: PLACES)
    assert not missing.asking
