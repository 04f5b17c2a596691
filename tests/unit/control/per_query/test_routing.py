from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from control.per_query.routing import WeightedRoundRobin, spreads
from schemas.records import Route


def test_equal_shares_take_turns() -> None:
    spread = WeightedRoundRobin([(3, 0.5), (5, 0.5), (4, 0.5)])
    assert [spread.pick() for _ in range(4)] == [3, 5, 4, 3]


def test_unequal_shares_are_mixed_evenly() -> None:
    spread = WeightedRoundRobin([(0, 0.75), (1, 0.25)])
    assert [spread.pick() for _ in range(8)] == [0, 0, 1, 0, 0, 0, 1, 0]


def test_zero_share_is_never_picked_and_an_empty_spread_is_none() -> None:
    spread = WeightedRoundRobin([(0, 0.0), (1, 0.2)])
    assert [spread.pick() for _ in range(3)] == [1, 1, 1]
    assert spread
    assert not WeightedRoundRobin([(0, 0.0)])
    assert not WeightedRoundRobin([])


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.integers(1, 300))
def test_every_window_gives_each_slot_its_share_to_within_a_few_picks(
    shares: list[float], window: int
) -> None:
    spread = WeightedRoundRobin(enumerate(shares))
    picks = Counter(spread.pick() for _ in range(window))
    for slot, share in enumerate(shares):
        assert abs(picks[slot] - window * share / sum(shares)) < 1 + len(shares) / 2


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_the_sequence_is_that_of_whole_numbers(weights: list[int]) -> None:
    """Ties are exact in whole numbers; in fractions, rounding errors must not decide them."""
    spread, credit = WeightedRoundRobin(enumerate(map(float, weights))), [0] * len(weights)
    for _ in range(200):
        credit = [each + weight for each, weight in zip(credit, weights, strict=True)]
        best = credit.index(max(credit))
        credit[best] -= sum(weights)
        assert spread.pick() == best


def test_a_sender_with_routes_of_its_own_does_not_follow_those_for_all() -> None:
    routes = [
        Route("read", 0, 1.0),
        Route("read", 1, 1.0, source="locate/net"),
        Route("sort", 2, 1.0),
    ]
    theirs, others = spreads(routes, "locate/net"), spreads(routes, "locate/cc")
    assert {task: spread.pick() for task, spread in theirs.items()} == {"read": 1, "sort": 2}
    assert {task: spread.pick() for task, spread in others.items()} == {"read": 0, "sort": 2}


def test_routes_of_another_sender_only_leave_the_task_without_a_slot() -> None:
    assert spreads([Route("read", 0, 1.0, source="locate/net")], "") == {}


@given(
    st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5),
    st.lists(st.integers(1, 6), min_size=5, max_size=40),
)
def test_shares_hold_over_many_plans_of_few_picks_each(
    shares: list[float], picks: list[int]
) -> None:
    spread, counts = WeightedRoundRobin(enumerate(shares)), dict.fromkeys(range(len(shares)), 0)
    for several in picks:
        following = WeightedRoundRobin(enumerate(shares))
        following.follow(spread)
        spread = following
        for _ in range(several):
            counts[spread.pick()] += 1
    for slot, share in enumerate(shares):
        assert abs(counts[slot] - share / sum(shares) * sum(picks)) < len(shares)


def test_one_pick_between_two_plans_reaches_the_smallest_share() -> None:
    spread, picked = WeightedRoundRobin(()), []
    for _ in range(20):
        following = WeightedRoundRobin([(0, 0.4), (1, 0.3), (2, 0.2), (3, 0.1)])
        following.follow(spread)
        spread = following
        picked.append(spread.pick())
    assert [picked.count(slot) for slot in range(4)] == [8, 6, 4, 2]


def test_new_slot_takes_over_the_due_share_of_a_removed_slot() -> None:
    before = WeightedRoundRobin([(0, 0.75), (1, 0.25)])
    assert [before.pick() for _ in range(3)] == [0, 0, 1]
    after = WeightedRoundRobin([(1, 0.25), (2, 0.75)])
    after.follow(before)
    assert [after.pick() for _ in range(8)].count(2) == 6


@given(st.permutations(range(4)), st.integers(1, 5))
def test_each_slot_gets_its_turn_though_every_plan_lists_the_slots_in_any_order(
    slots: list[int], picks: int
) -> None:
    """Routes are listed by accuracy. With a new plan after each query a slot got none."""
    spread, found = WeightedRoundRobin((slot, 0.25) for slot in slots), Counter[int]()
    for _ in range(4):
        found.update(spread.pick() for _ in range(picks))
        renewed = WeightedRoundRobin((slot, 0.25) for slot in slots)
        renewed.follow(spread)
        spread = renewed
    assert set(found.values()) == {picks}
