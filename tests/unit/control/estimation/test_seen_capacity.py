"""control/estimation/seen_capacity.py: how much of a plan's capacity is there?"""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.seen_capacity import (
    EASED,
    EASED_TO,
    KEPT,
    LEAST,
    PROBE,
    RETURN,
    SeenCapacity,
)
from schemas.enumerations import NodeState
from schemas.records import Report

Second = tuple[int, ...]  # queries answered in time, missed, refused[, missed without a promise]


def shares(
    seconds: Iterable[Second],
    capacity: SeenCapacity | None = None,
    tight: float = 0.0,
    late: float = 0.5,
    since_s: float = 0.0,
) -> list[float]:
    """Return the share after each second, of which egress reports five times; ``tight`` is the part
    of the answers that was, ``late`` that of the misses, which else were dropped. Where the seconds
    follow others they begin at ``since_s``, with counts of 0."""
    capacity = capacity or SeenCapacity()
    good = missed = refused = hopeless = 0.0
    at_s = since_s
    if since_s > 0:
        capacity.observe(report(since_s, {}))
    found = []
    for a, b, c, *d in seconds:
        for _ in range(5):
            # Whole numbers, so that no share is off by a rounding: five times as many a second.
            at_s, good, missed, refused = at_s + 0.2, good + a, missed + b, refused + c
            hopeless += sum(d)
            ended = missed + hopeless
            counts = {"answered": good, "late": late * ended, "dropped": (1 - late) * ended}
            counts["refused"] = refused
            counts |= {"unpromised": hopeless, "tight": tight * good}
            capacity.observe(report(at_s, counts))
        found.append(capacity.share)
    return found


def serves(capacity: SeenCapacity, planned_qps: float, *, final: bool = False) -> None:
    """Put a plan in force that admits the present share of its capacity."""
    capacity.serves(planned_qps, planned_qps * capacity.share, final=final)


def report(
    at_s: float, counts: dict[str, float], role: str = "egress", incarnation: float = 1.0,
    state: NodeState = NodeState.READY, node: str = "e",
) -> Report:  # fmt: skip
    return Report(
        node=node, role=role, pipeline="p", epoch=1, incarnation=incarnation, sent_s=at_s,
        state=state, counts=counts,
    )  # fmt: skip


def test_a_plan_that_keeps_its_word_is_left_alone() -> None:
    assert set(shares([(100, 5, 300)] * 20)) == {1.0}
    assert set(shares([(0, 0, 0)] * 20)) == {1.0}


def test_a_few_misses_for_a_second_are_no_overload() -> None:
    assert set(shares([(100, 0, 0)] * 3 + [(88, 12, 0)] + [(100, 0, 0)] * 3)) == {1.0}


def test_most_queries_missed_for_two_seconds_empty_the_queues_and_less_is_admitted_then() -> None:
    found = shares([(20, 80, 50)] * 2 + [(100, 0, 50)] * 3)
    assert found[1:] == pytest.approx([1.0, KEPT / 2, KEPT, KEPT * PROBE[0]])


def test_some_missed_in_two_windows_admit_less_without_a_pause() -> None:
    found = shares([(80, 20, 50)] * 5)
    assert found == pytest.approx([1.0, 1.0, KEPT, KEPT, KEPT**2])


@pytest.mark.parametrize(("late", "served"), [(0.0, 80 + 20 / 2), (1.0, 100)])
def test_where_that_does_not_help_what_is_served_is_admitted(late: float, served: float) -> None:
    """A plan for 1,000 queries/s, of which a shared machine serves a tenth; of the dropped ones
    half count as served."""
    capacity = SeenCapacity()
    serves(capacity, 5000.0)
    *before, share = shares([(80, 20, 0)] * 7, capacity, late=late)
    assert before[-1] == pytest.approx(KEPT**2)
    assert share * 1000.0 == pytest.approx(served, rel=0.2)


def test_a_queue_that_stands_is_worked_off() -> None:
    seconds = [(80, 20, 50)] * 5 + [(100, 0, 50)] * 6
    loose, standing = shares(seconds, tight=0.4), shares(seconds, tight=0.6)
    low = KEPT**2
    assert loose[5:8] == pytest.approx([low, low * PROBE[0], low * PROBE[0] ** 3])
    assert standing[5:8] == pytest.approx([low, low * EASED, low * EASED**2])
    assert standing[8:] == pytest.approx([low * EASED_TO] * 3)


