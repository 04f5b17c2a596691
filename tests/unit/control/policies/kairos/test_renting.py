from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.renting import (
    Fleet,
    Mix,
    Need,
    bound_of,
    carried_of,
    next_mix,
    wanted_mix,
    worth_playing,
)
from tests.property_examples import at_most

# One size: a fast device carries 10/s for 0.5 $/h, a slow one 4/s for 0.1 $/h. The SLO leaves time
# to wait, so a mix carries nearly its bound.
POOL = Pool(
    types=(PricedType("fast", 0.5), PricedType("slow", 0.1, most=3)),
    sizes=SizeDistribution((1,), (1.0,)), latency_s=((0.1,), (0.25,)), largest_s=(0.1, 0.25),
    largest_size=1, slo_s=60.0,
)  # fmt: skip
BUDGET = 1.3
NONE = (0, 0)
NOTHING: Mapping[Mix, float | None] = {}


def wanted(pool: Pool, demand_qps: float, headroom: float, budget: float, present: Mix) -> Mix:
    need = Need(pool=pool, demand_qps=demand_qps, headroom=headroom, budget=budget)
    return wanted_mix(need, present)


@pytest.mark.parametrize(
    ("demand", "present", "found"),
    [
        (3.0, NONE, (0, 1)),
        (11.0, NONE, (0, 3)),
        (11.0, (2, 3), (0, 3)),  # half the cost
        (21.0, NONE, (1, 3)),
        (500.0, NONE, (2, 3)),  # the most that the budget affords
        (500.0, (2, 3), (2, 3)),
        (0.0, (2, 3), (0, 1)),  # one device waits for the next query
        (0.0, NONE, (0, 1)),
    ],
)
def test_the_mix_is_the_cheapest_for_the_demand_within_the_budget(
    demand: float, present: tuple[int, int], found: tuple[int, int]
) -> None:
    assert wanted(POOL, demand, 1.0, BUDGET, present) == found


def test_a_short_slo_needs_devices_that_are_idle_at_times() -> None:
    hurried = replace(POOL, slo_s=1.0)
    assert wanted(POOL, 19.0, 1.0, BUDGET, NONE) == (1, 3)  # bound 22/s
    assert wanted(hurried, 19.0, 1.0, BUDGET, NONE) == (2, 1)  # bound 24/s
    assert wanted(hurried, 19.0, 1.0, BUDGET, (1, 3)) == (2, 1)
    assert carried_of(hurried, (1, 3)) < 19.0 <= carried_of(hurried, (2, 1)) < 24.0


def test_a_mix_above_the_limit_of_a_type_is_given_up() -> None:
    types = (PricedType("fast", 0.5), PricedType("slow", 0.1, most=1))
    assert wanted(replace(POOL, types=types), 11.0, 1.0, BUDGET, (0, 3)) == (1, 1)


def test_a_mix_that_carries_the_demand_stays_where_another_saves_little() -> None:
    dear = Pool(
        types=(PricedType("a", 0.50), PricedType("b", 0.49)), sizes=POOL.sizes,
        latency_s=((0.1,), (0.1,)), largest_s=(0.1, 0.1), largest_size=1, slo_s=60.0,
    )  # fmt: skip
    assert wanted(dear, 8.0, 1.0, BUDGET, (1, 0)) == (1, 0)
    assert wanted(dear, 8.0, 1.0, BUDGET, NONE) == (0, 1)


# A short SLO: 19/s need (2, 1) by the estimate, and (1, 3), which is cheaper, has a bound of 22/s.
HURRIED = replace(POOL, slo_s=1.0)


def need(demand_qps: float, played: Mapping[Mix, float | None] = NOTHING) -> Need:
    return Need(pool=HURRIED, demand_qps=demand_qps, headroom=1.0, budget=BUDGET, played=played)


def test_played_throughput_of_a_mix_replaces_the_estimate() -> None:
    assert wanted_mix(need(19.0), NONE) == (2, 1)
    assert worth_playing(need(19.0), NONE) == ((1, 3), (2, 1))
    assert wanted_mix(need(19.0, {(1, 3): 18.0}), NONE) == (2, 1)
    assert wanted_mix(need(19.0, {(1, 3): None}), NONE) == (2, 1)
    carries = need(19.0, {(1, 3): 19.5})
    assert wanted_mix(carries, (2, 1)) == (1, 3)
    assert worth_playing(carries, NONE) == ((1, 3),)  # nothing cheaper is left
    assert wanted_mix(need(20.0, {(1, 3): 19.5}), (1, 3)) == (2, 1)


def test_headroom_applies_to_played_throughput_and_not_to_the_cautious_estimate() -> None:
    played = {(1, 3): 20.0}
    assert wanted_mix(need(19.0, played), NONE) == (1, 3)
    assert wanted_mix(replace(need(19.0, played), headroom=1.1), NONE) == (2, 1)


def test_a_mix_that_did_not_carry_the_demand_when_it_was_played_is_given_up() -> None:
    assert wanted_mix(need(19.0, {(2, 1): 18.0}), (2, 1)) == (2, 2)
    assert wanted_mix(need(19.0), (2, 1)) == (2, 1)


