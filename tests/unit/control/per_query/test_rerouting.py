"""control/per_query/rerouting.py: workers that a late item may go to instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.per_query.rerouting import NOWHERE, Behind, Junction, junctions, least_behind
from schemas.records import Route
from tests.builders import a_pipeline

ALONE = Behind(hop_s=0.001, compute_share=0.5, rest_s=0.0, rest_hops_s=0.001, burst_s=0.3)
SLOW = Route("read", 0, 1.0, "", 0.0, 0.04)  # always next in turn
MIDDLE = Route("read", 1, 0.0, "", 10.0, 0.02)
FAST = Route("read", 2, 0.0, "", 10.0, 0.01)
THREE = (SLOW, MIDDLE, FAST)


def a_junction(*routes: Route, share: int = 1) -> Junction:
    return Junction(routes or THREE, ALONE, share, 0.0)


# ---------------------------------------------------------------------- the paper's


def test_item_within_its_budget_goes_to_the_next_worker_in_turn() -> None:
    assert a_junction().gap(0.0, 0.1, 0.0) == (0, 0)


def test_late_item_takes_the_most_accurate_worker_that_makes_up_the_delay() -> None:
    assert a_junction().gap(0.02, 0.1, 0.0) == (0, 1)
    assert a_junction().gap(0.021, 0.1, 0.0) == (0, 2)
    assert a_junction().gap(0.031, 0.1, 0.0) == (0, NOWHERE)


def test_spare_capacity_is_used_up_and_comes_again() -> None:
    junction = a_junction()
    slots = [junction.gap(0.01, 0.1, 0.0)[1] for _ in range(7)]
    assert slots == [1, 1, 1, 2, 2, 2, NOWHERE]  # 10 items/s x 0.3 s each
    assert junction.gap(0.01, 0.1, 0.1)[1] == 1
    two = a_junction(share=2)
    assert [two.gap(0.01, 0.1, 0.0)[1] for _ in range(3)] == [1, 2, NOWHERE]
    assert [two.gap(0.01, 0.1, now)[1] for now in (0.05, 0.11)] == [NOWHERE, 1]  # 5 items/s
    little = a_junction(SLOW, replace(MIDDLE, spare_qps=0.5))
    assert [little.gap(0.01, 0.1, 0.0)[1] for _ in range(2)] == [1, NOWHERE]


def test_a_new_plan_continues_the_turns() -> None:
    both = (replace(SLOW, share=0.5), replace(MIDDLE, share=0.5))
    before, after = a_junction(*both), a_junction(*both)
    assert before.gap(0.0, 0.1, 0.0) == (0, 0)
    after.follow(before, 0.0)
    assert after.gap(0.0, 0.1, 0.0) == (1, 1)


def test_a_new_plan_fills_no_spare_capacity_that_was_used_up() -> None:
    before, after = a_junction(), a_junction(SLOW, MIDDLE, replace(FAST, slot=3))
    for _ in range(6):
        before.gap(0.01, 0.1, 0.0)  # slots 1 and 2 take three items each
    after.follow(before, 0.0)
    assert [after.gap(0.01, 0.1, 0.0)[1] for _ in range(4)] == [3, 3, 3, NOWHERE]


# ---------------------------------------------------------------------- by the deadline


def test_item_that_meets_its_deadline_goes_in_turn_even_if_late_at_the_task() -> None:
    assert a_junction().in_time(0.5, 0.082, 0.0) == (0, 0)


def test_item_that_would_miss_its_deadline_takes_the_most_accurate_worker_in_time() -> None:
    assert a_junction().in_time(0.0, 0.081, 0.0) == (0, 1)
    assert a_junction().in_time(0.0, 0.041, 0.0) == (0, 2)


def test_fastest_worker_that_fits_is_taken_if_no_worker_is_on_track() -> None:
    assert a_junction().in_time(0.0, 0.021, 0.0) == (0, 2)
    assert a_junction().in_time(0.0, 0.012, 0.0) == (0, 2)
    assert a_junction().in_time(0.0, 0.0119, 0.0) == (0, NOWHERE)


def test_by_the_deadline_too_spare_capacity_is_used_up() -> None:
    on_track, fitting = a_junction(), a_junction()
    assert [on_track.in_time(0.0, 0.081, 0.0)[1] for _ in range(7)] == [1, 1, 1, 2, 2, 2, 0]
    assert [fitting.in_time(0.0, 0.0415, 0.0)[1] for _ in range(7)] == [2, 2, 2, 1, 1, 1, NOWHERE]


def test_worker_in_turn_is_taken_if_it_fits_and_no_worker_has_spare_capacity() -> None:
    crowded = tuple(replace(route, spare_qps=0.0) for route in THREE)
    assert a_junction(*crowded).in_time(0.0, 0.042, 0.0) == (0, 0)
    assert a_junction(*crowded).in_time(0.0, 0.0419, 0.0) == (0, NOWHERE)


def test_worker_in_turn_that_fits_is_taken_before_a_slower_one_that_fits() -> None:
    turn, slower = Route("read", 0, 1.0, "", 0.0, 0.01), Route("read", 1, 0.0, "", 10.0, 0.015)
    assert a_junction(turn, slower).in_time(0.0, 0.0219, 0.0) == (0, 0)  # neither is on track


def test_routes_without_latencies_do_not_reroute() -> None:
    junction = a_junction(Route("read", 0, 1.0))
    assert junction.in_time(0.1, 0.01, 0.0) == (0, 0)


@given(
    routes=st.lists(
        st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 50.0), st.floats(0.001, 0.1)),
        min_size=1,
        max_size=6,
    ),
    late_s=st.floats(-0.1, 0.2),
    left_s=st.floats(-0.1, 0.5),
)
def test_item_is_never_sent_to_a_worker_that_cannot_be_in_time(
    routes: list[tuple[float, float, float]], late_s: float, left_s: float
) -> None:
    listed = [
        Route("read", slot, share + 0.01, "", spare, latency)
        for slot, (share, spare, latency) in enumerate(routes)
    ]
    turn, slot = Junction(listed, ALONE, 1, 0.0).in_time(late_s, left_s, 0.0)
    if slot != NOWHERE:
        assert ALONE.bare_s(listed[slot].latency_s) <= left_s
    turn, slot = Junction(listed, ALONE, 1, 0.0).gap(late_s, left_s, 0.0)
    if late_s > 0 and slot != NOWHERE:
        assert listed[slot].latency_s <= listed[turn].latency_s - late_s


# ---------------------------------------------------------------------- what is behind


def test_time_behind_a_task_is_the_shortest_path_to_an_answer() -> None:
    tree = a_pipeline({"a": ["b", "c"], "b": ["d"], "c": [], "d": []}, comm_s=0.001)
    routes = [
        Route("b", 0, 1.0, "", 0.0, 0.01), Route("c", 0, 1.0, "", 0.0, 0.08),
        Route("d", 0, 0.5, "", 0.0, 0.03), Route("d", 1, 0.5, "", 0.0, 0.02),
    ]  # fmt: skip
    assert least_behind(routes, tree, "a") == (pytest.approx(0.03), 3)  # b, d, egress
    assert least_behind(routes, tree, "b") == (0.02, 2)
    assert least_behind(routes, tree, "d") == (0.0, 1)
    ways = junctions(routes, "a/v", tree, 0.3, 1, 0.0)
    assert list(ways) == ["b", "c"]
    # b: (10 + 20) / 0.5 + 3 hops
    assert ways["b"].in_time(0.0, 0.0631, 0.0) == (0, 0)
    assert ways["b"].in_time(0.0, 0.0329, 0.0) == (0, NOWHERE)


def test_a_sender_with_a_table_of_its_own_follows_it() -> None:
    pipeline = a_pipeline({"locate": ["read"], "read": []})
    routes = (*THREE, replace(FAST, share=1.0, source="locate/v"))
    assert junctions(routes, "locate/v", pipeline, 0.3, 1, 0.0)["read"].gap(0, 1, 0) == (2, 2)
    others = junctions(routes, "locate/w", pipeline, 0.3, 1, 0.0)["read"]
    assert [others.gap(0, 1, 0) for _ in range(4)] == [(0, 0)] * 4


def test_a_sender_follows_the_routes_of_each_child_task() -> None:
    pipeline = a_pipeline({"locate": ["read", "sort"], "read": [], "sort": []})
    sort = Route("sort", 8, 1.0)
    routes = (SLOW, sort, replace(sort, slot=7, source="locate/v"))
    turns = [
        {child: way.gap(0.0, 1.0, 0.0)[0] for child, way in found.items()}
        for found in (junctions(routes, x, pipeline, 0.3, 1, 0.0) for x in ("locate/v", "locate/w"))
    ]
    assert turns == [{"read": 0, "sort": 7}, {"read": 0, "sort": 8}]


@pytest.mark.parametrize(("senders", "items"), [(0, 6), (1, 6), (3, 2)])
def test_the_senders_of_a_task_share_its_spare_capacity(senders: int, items: int) -> None:
    pipeline = a_pipeline({"locate": ["read"], "read": []})
    routes = (SLOW, replace(MIDDLE, spare_qps=20.0))
    way = junctions(routes, "locate/v", pipeline, 0.3, senders, 0.0)["read"]
    assert [way.gap(0.01, 0.1, 0.0)[1] for _ in range(8)].count(1) == items


def test_a_task_that_nobody_serves_takes_no_time_behind_another() -> None:
    assert least_behind([], a_pipeline({"locate": ["read"], "read": []}), "locate") == (0.0, 2)
