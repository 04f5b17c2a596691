"""control/estimation/seen_capacity.py: the part of a plan's capacity that is available."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.ended_queries import ClassEnds, Window
from control.estimation.seen_capacity import (
    EASED,
    EASED_TO,
    KEPT,
    LEAST,
    PROBE,
    RETURN,
    SeenCapacity,
)

Second = tuple[int, int, int]  # queries answered in time, missed, refused


def shares(
    seconds: Iterable[Second],
    capacity: SeenCapacity | None = None,
    *,
    tight: float = 0.0,
    late: float = 0.5,
    loading: bool = False,
    tight_bulk: float = 0.0,
) -> list[float]:
    """Return the share after each second. ``tight`` is the part of tight answers, ``late`` the
    part of late answers among the misses; the other misses were dropped. ``tight_bulk`` is the
    part of tight answers in a class that has a fifth of all answers."""
    capacity = capacity or SeenCapacity()
    found = []
    for good, missed, refused in seconds:
        window = Window(
            0.0, 1.0, good=good, missed=missed, late=late * missed, refused=refused,
            tight=tight * good, loading=loading,
            classes={"bulk": ClassEnds(0.2 * good, 0.2 * good * tight_bulk)},
        )  # fmt: skip
        capacity.judge(window)
        found.append(capacity.share)
    return found


def serves(capacity: SeenCapacity, planned_qps: float, *, final: bool = False) -> None:
    """Put a plan in force that admits the present share of its capacity."""
    capacity.serves(planned_qps, planned_qps * capacity.share, final=final)


def test_plan_that_serves_its_capacity_is_admitted_in_full() -> None:
    assert set(shares([(98, 2, 300)] * 20)) == {1.0}
    assert set(shares([(0, 0, 0)] * 20)) == {1.0}


def test_a_few_misses_in_every_second_ease_admission_by_a_twentieth() -> None:
    found = shares([(94, 6, 300)] * 5 + [(100, 0, 300)])
    assert found == pytest.approx([0.98, 0.98**2, 0.95, 0.95, 0.95, 0.95 * PROBE[0]])


def test_admission_far_below_the_observed_share_is_not_eased() -> None:
    capacity = SeenCapacity()
    capacity.serves(100.0, 50.0, final=False)
    assert set(shares([(94, 6, 300)] * 5, capacity=capacity)) == {1.0}


def test_a_few_misses_are_not_put_down_to_admission_where_nothing_is_refused() -> None:
    assert set(shares([(94, 6, 0)] * 20)) == {1.0}


def test_fewer_misses_ease_admission_if_a_queue_stands_in_a_class() -> None:
    seconds = [(98, 2, 300)] * 2 + [(99, 1, 300)] * 2
    standing, loose = (shares(seconds, tight_bulk=tight) for tight in (0.6, 0.4))
    assert standing == pytest.approx([EASED, EASED**2, EASED**2, EASED**2])
    assert set(loose) == {1.0}


def test_queue_in_a_class_is_not_put_down_to_admission_where_nothing_is_refused() -> None:
    assert set(shares([(98, 2, 0)] * 20, tight_bulk=0.9)) == {1.0}


def test_a_few_misses_for_a_second_are_no_overload() -> None:
    assert set(shares([(100, 0, 0)] * 3 + [(88, 12, 0)] + [(100, 0, 0)] * 3)) == {1.0}


def test_two_seconds_of_mostly_missed_queries_drain_the_queues_and_reduce_admission() -> None:
    found = shares([(20, 80, 50)] * 2 + [(100, 0, 50)] * 3)
    assert found[:4] == pytest.approx([1.0, KEPT / 2, KEPT, KEPT * PROBE[0]])


def test_some_misses_in_two_windows_reduce_admission_without_a_pause() -> None:
    found = shares([(80, 20, 50)] * 5)
    assert found == pytest.approx([1.0, KEPT, KEPT, KEPT**2, KEPT**2])


@pytest.mark.parametrize(("late", "served"), [(0.0, 80 + 20 / 2), (1.0, 100)])
def test_admission_falls_to_the_served_rate_if_reductions_do_not_help(
    late: float, served: float
) -> None:
    """The plan is for 1,000 queries/s and a shared machine serves a tenth; half of the dropped
    queries count as served."""
    capacity = SeenCapacity()
    serves(capacity, 1000.0)
    *before, share = shares([(80, 20, 0)] * 6, capacity, late=late)
    assert before[-1] == pytest.approx(KEPT**2)
    assert share * 1000.0 == pytest.approx(served)


def test_standing_queue_is_drained() -> None:
    seconds = [(80, 20, 50)] * 5 + [(100, 0, 50)] * 6
    loose, standing = shares(seconds, tight=0.4), shares(seconds, tight=0.6)
    low = KEPT**2
    assert loose[4:7] == pytest.approx([low, low * PROBE[0], low * PROBE[0] ** 3])
    assert standing[4:7] == pytest.approx([low, low * EASED, low * EASED**2])
    assert standing[7:] == pytest.approx([low * EASED_TO] * 4)


@pytest.mark.parametrize(
    ("final", "tight", "loading"),
    [(True, 0.6, False), (False, 0.6, False), (True, 0.4, False), (True, 0.6, True)],
)
def test_admission_falls_to_the_served_rate_at_once_if_no_plan_would_help(
    final: bool, tight: float, loading: bool
) -> None:
    """A queue stands, no worker loads a variant, and no plan would serve more."""
    capacity = SeenCapacity()
    serves(capacity, 1000.0, final=final)
    found = shares([(80, 20, 0)] * 2, capacity, tight=tight, loading=loading)
    expected = 0.095 if (final, tight, loading) == (True, 0.6, False) else KEPT
    assert found[1] == pytest.approx(expected)


def test_admission_probes_beyond_the_known_share_except_under_a_larger_plan() -> None:
    low, clean = [(80, 20, 50)] * 9, [(100, 0, 50)] * 3
    first, second = SeenCapacity(), SeenCapacity()
    for capacity in (first, second):
        serves(capacity, 20.0)
        shares(low, capacity)
    serves(first, 20.4)
    serves(second, 22.0)
    for capacity, growth in ((first, PROBE[0]), (second, RETURN[0])):
        grown = [capacity.share, *shares(clean, capacity)]
        assert [b / a for a, b in pairwise(grown)] == pytest.approx([growth, growth**2, growth**3])


def test_a_plan_that_admits_less_is_judged_by_the_queries_that_it_admits() -> None:
    capacity = SeenCapacity()
    serves(capacity, 100.0)
    assert shares([(80, 20, 0)], capacity) == [1.0]
    capacity.serves(100.0, 80.0, final=False)
    after = shares([(80, 20, 0)] * 3, capacity)
    assert after == pytest.approx([1.0, 1.0, 0.8 * KEPT])


def test_a_plan_with_more_capacity_is_not_judged_by_the_queries_of_the_one_before() -> None:
    """At a cold start a small plan is in force until models are loaded; its misses are not the
    next plan's."""
    capacity = SeenCapacity()
    serves(capacity, 50.0)
    assert shares([(30, 20, 0)], capacity) == [1.0]
    serves(capacity, 120.0)
    assert shares([(40, 20, 0), (110, 10, 0)], capacity) == [1.0, 1.0]
    after = shares([(60, 60, 0)] * 2, capacity)
    assert after == pytest.approx([1.0, KEPT * 1.0])


