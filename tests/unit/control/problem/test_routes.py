"""control/problem/routes.py: fill the most accurate workers first, up to capacity."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.problem.routes import (
    BALANCED,
    PAPER,
    FillOrder,
    Receiver,
    most_accurate_first,
    too_slow,
)
from schemas.records import Route
from tests.builders import a_pipeline

TWO = a_pipeline({"locate": ["read"], "read": []})
THREE = a_pipeline({"a": ["b", "c"], "b": ["d"], "c": [], "d": []})


def a_receiver(
    variant: str, slot: int, accuracy: float, capacity_qps: float, latency_s: float = 0.01
) -> Receiver:
    return Receiver(
        variant=variant, slot=slot, accuracy=accuracy, capacity_qps=capacity_qps,
        latency_s=latency_s,
    )  # fmt: skip


GOOD = a_receiver("read/good", 0, 0.9, 40.0, 0.03)
OTHER_GOOD = a_receiver("read/good", 1, 0.9, 40.0, 0.03)
FAST = a_receiver("read/fast", 2, 0.6, 100.0)
NET = a_receiver("locate/net", 0, 0.9, 50.0)
SIMPLE = a_receiver("locate/simple", 1, 0.7, 50.0)


def table(routes: tuple[Route, ...], task: str, source: str = "") -> dict[int, float]:
    """Return shares by slot."""
    return {r.slot: pytest.approx(r.share) for r in routes if (r.task, r.source) == (task, source)}


def spare(routes: tuple[Route, ...], task: str) -> dict[int, float]:
    return {r.slot: pytest.approx(r.spare_qps) for r in routes if r.task == task}


def routed(
    demand_qps: float, filling: FillOrder, *read: Receiver, factor: float = 1.0
) -> tuple[Route, ...]:
    return most_accurate_first(
        TWO, {"locate": [NET], "read": read}, demand_qps, lambda v, c: factor, filling
    )


def test_the_paper_fills_one_worker_after_the_other_in_falling_accuracy() -> None:
    routes = routed(60.0, PAPER, FAST, OTHER_GOOD, GOOD)
    assert [(r.task, r.slot, r.source) for r in routes] == [
        ("locate", 0, ""), ("read", 0, ""), ("read", 1, ""), ("read", 2, ""),
    ]  # fmt: skip
    assert table(routes, "read") == {0: 2 / 3, 1: 1 / 3, 2: 0.0}
    assert spare(routes, "read") == {0: 0.0, 1: 20.0, 2: 100.0}
    assert [r.latency_s for r in routes if r.task == "read"] == [0.03, 0.03, 0.01]


def test_workers_of_equal_accuracy_share_evenly_up_to_a_part_of_their_capacity() -> None:
    filling = replace(BALANCED, up_to=0.9)
    assert table(routed(60.0, filling, GOOD, OTHER_GOOD, FAST), "read") == {0: 0.5, 1: 0.5, 2: 0.0}
    more = routed(100.0, filling, GOOD, OTHER_GOOD, FAST)
    assert table(more, "read") == {0: 0.36, 1: 0.36, 2: 0.28}
    # All workers are at 90 % with 162 items/s; the remaining capacity takes the rest.
    most = routed(171.0, filling, GOOD, OTHER_GOOD, FAST)
    assert table(most, "read") == {0: 38 / 171, 1: 38 / 171, 2: 95 / 171}


def test_excess_load_is_spread_by_capacity() -> None:
    for filling in (PAPER, BALANCED):
        routes = routed(360.0, filling, GOOD, OTHER_GOOD, FAST)
        assert table(routes, "read") == {0: 80 / 360, 1: 80 / 360, 2: 200 / 360}
        assert spare(routes, "read") == {0: 0.0, 1: 0.0, 2: 0.0}


def test_a_factor_multiplies_what_a_variant_sends_on() -> None:
    routes = routed(20.0, PAPER, GOOD, FAST, factor=5.0)
    assert table(routes, "read") == {0: 0.4, 2: 0.6}


def test_the_more_accurate_sender_gets_the_more_accurate_workers() -> None:
    routes = most_accurate_first(
        TWO,
        {"locate": [SIMPLE, NET], "read": [FAST, GOOD]},
        60.0,
        lambda v, c: 0.5 if v == "locate/net" else 2.0,
        PAPER,
    )
    assert table(routes, "locate") == {0: 5 / 6, 1: 1 / 6}
    assert table(routes, "read", "locate/net") == {0: 1.0, 2: 0.0}  # 25 of 40
    assert table(routes, "read", "locate/simple") == {0: 15 / 20, 2: 5 / 20}
    assert table(routes, "read") == {0: 40 / 45, 2: 5 / 45}


def test_a_sender_without_load_has_a_table_all_the_same() -> None:
    routes = most_accurate_first(
        TWO, {"locate": [SIMPLE, NET], "read": [FAST, GOOD]}, 0.0, lambda v, c: 0.0, BALANCED
    )
    assert table(routes, "locate") == {0: 1.0, 1: 0.0}
    assert table(routes, "read", "locate/simple") == {0: 1.0, 2: 0.0}


def test_branches_fill_their_own_workers_and_depth_follows_the_prefix() -> None:
    routes = most_accurate_first(
        THREE,
        {
            "a": [a_receiver("a/v", 0, 0.9, 100.0)],
            "b": [a_receiver("b/v", 0, 0.9, 30.0), a_receiver("b/w", 1, 0.8, 30.0)],
            "c": [a_receiver("c/v", 0, 0.9, 10.0)],
            "d": [a_receiver("d/v", 0, 0.9, 70.0), a_receiver("d/w", 1, 0.8, 70.0)],
        },
        10.0,
        lambda v, c: {"b": 4.0, "c": 1.0, "d": 2.0}[c],
        PAPER,
    )
    assert table(routes, "b") == {0: 0.75, 1: 0.25}
    assert table(routes, "c") == {0: 1.0}
    assert table(routes, "d", "b/v") == {0: 1.0, 1: 0.0}  # 60 of 70
    assert table(routes, "d", "b/w") == {0: 0.5, 1: 0.5}  # 20, of which 10 have room


def test_a_task_that_nobody_serves_has_no_routes() -> None:
    routes = most_accurate_first(TWO, {"locate": [NET]}, 5.0, lambda v, c: 1.0, PAPER)
    assert routes == (Route("locate", 0, 1.0, "", 45.0, 0.01),)
    assert table(
        most_accurate_first(TWO, {"read": [GOOD]}, 5.0, lambda v, c: 1.0, PAPER), "read"
    ) == {0: 1.0}


def test_variants_whose_paths_break_the_budget_do_not_send_to_each_other() -> None:
    slow, quick = a_receiver("locate/slow", 0, 0.9, 9.0, 0.08), replace(NET, slot=1)
    receivers = {"locate": [slow, quick], "read": [GOOD, FAST]}
    assert too_slow(TWO, receivers, {"read": 0.1}) == {("locate/slow", "read/good")}
    assert too_slow(TWO, receivers, {"read": 0.11}) == frozenset()
    # If every path is too slow, none is worse than another.
    assert too_slow(TWO, receivers, {"read": 0.001}) == frozenset()
    barred = {("locate/slow", "read/good")}
    routes = most_accurate_first(TWO, receivers, 9.0, lambda v, c: 1.0, BALANCED, barred)
    assert table(routes, "read", "locate/slow") == {0: 0.0, 2: 1.0}


def test_budget_of_a_long_path_counts_the_slowest_prefix_and_the_fastest_suffix() -> None:
    receivers = {
        "a": [a_receiver("a/v", 0, 0.9, 9.0, 0.01), a_receiver("a/w", 1, 0.8, 9.0, 0.03)],
        "b": [a_receiver("b/v", 0, 0.9, 9.0, 0.02), a_receiver("b/w", 1, 0.8, 9.0, 0.01)],
        "d": [a_receiver("d/v", 0, 0.9, 9.0, 0.05), a_receiver("d/w", 1, 0.8, 9.0, 0.01)],
    }
    assert too_slow(THREE, receivers, {"c": 1.0, "d": 0.055}) == {
        ("a/w", "b/v"),  # 30 + 20 + 10 ms
        ("b/v", "d/v"),
        ("b/w", "d/v"),  # 30 + 10 + 50 ms
    }


# ---------------------------------------------------------------------- what always holds

POOLS = st.lists(
    st.tuples(st.sampled_from([0.5, 0.7, 0.9]), st.floats(0.1, 200.0), st.floats(0.001, 0.2)),
    min_size=1,
    max_size=6,
)


def pooled(task: str, found: list[tuple[float, float, float]]) -> list[Receiver]:
    return [
        a_receiver(f"{task}/{accuracy:g}", slot, accuracy, capacity, latency)
        for slot, (accuracy, capacity, latency) in enumerate(found)
    ]


@given(
    pools=st.tuples(POOLS, POOLS, POOLS, POOLS),
    demand=st.floats(0.0, 1000.0),
    factors=st.floats(0.0, 20.0),
    filling=st.sampled_from([PAPER, BALANCED, replace(BALANCED, up_to=0.8)]),
)
def test_shares_sum_to_one_and_spare_is_never_negative(
    pools: tuple[list[tuple[float, float, float]], ...],
    demand: float,
    factors: float,
    filling: FillOrder,
) -> None:
    receivers = {task: pooled(task, found) for task, found in zip("abcd", pools, strict=True)}
    barred = too_slow(THREE, receivers, {"c": 0.1, "d": 0.2}) if filling.within_budget else ()
    routes = most_accurate_first(THREE, receivers, demand, lambda v, c: factors, filling, barred)
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for route in routes:
        assert 0.0 <= route.share <= 1.0 + 1e-9
        assert route.spare_qps >= 0.0
        sums[route.task, route.source] += route.share
    assert dict(sums) == {key: pytest.approx(1.0, abs=1e-9) for key in sums}
    assert {(task, "") for task in "abcd"} <= sums.keys()


@given(found=POOLS, used=st.floats(0.0, 1.0), up_to=st.sampled_from([0.7, 0.9, 1.0]))
def test_no_worker_exceeds_the_load_limit_while_others_have_room(
    found: list[tuple[float, float, float]], used: float, up_to: float
) -> None:
    reading = pooled("read", found)
    demand = used * up_to * sum(each.capacity_qps for each in reading)
    routes = most_accurate_first(
        TWO, {"locate": [replace(NET, capacity_qps=1e9)], "read": reading}, demand,
        lambda v, c: 1.0, replace(BALANCED, up_to=up_to),
    )  # fmt: skip
    for slot, share in shares(routes).items():
        assert share * demand <= up_to * reading[slot].capacity_qps * (1 + 1e-9) + 1e-6


def shares(routes: tuple[Route, ...]) -> Mapping[int, float]:
    return {route.slot: route.share for route in routes if route.task == "read"}
