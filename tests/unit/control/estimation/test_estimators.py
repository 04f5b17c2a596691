"""control/estimation/estimators.py: the demand that a plan is made for."""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.demand import Demand, counted
from control.estimation.estimators import (
    ESTIMATORS,
    Horizon,
    ewma,
    fell,
    jumped,
    outgrew,
    recent,
    rose,
    trend,
)

HORIZON = Horizon(interval_s=10.0, slo_s=0.25, queue_share=0.5)
HEADROOM = log(20) / 0.25  # 12 queries/s


def seen(*per_second: float, waiting: int = 0) -> tuple[Demand, float]:
    """Return arrivals of whole seconds, from second 101 on, and the time after the last one."""
    demand, total = Demand(), 0
    demand.count(counted(100.0, {0: 0}, {}))
    now = 100.0
    for count in (per_second[0], *per_second):
        now, total = now + 1.0, total + round(count)
        demand.count(counted(now, {0: total}, {0: total - waiting}))
    return demand, now


def test_the_papers_average_weighs_the_last_second_most() -> None:
    demand, now = seen(*[50.0] * 19, 100.0)
    kept = 1.6 / 2.6
    assert ewma(demand, now, HORIZON) == pytest.approx(
        50.0 + 50.0 / sum(kept**k for k in range(20))
    )


def test_a_steady_stream_is_planned_for_with_headroom_for_chance() -> None:
    demand, now = seen(*[100.0] * 12)
    assert ewma(demand, now, HORIZON) == pytest.approx(100.0)
    assert trend(demand, now, HORIZON) == pytest.approx(100.0 + HEADROOM)


def test_headroom_is_a_number_of_queries_and_at_most_the_stream_itself() -> None:
    for rate, headroom in ((1000.0, HEADROOM), (5.0, 5.0), (0.0, 0.0)):
        demand, now = seen(*[rate] * 12)
        assert trend(demand, now, HORIZON) == pytest.approx(rate + headroom)


def test_a_rising_stream_is_planned_for_as_it_will_be_when_the_plan_takes_effect() -> None:
    rising = [100.0 + 10.0 * s for s in range(12)]
    demand, now = seen(*rising)
    slope_error = (sum(rising[2:]) / 10 / 82.5) ** 0.5
    expected = 210.0 + 3.0 * (10.0 - slope_error) + HEADROOM
    assert trend(demand, now, HORIZON) == pytest.approx(expected)


@pytest.mark.parametrize(("load_s", "ahead_s"), [(0.5, 3.0), (10.0, 12.0), (60.0, 20.0)])
def test_where_variants_load_slowly_the_estimate_looks_as_far_ahead(
    load_s: float, ahead_s: float
) -> None:
    demand, now = seen(*[100.0 + 10.0 * s for s in range(12)])
    near, far = trend(demand, now, HORIZON), trend(demand, now, replace(HORIZON, load_s=load_s))
    slope = (near - trend(demand, now, replace(HORIZON, load_s=3.0))) / -2.0
    assert far == pytest.approx(near + slope * (ahead_s - 3.0))
    assert slope > 5.0


def test_falling_stream_is_followed_without_extrapolation() -> None:
    demand, now = seen(*[300.0 - 20.0 * s for s in range(12)])
    assert trend(demand, now, HORIZON) == pytest.approx(90.0 + HEADROOM)
    demand, now = seen(*[100.0] * 6, *[10.0] * 4)
    assert trend(demand, now, HORIZON) == pytest.approx(20.0)


def test_jump_is_accepted_after_two_seconds() -> None:
    demand, now = seen(*[100.0] * 10, 200.0, 200.0)
    assert trend(demand, now, HORIZON) == pytest.approx(200.0 + HEADROOM)


def test_single_jump_is_not_extrapolated_as_a_trend() -> None:
    demand, now = seen(*[100.0] * 5, *[600.0] * 5)
    assert trend(demand, now, HORIZON) == pytest.approx(600.0 + HEADROOM)


@pytest.mark.parametrize("before", [(), (0.0,), (0.0,) * 4, (0.0,) * 9])
@pytest.mark.parametrize("whole", range(1, 10))
def test_start_of_clients_is_not_taken_for_a_slope(before: tuple[float, ...], whole: int) -> None:
    # The first query arrived within a second that counts only in part.
    demand, now = seen(*before, 55.0, *[110.0] * whole)
    assert trend(demand, now, HORIZON) == pytest.approx(110.0 + HEADROOM)


def test_a_stream_that_rises_from_its_first_second_is_planned_for_as_it_rises() -> None:
    demand, now = seen(0.0, 0.0, *[20.0 * s for s in range(1, 9)])
    assert trend(demand, now, HORIZON) > 160.0 + 3.0 * 15.0 + HEADROOM


def test_small_rise_counts_if_the_plan_cannot_carry_it() -> None:
    assert outgrew(106.0, planned_qps=100.0, capacity_qps=104.0)
    assert not outgrew(106.0, planned_qps=100.0, capacity_qps=110.0)
    assert not outgrew(104.0, planned_qps=100.0, capacity_qps=90.0)  # best effort, as planned


def test_a_backlog_is_worked_off_as_far_as_it_can_still_be_in_time() -> None:
    few, now = seen(*[100.0] * 12, waiting=20)
    assert ewma(few, now, HORIZON) == pytest.approx(102.0)
    many, now = seen(*[100.0] * 12, waiting=5000)
    assert ewma(many, now, HORIZON) == pytest.approx(102.5)  # 250 ms of arrivals


