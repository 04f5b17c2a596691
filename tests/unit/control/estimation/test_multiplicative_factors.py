"""control/estimation/multiplicative_factors.py: how many items one item makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.estimation.multiplicative_factors import FEWEST, Factors
from control.estimation.report_deltas import ReportDeltas
from schemas.records import Factor, Report

NET = ("locate/net", "read")
EDGES = (NET, ("locate/simple", "read"))
NOTHING = Factors(EDGES)


def a_report(
    sent_s: float, finished: float, children: float, node: str = "w", incarnation: float = 0.0
) -> Report:
    return Report(
        node=node, role="worker", pipeline="p", epoch=1, incarnation=incarnation, sent_s=sent_s,
        state="ready",
        counts={"finished/locate/net": finished, "children/locate/net/read": children},
    )  # fmt: skip


class Seen:
    """Factors with their readings."""

    def __init__(self, factors: Factors = NOTHING) -> None:
        self.factors, self._readings = factors, ReportDeltas("worker")

    def hear(self, *reports: Report) -> Factors:
        for report in reports:
            news = self._readings.take(report)
            self.factors = self.factors.observe(news) if news else self.factors
        return self.factors


def observed(*reports: Report) -> Factors:
    return Seen().hear(*reports)


def test_the_profile_stands_until_enough_items_were_seen() -> None:
    seen = Seen()
    few = seen.hear(a_report(1.0, 0.0, 0.0), a_report(2.0, 99.0, 400.0))
    assert few.multiplicity() == {}
    assert seen.hear(a_report(2.1, 100.0, 404.0)).multiplicity() == {
        NET: pytest.approx(4.04, rel=1e-3)
    }


def test_factor_follows_recent_observations() -> None:
    reports = [a_report(float(s), 100.0 * s, 500.0 * s) for s in range(11)]
    seen = Seen()
    assert seen.hear(*reports).multiplicity() == {NET: pytest.approx(5.0)}
    reports = [a_report(10.0 + s, 1000.0 + 100.0 * s, 5000.0 + 200.0 * s) for s in range(1, 31)]
    assert seen.hear(*reports).multiplicity()[NET] == pytest.approx(2.0, abs=0.2)


def test_idle_variant_keeps_its_observed_factor() -> None:
    rested = observed(
        a_report(1.0, 0.0, 0.0), a_report(2.0, 200.0, 600.0),
        a_report(900.0, 200.0, 600.0), a_report(901.0, 201.0, 603.0),
    )  # fmt: skip
    assert rested.multiplicity() == {NET: pytest.approx(3.0)}


def test_workers_of_a_variant_are_taken_together() -> None:
    seen = observed(
        a_report(1.0, 0.0, 0.0), a_report(1.0, 0.0, 0.0, "x"),
        a_report(2.0, 300.0, 600.0), a_report(2.0, 100.0, 600.0, "x"),
    )  # fmt: skip
    assert seen.multiplicity()[NET] == pytest.approx(3.0, rel=0.1)


def test_a_restarted_worker_begins_at_zero_and_its_old_reports_are_ignored() -> None:
    seen = Seen()
    found = seen.hear(
        a_report(1.0, 0.0, 0.0), a_report(2.0, 200.0, 600.0),
        a_report(3.0, 100.0, 300.0, incarnation=2.5), a_report(2.5, 990.0, 0.0),
    )  # fmt: skip
    assert found.multiplicity() == {NET: pytest.approx(3.0)}
    assert seen.hear(a_report(3.0, 100.0, 0.0, incarnation=2.5)) == found


def test_counts_before_the_first_report_of_a_worker_are_used_if_nothing_else_is_known() -> None:
    assert observed(a_report(50.0, 1000.0, 4000.0)).multiplicity() == {NET: 4.0}
    second = observed(a_report(50.0, 1000.0, 4000.0), a_report(50.0, 1000.0, 0.0, "x"))
    assert second.multiplicity() == {NET: 4.0}


def test_plan_preserves_factors_across_a_restart() -> None:
    seen = observed(a_report(1.0, 0.0, 0.0), a_report(2.0, 200.0, 500.0))
    assert seen.factors() == (Factor("locate/net", "read", 2.5, 200.0),)
    known = (*seen.factors(), Factor("gone/x", "read", 9.0, 500.0))
    again = Factors(EDGES).recall(known)
    assert again.multiplicity() == {NET: 2.5}
    # Earlier counts of the worker are already in the factors of the plan.
    assert Seen(again).hear(a_report(3.0, 300.0, 5000.0)).multiplicity() == {NET: 2.5}


def test_drift_is_more_than_chance_and_more_than_a_tenth() -> None:
    seen = Factors(EDGES).recall([Factor("locate/net", "read", 5.0, 400.0)])
    assert seen.drifted({NET: 4.6}) == ()  # 9 %
    assert seen.drifted({NET: 4.0}) == (NET,)
    assert seen.drifted({}) == ()
    few = Factors(EDGES).recall([Factor("locate/net", "read", 5.0, FEWEST)])
    assert few.drifted({NET: 4.3}) == ()  # 0.7 apart, of which 0.22 is one standard error


def test_only_worker_reports_change_factors() -> None:
    report = replace(a_report(2.0, 200.0, 600.0), role="ingress")
    assert observed(report) == NOTHING


@given(
    st.lists(
        st.tuples(st.floats(0.01, 30.0), st.integers(0, 500), st.floats(0.0, 9.0), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_a_factor_stays_within_what_was_seen(
    steps: list[tuple[float, int, float, bool]],
) -> None:
    now, incarnation, items, made = 1.0, 0.0, 0.0, 0.0
    seen, ratios = Seen(), []
    seen.hear(a_report(now, 0.0, 0.0))
    for seconds, more, factor, restarts in steps:
        now += seconds
        if restarts:
            incarnation, items, made = now, 0.0, 0.0
        items, made = items + more, made + more * factor
        ratios += [factor] if more else []
        seen.hear(a_report(now, items, made, incarnation=incarnation))
    for mean in seen.factors.multiplicity().values():
        assert min(ratios) - 1e-6 <= mean <= max(ratios) + 1e-6
