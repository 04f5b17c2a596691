"""One line when the broker disappears, one when it returns, and occasional reminders."""

import logging

import pytest
from confluent_kafka import KafkaError

from streams.kafka.connectivity import PERSIST_S, REMIND_S, Connectivity, QuietFilter
from streams.kafka.kafka_config import KafkaConfig

REFUSED = KafkaError(
    KafkaError._TRANSPORT,
    "127.0.0.1:9/bootstrap: Connect to ipv4#127.0.0.1:9 failed: Connection refused (after 0ms)",
)
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
WHY = "Connect to ipv4#127.0.0.1:9 failed: Connection refused"
AT = "the broker at 127.0.0.1:9"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "headrace.broker")
    return caplog


def lines(told: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(record.levelname.lower(), record.getMessage()) for record in told.records]
    told.clear()
    return found


def test_an_absence_is_one_line_however_often_the_clients_try(
    told: pytest.LogCaptureFixture,
) -> None:
    presence = Connectivity(KafkaConfig("127.0.0.1:9"))
    for attempt in range(200):
        presence.failed_request(REFUSED)
        if attempt in (20, 21, 90):  # each client detects it by itself
            presence.failed_request(DOWN)
        presence.look(100.0 + attempt / 20)
    assert lines(told) == [("warning", f"{AT} is unreachable: {WHY}")]
    assert presence.away
    presence.look(101.0 + REMIND_S)
    presence.look(102.0 + REMIND_S)
    assert lines(told) == [("warning", f"{AT} is still unreachable after 30 s: {WHY}")]
    presence.answered(141.0)
    presence.answered(142.0)
    assert lines(told) == [("info", f"{AT} is back after 40.0 s")]
    assert not presence.away
    presence.failed_request(DOWN)
    presence.look(150.0)
    assert lines(told) == [("warning", f"{AT} is unreachable: {WHY}")]


def a_record(name: str, text: str, level: int = logging.ERROR) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "", 0, "%s", (text,), None)
    made.created = 100.0
    return made


def test_what_aiokafka_says_of_an_absent_broker_becomes_its_absence(
    told: pytest.LogCaptureFixture,
) -> None:
    presence = Connectivity(KafkaConfig("127.0.0.1:9"))
    passes = QuietFilter(presence).filter
    assert not passes(a_record("aiokafka", "Unable connect to node with id 1: [Errno 111] refused"))
    assert not passes(a_record("aiokafka", "Unable to update metadata from [1]"))
    presence.look(99.0)
    assert lines(told) == [("warning", f"{AT} is unreachable: [Errno 111] refused")]
    assert not passes(a_record("mode.timers", "Timer commit is overlapping"))
    assert passes(a_record("headrace.control", "ours"))
    assert passes(a_record("aiokafka", "the end", logging.CRITICAL))
    presence.answered(99.5)
    assert not passes(a_record("faust.agents", "it crashed"))
    presence.since_s = 90.0
    assert passes(a_record("faust.agents", "it crashed"))


def test_retries_of_aiokafka_are_reported_if_they_persist() -> None:
    passes = QuietFilter(Connectivity(KafkaConfig("127.0.0.1:9"))).filter
    lost = "Group Coordinator Request failed: [Error 15] GroupCoordinatorNotAvailableError"

    def told_at(created: float) -> bool:
        record = a_record("aiokafka.consumer.group_coordinator", lost)
        record.created = created
        return passes(record)

    assert not any(told_at(100.0 + since) for since in (0.0, 0.1, 5.0, PERSIST_S - 0.1))
    assert told_at(100.0 + PERSIST_S)
    assert told_at(101.0 + PERSIST_S)
    assert not told_at(101.1 + 2 * PERSIST_S)  # the outage was over, so this is another one


def test_an_exception_in_aiokafka_is_reported_at_once() -> None:
    record = a_record("aiokafka.conn", "Unexpected exception in AIOKafkaConnection")
    record.exc_info = (ValueError, ValueError("x"), None)
    assert QuietFilter(Connectivity(KafkaConfig("127.0.0.1:9"))).filter(record)


def test_an_error_after_which_aiokafka_does_not_retry_is_reported_at_once() -> None:
    """A control app whose group the brokers refused waited without a line."""
    text = "Attempt to join group failed due to fatal error: [Error 26] InvalidSessionTimeoutError"
    record = a_record("aiokafka.consumer.group_coordinator", text)
    assert QuietFilter(Connectivity(KafkaConfig("127.0.0.1:9"))).filter(record)


def test_one_broken_connection_is_no_absence(told: pytest.LogCaptureFixture) -> None:
    presence = Connectivity(KafkaConfig("127.0.0.1:9"))
    presence.failed_request(REFUSED)
    presence.look(1.0)
    assert (lines(told), presence.away) == ([], False)
    told.set_level(logging.DEBUG, "headrace.broker")
    presence.failed_request(REFUSED)
    presence.look(2.0)
    assert lines(told) == [("debug", f"{AT} reported an error: {WHY}")]


def test_no_secret_stands_in_a_line(told: pytest.LogCaptureFixture) -> None:
    config = KafkaConfig("127.0.0.1:9", {"sasl.password": "swordfish"})
    presence = Connectivity(config)
    presence.failed_request(KafkaError(KafkaError._TRANSPORT, "the password swordfish is wrong"))
    presence.failed_request(DOWN)
    presence.look(1.0)
    assert "swordfish" not in str([record.__dict__ for record in told.records])
