"""Delays by the broker's quotas: one line when they begin, reminders, one when they have ended."""

import logging
from dataclasses import dataclass

import pytest

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.throttling import HEARTBEATS, READS, REMIND_S, SENDS, TOLD_S, Throttling

KAFKA = KafkaConfig("b:1", {"sasl.username": "ann"})


@dataclass(frozen=True)
class Delay:
    """The client library's event."""

    throttle_time: float


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "headrace.broker")
    return caplog


def lines(told: pytest.LogCaptureFixture) -> list[tuple[str, str, float]]:
    found = [(r.event, r.getMessage(), r.fields["seconds"]) for r in told.records]  # type: ignore[attr-defined]
    told.clear()
    return found


def test_many_delays_are_one_line_with_the_longest_of_each_kind_and_reminders(
    told: pytest.LogCaptureFixture,
) -> None:
    throttling = Throttling(KAFKA)
    throttling.delayed(SENDS, Delay(0.5))
    throttling.delayed(SENDS, Delay(4.25))
    throttling.delayed(READS, Delay(1.0))
    throttling.look(100.0)
    ((event, text, seconds),) = lines(told)
    assert (event, seconds) == ("broker.throttled", 4.25)
    assert "the broker at b:1 throttles user 'ann' by a quota" in text
    assert "sends wait up to 4.2 s and reads wait up to 1.0 s; raise the quotas" in text
    assert throttling.until_s == {SENDS: 104.25, READS: 101.0, HEARTBEATS: 0.0}
    throttling.delayed(READS, Delay(0.25))
    throttling.look(101.0)
    throttling.look(99.0 + REMIND_S)
    assert lines(told) == []
    throttling.look(100.0 + REMIND_S)
    ((event, text, seconds),) = lines(told)
    assert (event, seconds) == ("broker.throttled", 0.25)
    assert "sends" not in text
    throttling.look(100.0 + 2 * REMIND_S)
    ended = "the broker at b:1 no longer throttles user 'ann'"
    assert lines(told) == [("broker.unthrottled", ended, 1.0)]
    assert throttling.delayed_s == 0.5 + 4.25 + 1.0 + 0.25


def test_throttling_that_begins_again_is_told_at_once(told: pytest.LogCaptureFixture) -> None:
    throttling = Throttling(KAFKA)
    for begin_s in (0.0, 100.0):
        throttling.delayed(SENDS, Delay(0.5))
        throttling.look(begin_s)
        throttling.look(begin_s + REMIND_S)
        throttling.look(begin_s + 2 * REMIND_S)
    assert [event for event, *_ in lines(told)] == ["broker.throttled", "broker.unthrottled"] * 2


def test_short_delays_are_counted_and_not_told(told: pytest.LogCaptureFixture) -> None:
    throttling = Throttling(KAFKA)
    for at in range(100):
        throttling.delayed(SENDS, Delay(TOLD_S / 2))
        throttling.look(float(at))
    assert lines(told) == []
    assert throttling.delayed_s == pytest.approx(100 * TOLD_S / 2)
    assert throttling.until_s == {SENDS: 99 + TOLD_S / 2, READS: 0.0, HEARTBEATS: 0.0}


def test_a_delay_that_lasts_longer_than_a_reminder_has_not_ended(
    told: pytest.LogCaptureFixture,
) -> None:
    throttling = Throttling(KAFKA)
    throttling.delayed(SENDS, Delay(3 * REMIND_S))
    throttling.look(0.0)
    throttling.look(2 * REMIND_S)
    assert [event for event, *_ in lines(told)] == ["broker.throttled"]
    throttling.look(3 * REMIND_S)
    assert [event for event, *_ in lines(told)] == ["broker.unthrottled"]
