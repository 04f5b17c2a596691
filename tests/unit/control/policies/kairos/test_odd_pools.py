"""Renting with types, prices and budgets as users write them: a stable mix within the budget,
or a sentence."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.kairos.device_mixes import CENT, PricedType
from control.policies.kairos.provisioning import Pool, cheapest
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.renting import (
    Fleet,
    Mix,
    Need,
    bound_of,
    carried_of,
    mix_price,
    next_mix,
    wanted_mix,
    worth_playing,
)
from control.problem.problem import PlanError
from tests.property_examples import at_most

SECONDS = st.sampled_from([0.001, 0.1, 0.3, 5.0])


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Draw a pool: equal types, free ones, useless ones, and types that serve no size in time."""
    kinds = draw(st.integers(1, 3))
    latency_s = []
    types = []
    for at in range(kinds):
        small_s, large_s = sorted(draw(st.tuples(SECONDS, SECONDS)))
        latency_s.append((small_s, large_s))
        price = draw(st.sampled_from([0.0, 1e-9, 0.1, 0.5, 100.0]))
        most = draw(st.sampled_from([0, 1, 4] if price < 0.1 else [None, 0, 1, 4]))
        types.append(PricedType(f"kind-{at}", price, most))
    shares = draw(st.sampled_from([(1.0, 0.0), (0.5, 0.5), (1.0, 1e-12), (0.0, 1.0)]))
    return Pool(
        types=tuple(types), sizes=SizeDistribution((1, 100), shares), latency_s=tuple(latency_s),
        largest_s=tuple(large_s for _, large_s in latency_s), largest_size=100,
        slo_s=draw(st.sampled_from([1e-6, 0.2, 1.0])),
    )  # fmt: skip


NEEDS = st.builds(
    Need,
    pool=pools(),
    demand_qps=st.sampled_from([0.0, 1e-6, 3.0, 40.0, 1e6]),
    headroom=st.sampled_from([1.0, 1.15]),
    budget=st.sampled_from([1e-6, 0.3, 1.3]),
)


def mix_or_sentence(need: Need, present: Mix) -> Mix | str:
    try:
        return wanted_mix(need, present)
    except PlanError as error:
        return str(error)


@settings(max_examples=at_most(25), deadline=None)
@given(NEEDS)
def test_mix_fits_the_budget_and_is_stable_or_a_reason_is_given(
    need: Need,
) -> None:
    none: Mix = (0,) * len(need.pool.types)
    wanted = mix_or_sentence(need, none)
    if isinstance(wanted, str):
        assert ";" in wanted  # the fix
        return
    assert need.affords(wanted)
    assert wanted_mix(need, wanted) == wanted
    assert all(mix_price(need.pool, mix) <= need.budget + CENT for mix in worth_playing(need, none))
    here = Fleet(asked=none, ready=none, leaving=none)
    assert next_mix(need.pool, need.budget, here, wanted) == wanted


def a_pool(*prices: float, most: int | None = None) -> Pool:
    types = tuple(PricedType(f"kind-{at}", price, most) for at, price in enumerate(prices))
    return Pool(
        types=types, sizes=SizeDistribution((1,), (1.0,)), latency_s=((0.1,),) * len(prices),
        largest_s=(0.1,) * len(prices), largest_size=1, slo_s=60.0,
    )  # fmt: skip


def test_free_devices_that_carry_the_demand_stay() -> None:
    need = Need(pool=a_pool(0.0, 0.0, most=3), demand_qps=15.0, headroom=1.0, budget=1.0)
    for present in ((2, 0), (1, 1), (0, 2), (3, 3)):
        assert wanted_mix(need, present) == present


@pytest.mark.parametrize("price", [1e-3, 1e-6, 1e-9, 1e-12])
def test_nearly_free_devices_are_not_rented_beyond_need(price: float) -> None:
    found = cheapest(a_pool(price, 0.5), 95.0)
    assert found is not None
    assert found.counts == (10, 0)


@pytest.mark.parametrize("demand", [1e-9, 1e-3, 1.0])
def test_every_size_has_a_device_at_very_low_demand(demand: float) -> None:
    # Only the slow type serves small queries, and to the solver a thousandth of a query needs no
    # device.
    pool = Pool(
        types=(PricedType("fast", 0.5), PricedType("slow", 0.1)),
        sizes=SizeDistribution((1, 100), (0.999, 0.001)), latency_s=((1e-4, 1e-3), (1e-3, 5.0)),
        largest_s=(1e-3, 5.0), largest_size=100, slo_s=1.0,
    )  # fmt: skip
    found = cheapest(pool, demand)
    assert found is not None
    assert found.counts == (1, 0)
    idle = Need(pool=pool, demand_qps=0.0, headroom=1.0, budget=1.3)
    assert wanted_mix(idle, (0, 0)) == (1, 0)


def test_a_pool_in_which_no_type_is_in_time_carries_nothing() -> None:
    late = replace(a_pool(0.1, 0.5), slo_s=0.01)
    assert (bound_of(late, (3, 2)), carried_of(late, (3, 2))) == (0.0, 0.0)