def test_estimators_use_the_current_rate_before_the_first_whole_second() -> None:
    demand = Demand()
    demand.count(counted(100.0, {0: 0}, {}))
    demand.count(counted(100.5, {0: 20}, {}))
    assert [ESTIMATORS[name](demand, 100.5, HORIZON) for name in ("recent", "ewma")] == [40.0, 40.0]
    assert trend(demand, 100.5, HORIZON) == pytest.approx(40.0 + HEADROOM)
    assert recent(Demand(), 0.0, HORIZON) == trend(Demand(), 0.0, HORIZON) == 0.0


def test_a_jump_is_more_than_chance_over_a_second_or_three() -> None:
    def jumps(*per_second: float, planned: float = 100.0) -> bool:
        demand, now = seen(*per_second)
        return jumped(demand, now, planned)

    assert jumps(100.0, 100.0, 141.0)
    assert not jumps(100.0, 100.0, 139.0)
    assert jumps(124.0, 124.0, 124.0)
    assert not jumps(122.0, 122.0, 122.0)
    assert not jumps(10_900.0, 10_900.0, 10_900.0, planned=10_000.0)
    assert jumps(11_200.0, 11_200.0, 11_200.0, planned=10_000.0)
    assert not jumps(10.0, 10.0, 10.0)
    assert not jumped(Demand(), 0.0, 0.0)


def tenths(*counts: int, each_s: float = 0.1) -> tuple[Demand, float]:
    """Return the queries between counts every ``each_s``, after a hundred times the first."""
    demand, now, total = Demand(), 100.0, 0
    demand.count(counted(now, {0: 0}, {}))
    for count in (*[counts[0]] * 100, *counts):
        now, total = now + each_s, total + count
        demand.count(counted(now, {0: total}, {}))
    return demand, now


def test_a_jump_is_seen_before_its_second_has_ended() -> None:
    demand, now = tenths(10, 24, 24)
    assert jumped(demand, now, 110.0)
    assert trend(demand, now, HORIZON) == pytest.approx(240.0 + HEADROOM)


@pytest.mark.parametrize("each_s", [0.09, 0.1, 0.13])
@pytest.mark.parametrize("part", [0.01, 0.2, 0.5, 0.8, 1.0])
def test_a_jump_is_planned_for_once_its_rate_is_known(part: float, each_s: float) -> None:
    """A plan for the queries of the interval in which the jump began was for too little."""
    first = round(part * 2000 * each_s)
    demand, now = tenths(0, first, each_s=each_s)
    assert not jumped(demand, now, 0.0)
    assert trend(demand, now, HORIZON) == 0.0
    demand, now = tenths(0, first, round(2000 * each_s), each_s=each_s)
    assert jumped(demand, now, 0.0)
    assert trend(demand, now, HORIZON) == pytest.approx(2000.0 + HEADROOM)


def test_demand_has_fallen_when_the_plan_is_clearly_too_large() -> None:
    assert fell(69.0, 100.0)
    assert not fell(71.0, 100.0)


def test_each_query_of_a_thin_stream_is_no_reason_to_replan() -> None:
    """One query every five seconds made a policy with ``ewma`` replan after each."""
    demand = Demand()
    planned, reasons = 0.0, 0
    for second in range(120):
        demand.count(counted(100.0 + second, {0: second // 5}, {}))
        expected = ewma(demand, 100.0 + second, HORIZON)
        if rose(expected, planned) or fell(expected, planned):
            planned, reasons = expected, reasons + 1
    assert reasons == 0


def test_rise_of_a_thin_stream_counts_from_a_few_queries_per_second() -> None:
    assert rose(2.0, 0.2)
    assert fell(0.2, 2.0)
    assert not rose(1.6, 0.2)


@pytest.mark.parametrize("rate", [20.0, 100.0, 1000.0])
def test_chance_alone_is_hardly_ever_taken_for_a_jump(rate: float) -> None:
    rng = np.random.default_rng(5)
    planned = rate + HEADROOM
    found = sum(jumped(*seen(*rng.poisson(rate, 3)), planned) for _ in range(2000))
    assert found <= 2


@given(st.lists(st.integers(0, 500), min_size=1, max_size=30))
def test_estimates_are_never_negative_and_the_average_stays_within_what_was_seen(
    counts: Sequence[int],
) -> None:
    demand, now = seen(*map(float, counts))
    for estimate in ESTIMATORS.values():
        assert estimate(demand, now, HORIZON) >= 0.0
    assert min(counts) - 1e-6 <= ewma(demand, now, HORIZON) <= max(counts) + 1e-6


@pytest.mark.parametrize(("few", "many"), [(4, 24), (2, 204)])
def test_arrivals_that_begin_in_the_first_second_count_once_their_rate_is_known(
    few: int, many: int
) -> None:
    demand, total = Demand(), 0
    for tenth, came in enumerate((0, 0, 0, few, many)):
        assert trend(demand, 100.0 + tenth / 10, HORIZON) == 0.0
        total += came
        demand.count(counted(100.0 + tenth / 10, {0: total}, {}))
    assert trend(demand, 100.4, HORIZON) == pytest.approx(10.0 * many + HEADROOM)


def test_the_second_of_the_first_queries_is_no_rate_when_it_ends_soon_after_them() -> None:
    demand, total = Demand(), 0
    for tenth, came in enumerate([0] * 60 + [146, 200]):
        now, total = 100.04 + tenth / 10, total + came
        demand.count(counted(now, {0: total}, {}))
        assert tenth > 60 or trend(demand, now, HORIZON) == 0.0
    assert trend(demand, now, HORIZON) == pytest.approx(2000.0 + HEADROOM)
