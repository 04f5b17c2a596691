"""control/estimation/demand.py: demand from ingress reports and from the input topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from control.estimation.demand import Demand, counted
from schemas.effects import Counted
from schemas.records import Report


def a_report(
    sent_s: float, arrived: float, node: str = "in-0", incarnation: float = 100.0
) -> Report:
    return Report(
        node=node, role="ingress", pipeline="p", epoch=1, incarnation=incarnation,
        sent_s=sent_s, state="ready", counts={"arrived": arrived},
    )  # fmt: skip


def observed(*readings: Report | Counted) -> Demand:
    demand = Demand()
    for each in readings:
        if isinstance(each, Counted):
            demand.count(each)
        else:
            demand.observe(each)
    return demand


def test_demand_is_unknown_before_two_readings() -> None:
    assert observed(a_report(105.0, 7_000.0)).rate_qps(105.0) == 0.0


def test_a_steady_stream_is_measured_exactly() -> None:
    demand = observed(*(a_report(105.0 + step, 40.0 * step) for step in range(4)))
    assert demand.rate_qps(108.0) == pytest.approx(40.0)


def test_a_step_is_followed_within_seconds() -> None:
    reports = [a_report(105.0, 0.0), a_report(106.0, 10.0)]
    reports += [a_report(106.0 + step, 10.0 + 100.0 * step) for step in range(1, 9)]
    assert 97.0 < observed(*reports).rate_qps(114.0) < 100.0


def test_ingresses_add_up_until_one_falls_silent() -> None:
    demand = observed(
        a_report(105.0, 0.0), a_report(105.0, 0.0, "in-1"),
        a_report(106.0, 30.0), a_report(109.0, 200.0, "in-1"),
    )  # fmt: skip
    assert demand.rate_qps(107.0) == pytest.approx(80.0)
    assert demand.rate_qps(109.0) == pytest.approx(50.0)


def test_a_restart_begins_at_zero_and_late_reports_of_the_old_process_are_ignored() -> None:
    demand = observed(
        a_report(105.0, 1_000.0), a_report(106.0, 1_020.0),
        a_report(108.0, 20.0, incarnation=107.0), a_report(106.5, 1_030.0),
    )  # fmt: skip
    assert demand.rate_qps(108.0) == pytest.approx(20.0)


def test_worker_reports_do_not_count_as_demand() -> None:
    report = Report(
        node="w", role="worker", pipeline="p", epoch=1, incarnation=1.0, sent_s=2.0, state="idle",
        counts={"arrived": 5.0},
    )  # fmt: skip
    assert observed(report) == Demand()


@given(
    st.lists(
        st.tuples(st.floats(0.01, 1.0), st.integers(0, 500), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_the_estimate_stays_within_what_was_seen(steps: list[tuple[float, int, bool]]) -> None:
    now, arrived, incarnation = 100.0, 0, 100.0
    demand, rates = Demand(), [0.0]
    for seconds, more, restarts in steps:
        if restarts:
            incarnation, arrived = now, 0
        now, arrived = now + seconds, arrived + more
        rates.append(more / seconds)
        demand.observe(a_report(now, arrived, incarnation=incarnation))
        assert 0.0 <= demand.rate_qps(now) <= max(rates) * (1 + 1e-6)


# ---------------------------------------------------------------------- the input topic


def the_topic(at_s: float, *ends: int, done: int | None = None) -> Counted:
    committed = {} if done is None else {0: done}
    return counted(at_s, dict(enumerate(ends)), committed)


def test_the_input_topic_counts_what_its_partitions_hold_and_what_waits() -> None:
    assert the_topic(5.0, 70, 30, done=66) == Counted(arrived=100, waiting=4, at_s=5.0)


def test_input_topic_counts_take_precedence_over_ingress_counts() -> None:
    demand = observed(
        a_report(100.0, 0.0), a_report(102.0, 40.0), the_topic(100.0, 0), the_topic(102.0, 90, 50),
    )  # fmt: skip
    assert demand.rate_qps(102.0) == pytest.approx(70.0)
    assert observed(a_report(105.0, 100.0), a_report(106.0, 120.0)).waiting(106.0) == 0.0
    # Its offsets are no longer read.
    later = observed(*(a_report(100.0 + s, 20.0 * s) for s in range(6)), the_topic(101.0, 9))
    assert later.rate_qps(105.0) == pytest.approx(20.0)


def test_readings_are_spread_over_the_seconds_they_took() -> None:
    demand = observed(
        the_topic(100.5, 0), the_topic(101.5, 10), the_topic(103.5, 50), the_topic(104.0, 60),
        the_topic(104.25, 70),
    )  # fmt: skip
    # Only half of second 100 was observed, and second 104 has not ended.
    assert demand.by_second(104.3) == (pytest.approx(15.0), 20.0, 20.0)
    assert demand.by_second(200.0) == ()


def test_seconds_are_those_that_every_ingress_has_seen() -> None:
    demand = observed(
        a_report(100.0, 0.0), a_report(100.0, 0.0, "in-1"),
        a_report(103.0, 30.0), a_report(102.0, 10.0, "in-1"),
    )  # fmt: skip
    assert demand.by_second(103.0) == (pytest.approx(15.0),)


def test_recreated_topic_does_not_cause_negative_demand() -> None:
    demand = observed(the_topic(100.0, 900), the_topic(101.0, 10), the_topic(102.0, 30))
    assert demand.rate_qps(102.0) >= 0.0
    assert min(demand.by_second(102.0)) >= 0.0


def with_markers(missing: float, at_once: float = 0.0) -> float:
    """Return the demand measured of 40 queries/s, with so many offsets per query that hold none."""
    seen: list[Report | Counted] = []
    for step in range(100):
        at_s, queries = 105.0 + step / 5, 8.0 * step
        skipped = queries * missing + (at_once if step > 50 else 0.0)
        counts = {"arrived": queries, "missing": skipped}
        seen.append(structs.replace(a_report(at_s, queries), counts=counts))
        offsets = int(queries * (1 + missing))
        seen.append(Counted(arrived=offsets, waiting=offsets - int(queries), at_s=at_s))
    return observed(*seen).rate_qps(at_s)


@pytest.mark.parametrize("missing", [0.0, 0.25, 1.0])
def test_markers_of_transactions_are_no_queries(missing: float) -> None:
    """A producer that wrote each query in a transaction of its own counted twice."""
    assert with_markers(missing) == pytest.approx(40.0, rel=0.02)


def test_records_that_the_broker_has_deleted_take_nothing_from_the_demand() -> None:
    assert with_markers(0.0, at_once=1e6) == pytest.approx(40.0, rel=0.02)