@pytest.mark.parametrize(
    ("final", "tight", "loads"),
    [(True, 0.6, False), (False, 0.6, False), (True, 0.4, False), (True, 0.6, True)],
)
def test_what_is_served_is_admitted_at_once_where_nothing_else_helps(
    final: bool, tight: float, loads: bool
) -> None:
    """A queue stands, no worker loads, and no plan would bring more."""
    capacity = SeenCapacity()
    serves(capacity, 5000.0, final=final)
    if loads:
        loading = NodeState.LOADING
        capacity.observe(report(2.5, {}, role="worker", state=loading, node="w"))
    found = shares([(80, 20, 0)] * 3, capacity, tight=tight)
    expected = 0.1 if (final, tight, loads) == (True, 0.6, False) else KEPT
    assert found[2] == pytest.approx(expected, rel=0.2)


def test_beyond_what_is_known_admission_probes_and_a_larger_plan_is_not_known() -> None:
    low, clean = [(80, 20, 50)] * 9, [(100, 0, 50)] * 3
    first, second = SeenCapacity(), SeenCapacity()
    for capacity in (first, second):
        serves(capacity, 100.0)
        shares(low, capacity)
    serves(first, 102.0)
    serves(second, 110.0)
    slow, fast = (shares(clean, each, since_s=10.0) for each in (first, second))
    assert [b / a for a, b in pairwise(slow)] == pytest.approx([PROBE[0], PROBE[0] ** 2])
    assert [b / a for a, b in pairwise(fast)] == pytest.approx([RETURN[0], RETURN[0] ** 2])


def test_a_plan_that_admits_less_is_judged_by_the_queries_that_it_admits() -> None:
    capacity = SeenCapacity()
    serves(capacity, 100.0)
    assert shares([(80, 20, 0)] * 2, capacity)[-1] == 1.0
    capacity.serves(100.0, 80.0, final=False)
    after = shares([(80, 20, 0)] * 2, capacity, since_s=3.0)
    assert after == pytest.approx([1.0, 0.8 * KEPT])


def test_what_is_admitted_grows_back_slowly_under_load_and_fast_without() -> None:
    after = [(20, 80, 50)] * 12
    busy, calm = shares([*after, *[(100, 0, 50)] * 4]), shares([*after, *[(100, 0, 0)] * 4])
    assert busy[11] == calm[11] < 0.8
    assert busy[11] < busy[-1] < calm[-1] == 1.0


def test_capacity_that_a_plan_adds_is_trusted_and_what_was_missing_stays_so() -> None:
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
    """As after a control app that takes over from another one whose plan stays in force."""
    capacity = SeenCapacity()
    (*_, low) = shares([(20, 80, 50)] * 4 + [(100, 0, 50)], capacity)
    serves(capacity, 100.0)
    assert capacity.share == low < 1.0


def test_workers_and_earlier_lives_of_an_egress_say_nothing() -> None:
    capacity = SeenCapacity()
    for at in range(30):
        capacity.observe(report(at * 1.0, {"late": 100.0 * at}, role="worker"))
        capacity.observe(report(at * 1.0, {"answered": 10.0 * at}, incarnation=5.0))
        capacity.observe(report(at * 1.0, {"late": 100.0 * at}, incarnation=2.0))
    assert capacity.share == 1.0


@given(st.lists(st.tuples(*[st.integers(0, 300)] * 3), max_size=40), st.integers(0, 10_000))
def test_misses_that_the_plan_did_not_promise_to_avoid_change_nothing(
    seconds: list[Second], hopeless: int
) -> None:
    assert shares([(*second, hopeless) for second in seconds]) == pytest.approx(shares(seconds))


@given(st.lists(st.tuples(*[st.integers(0, 300)] * 3, st.floats(1.0, 500.0)), max_size=40))
def test_the_share_stays_between_its_bounds(seconds: list[tuple[int, int, int, float]]) -> None:
    capacity = SeenCapacity()
    for at, (*second, planned_qps) in enumerate(seconds):
        serves(capacity, planned_qps, final=at % 3 == 0)
        (share,) = shares([tuple(second)], capacity, tight=0.4 + 0.2 * (at % 2), since_s=1 + 2 * at)
        assert LEAST / 2 <= share <= 1.0
