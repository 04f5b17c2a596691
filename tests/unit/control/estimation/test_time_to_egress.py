"""control/estimation/time_to_egress.py: the time that most items take to egress."""

from collections.abc import Sequence
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.report_deltas import ReportDeltas
from control.estimation.time_to_egress import FEWEST, LIKELY, MEMORY, TimeToEgress
from schemas.records import Report


def report(times_s: Sequence[float], at_s: float, incarnation: float = 1.0) -> Report:
    """Return an egress report on items that took ``times_s`` from ``read``."""
    counts = {
        "answered": 3.0,
        "to_egress/read": float(len(times_s)),
        "to_egress_s/read": sum(times_s),
        "to_egress_s2/read": sum(each * each for each in times_s),
    }
    return Report(
        node="e", role="egress", pipeline="p", epoch=1, incarnation=incarnation, sent_s=at_s,
        state="ready", counts=counts if times_s else {},
    )  # fmt: skip


def after(*parts: Sequence[float]) -> dict[str, float]:
    """Return the estimate after reports that each hold the items of one more part."""
    reports, so_far = [report([], 0.0)], list[float]()
    for n, part in enumerate(parts, 1):
        so_far += part
        reports.append(report(so_far, n * 0.2))
    return told(*reports)


def told(*reports: Report) -> dict[str, float]:
    """Return the estimate after reports."""
    times, deltas = TimeToEgress(["read"]), ReportDeltas("egress")
    for news in map(deltas.take, reports):
        if news is not None:
            times.observe(news)
    return times.seconds()


@given(st.lists(st.floats(0.0, 10.0), min_size=int(FEWEST), max_size=int(MEMORY)))
def test_time_to_egress_is_the_mean_plus_twice_the_deviation(times_s: list[float]) -> None:
    expected = fmean(times_s) + LIKELY * pstdev(times_s)
    assert after(times_s)["read"] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_few_items_give_no_estimate() -> None:
    assert after([0.1] * int(FEWEST - 1)) == {}


def test_new_times_replace_old_ones() -> None:
    old, new = [0.1] * 100, [0.4] * int(MEMORY)
    assert after(old)["read"] == pytest.approx(0.1)
    assert after(old, new)["read"] == pytest.approx(0.4)
    # Three quarters of the old items are kept: 75 of 0.1 s and 50 of 0.4 s.
    expected = fmean(both := [0.1] * 75 + [0.4] * 50) + LIKELY * pstdev(both)
    assert after(old, [0.4] * 50)["read"] == pytest.approx(expected)


def test_counts_of_an_egress_before_its_first_report_are_ignored() -> None:
    many = [0.2] * 50
    begun = [report([], 0.0), report(many, 1.0, incarnation=2.0)]
    assert told(*begun) == {}
    assert told(*begun, report(many * 2, 2.0, incarnation=1.0)) == {}
    assert told(*begun, report(many * 2, 2.0, incarnation=2.0)) == pytest.approx({"read": 0.2})