def test_admission_recovers_slowly_under_load_and_quickly_without_load() -> None:
    after = [(20, 80, 50)] * 12
    busy, calm = shares([*after, *[(100, 0, 50)] * 4]), shares([*after, *[(100, 0, 0)] * 4])
    assert busy[11] == calm[11] < 0.8
    assert busy[11] < busy[-1] < calm[-1] == 1.0


def test_added_capacity_is_trusted_and_missing_capacity_stays_missing() -> None:
    capacity = SeenCapacity()
    serves(capacity, 100.0)
    (*_, low) = shares([(20, 80, 50)] * 12 + [(100, 0, 50)] * 2, capacity)
    for planned_qps in (100.0, 50.0, 100.0, 300.0, 50.0, 300.0):
        before = capacity.share
        serves(capacity, planned_qps)
        raised = capacity.share != pytest.approx(before)
        assert raised is (planned_qps == 300.0 and before == low)
    assert capacity.share == pytest.approx((low * 100.0 + 200.0) / 300.0)


def test_a_share_that_fell_before_any_plan_was_known_is_kept_at_the_first_one() -> None:
    """A new control app takes over and keeps the plan of its predecessor in force."""
    capacity = SeenCapacity()
    (*_, low) = shares([(20, 80, 50)] * 4 + [(100, 0, 50)], capacity)
    serves(capacity, 100.0)
    assert capacity.share == low < 1.0


@given(st.lists(st.tuples(*[st.integers(0, 300)] * 3, st.floats(1.0, 500.0)), max_size=40))
def test_the_share_stays_between_its_bounds(seconds: list[tuple[int, int, int, float]]) -> None:
    capacity = SeenCapacity()
    for at, (good, missed, refused, planned_qps) in enumerate(seconds):
        serves(capacity, planned_qps, final=at % 3 == 0)
        (share,) = shares([(good, missed, refused)], capacity, tight=0.4 + 0.2 * (at % 2))
        assert LEAST / 2 <= share <= 1.0