def test_best_played_mix_is_chosen_if_the_budget_cannot_carry_the_demand() -> None:
    first, *others = worth_playing(need(500.0), NONE)
    assert first == (2, 3)
    assert len(others) == 9
    played = {mix: 5.0 for mix in (first, *others)} | {others[2]: 20.0}
    assert wanted_mix(need(500.0, played), NONE) == others[2]
    assert wanted_mix(need(500.0, played), (2, 3)) == others[2]
    del played[others[-1]]  # while one is unplayed, the highest bound counts
    assert wanted_mix(need(500.0, played), NONE) == first
    # The present mix is played too and is kept if another carries little more.
    present = next(m for m in ((0, 1), (0, 2), (1, 0)) if m not in (first, *others))
    assert worth_playing(need(500.0), present)[-1] == present
    played = {mix: 5.0 for mix in (first, *others, present)} | {first: 5.2}
    assert wanted_mix(need(500.0, played), present) == present


def fleet(asked: Mix, ready: Mix | None = None, leaving: Mix = NONE) -> Fleet:
    return Fleet(asked=asked, ready=asked if ready is None else ready, leaving=leaving)


def test_a_mix_that_misses_the_demand_stays_where_another_carries_little_more() -> None:
    pool = Pool(
        types=(PricedType("a", 0.50), PricedType("b", 0.50)), sizes=POOL.sizes,
        latency_s=((0.1,), (0.104,)), largest_s=(0.1, 0.104), largest_size=1, slo_s=1.0,
    )  # fmt: skip
    assert wanted(pool, 100.0, 1.0, 0.5, (0, 1)) == (0, 1)
    assert wanted(pool, 100.0, 1.0, 0.5, NONE) == (1, 0)


def test_new_devices_start_before_old_ones_leave_if_the_budget_covers_both_mixes() -> None:
    # From three slow ones to two fast ones and none: 1.0 $/h more, within 1.3.
    assert next_mix(POOL, BUDGET, fleet((0, 3)), (2, 0)) == (2, 3)
    assert next_mix(POOL, BUDGET, fleet((2, 3), (0, 3)), (2, 0)) == (2, 3)  # they boot
    assert next_mix(POOL, BUDGET, fleet((2, 3)), (2, 0)) == (2, 0)


def test_devices_are_exchanged_stepwise_if_the_budget_cannot_cover_both_mixes() -> None:
    # 1.1 $/h cover one fast device beside three slow ones, and a second that replaces two.
    assert next_mix(POOL, 1.1, fleet((0, 3)), (2, 0)) == (1, 3)
    assert next_mix(POOL, 1.1, fleet((1, 3)), (2, 0)) == (1, 1)
    assert next_mix(POOL, 1.1, fleet((1, 1), leaving=(0, 2)), (2, 0)) == (1, 1)
    assert next_mix(POOL, 1.1, fleet((1, 1)), (2, 0)) == (2, 1)


def test_above_a_budget_that_was_lowered_devices_go_at_once() -> None:
    assert next_mix(POOL, 0.6, fleet((1, 3), NONE), (1, 1)) == (1, 1)
    assert next_mix(POOL, 0.6, fleet((1, 1), leaving=(0, 2)), (1, 1)) == (1, 1)


def test_device_that_adds_least_for_its_price_is_released_first() -> None:
    # For 0.5 $/h a fast device carries 10/s and five slow ones 20/s; an idle kind carries nothing.
    pool = Pool(
        types=(PricedType("big", 0.5), PricedType("slow", 0.1), PricedType("late", 0.1)),
        sizes=POOL.sizes, latency_s=((0.01,), (0.25,), (2.0,)), largest_s=(0.01, 0.25, 2.0),
        largest_size=1, slo_s=1.0,
    )  # fmt: skip
    asked = (0, 2, 2)
    step = next_mix(pool, 0.5, Fleet(asked=asked, ready=asked, leaving=(0, 0, 0)), (1, 0, 0))
    assert step == (0, 0, 0) or step[2] == 0
    few = next_mix(pool, 0.7, Fleet(asked=asked, ready=asked, leaving=(0, 0, 0)), (1, 0, 0))
    assert few == (0, 2, 0)


@settings(max_examples=at_most(25), deadline=None)
@given(
    st.floats(0, 60),
    st.tuples(st.integers(0, 2), st.integers(0, 3)),
    st.floats(0.1, 2.0),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_every_change_ends_at_a_mix_that_stays_and_never_exceeds_the_budget(
    demand: float, present: Mix, budget: float, boots: list[bool]
) -> None:
    """Leaving devices cost some more rounds, and new ones take some to boot."""
    prices = np.array([0.5, 0.1])
    here = present if float(np.array(present) @ prices) <= budget + 1e-9 else NONE
    ready, leaving = here, NONE
    goal = wanted(POOL, demand, 1.0, budget, here)
    for done in boots:
        before = here
        here = next_mix(POOL, budget, Fleet(asked=here, ready=ready, leaving=leaving), goal)
        gone = tuple(max(0, a - b) for a, b in zip(before, here, strict=True))
        leaving = tuple(map(sum, zip(gone, NONE if done else leaving, strict=True)))
        ready = here if done else tuple(map(min, ready, here))
        paid = np.array(here) + np.array(leaving)
        assert float(paid @ prices) <= budget + 1e-9
    here = next_mix(POOL, budget, fleet(here), goal)
    for _ in range(8):
        here = next_mix(POOL, budget, fleet(here), goal)
    assert here == goal
    assert wanted(POOL, demand, 1.0, budget, here) == goal
    best = wanted(POOL, 1e6, 1.0, budget, NONE)
    assert bound_of(POOL, here) >= min(demand, bound_of(POOL, best) / 1.05) - 1e-9
