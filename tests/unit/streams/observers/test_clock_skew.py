"""Clock differences are measured, logged and exported."""

import logging

import pytest

from schemas.effects import REPORTS, Arrived
from streams.observers.clock_skew import WINDOW_S, ClockSkews
from tests.control_world import an_ingress_report


def heard(skews: ClockSkews, node: str, sent_s: float, now: float) -> None:
    report = an_ingress_report(sent_s, node=node)
    skews.saw("control", Arrived(report, REPORTS, 0, 0, now), [], now)


def test_the_largest_difference_of_any_node_is_exported() -> None:
    skews = ClockSkews("postcode")
    heard(skews, "ingress-0", 99.99, 100.0)
    heard(skews, "cpu-0", 96.5, 100.0)
    heard(skews, "cpu-0", 97.0, 100.2)
    assert [(n, labels, pytest.approx(v)) for n, labels, v in skews.samples()] == [
        ("clock_skew_seconds", (), 3.2)
    ]


def test_a_node_that_has_gone_does_not_count() -> None:
    skews = ClockSkews("postcode")
    heard(skews, "cpu-0", 96.0, 100.0)
    for tick in range(round(WINDOW_S) + 5):
        heard(skews, "cpu-1", 100.0 + tick, 100.0 + tick)
    assert list(skews.samples()) == [("clock_skew_seconds", (), 0.0)]


def test_a_clock_that_is_off_is_reported_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    skews = ClockSkews("postcode")
    with caplog.at_level(logging.WARNING, "headrace.node"):
        for tick in range(round(2 * WINDOW_S / 0.2)):
            heard(skews, "cpu-0", 1000.0 + tick * 0.2 - 3.0, 1000.0 + tick * 0.2)
            heard(skews, "cpu-1", 1000.0 + tick * 0.2, 1000.0 + tick * 0.2)
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "the clock of cpu-0 is 3.0 s behind the control app's"
    ] * 2
