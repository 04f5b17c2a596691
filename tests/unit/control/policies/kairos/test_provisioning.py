from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from control.policies.kairos.device_mixes import PricedType, costs, mixes_within
from control.policies.kairos.provisioning import (
    Pool,
    Ranked,
    base_of,
    cheapest,
    nearest_pool,
    pick_first,
    pick_paper,
    rank,
)
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.throughput_bounds import FluidBound, eq15_bounds
from control.problem.problem import PlanError
from tests.property_examples import at_most

GPU, CPU, SLOW = PricedType("gpu", 0.5), PricedType("cpu", 0.2), PricedType("slow", 0.1)
POOL = Pool(
    types=(GPU, CPU, SLOW),
    sizes=SizeDistribution((10, 100, 1000), (0.5, 0.4, 0.1)),
    latency_s=((0.01, 0.02, 0.08), (0.02, 0.09, 0.4), (0.05, 0.3, 2.0)),
    largest_s=(0.08, 0.4, 2.0),
    largest_size=1000,
    slo_s=0.1,
)


@settings(max_examples=at_most(80), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(9, 30),
)
def test_affordable_mixes_equal_exhaustive_search(
    priced: list[tuple[int, int]], budget_cents: int
) -> None:
    # Sums are exact in cents but not in $; the enumeration must tolerate this.
    if all(most == 0 for _, most in priced):
        priced[0] = (priced[0][0], 1)
    types = [PricedType(f"t{i}", cents / 100, most) for i, (cents, most) in enumerate(priced)]
    found = mixes_within(types, budget_cents / 100)
    every = product(*(range(most + 1) for _, most in priced))
    expected = [
        mix
        for mix in every
        if any(mix) and sum(n * p for n, (p, _) in zip(mix, priced, strict=True)) <= budget_cents
    ]
    assert [tuple(row) for row in found.tolist()] == expected
    assert (costs(types, found) <= budget_cents / 100 + 1e-9).all()


@pytest.mark.parametrize(
    ("types", "budget", "says"),
    [
        ((GPU, CPU), 0.1, "below the cheapest device, cpu at 0.2 .* raise the budget to 0.2"),
        ((GPU, GPU), 1.0, "named twice"),
        ((PricedType("own", 0.0),), 1.0, "no limit"),
        ((PricedType("none", 1.0, 0),), 1.0, "no device type"),
        (tuple(PricedType(f"t{i}", 0.01) for i in range(1000)), 2.5, "more than 64,000 mixes"),
        ((PricedType("a", 0.01), PricedType("b", 0.01)), 1e6, "more than 2,000,000 mixes"),
        ((GPU, CPU), float("nan"), r"a budget of nan \$/h is none"),
        ((GPU, CPU), float("inf"), r"a budget of inf \$/h is none"),
    ],
)
def test_budgets_that_cannot_be_enumerated_are_refused(
    types: tuple[PricedType, ...], budget: float, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        mixes_within(types, budget)


def test_owned_devices_cost_nothing_and_are_limited() -> None:
    assert mixes_within([PricedType("own", 0.0, 2), PricedType("x", 1.0)], 1.0).tolist() == [
        [0, 1], [1, 0], [1, 1], [2, 0], [2, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("top", [1, 3, 10])
def test_pruning_by_sampled_prices_finds_the_same_best_mixes_as_solving_all(top: int) -> None:
    counts = mixes_within(POOL.types, 1.2)
    fluid = FluidBound(POOL.times)
    exact = [fluid.exact(row.astype(float)) for row in counts]
    best = sorted(exact, reverse=True)[:top]
    found = rank(POOL, 1.2, "fluid", top)
    assert [each.bound_qps for each in found.best] == pytest.approx(best, rel=1e-7)
    assert all(each.cost <= 1.2 + 1e-9 for each in found.best)
    assert found.mixes == len(counts)


@settings(max_examples=at_most(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.integers(1, 9)), min_size=2, max_size=4),
       st.sampled_from((1, 4, 10)), st.sampled_from(("fluid", "eq15")))  # fmt: skip
def test_cheaper_mix_is_ranked_first_among_equal_bounds(
    kinds: list[tuple[int, int]], top: int, bound: str
) -> None:
    # Types of equal speed at different prices: many mixes have equal bounds.
    pool = replace(
        POOL,
        types=tuple(PricedType(f"t{i}", cents / 10, 3) for i, (_, cents) in enumerate(kinds)),
        latency_s=tuple((0.02 * s, 0.03 * s, 0.05 * s) for s, _ in kinds),
        largest_s=tuple(0.05 * s for s, _ in kinds),
    )
    assume(any(s == 1 for s, _ in kinds))  # so that there is a base type
    found = rank(pool, 1.2, bound, top).best
    every = rank(pool, 1.2, bound, 1000).best
    assert [each.counts for each in found] == [each.counts for each in every[:top]]
    for ahead, behind in combinations(every, 2):
        assert ahead.bound_qps >= behind.bound_qps * (1 - 1e-6)
        if behind.bound_qps >= ahead.bound_qps * (1 - 1e-6):
            assert ahead.cost <= behind.cost + 1e-9


def test_cheaper_mix_is_rented_among_equal_bounds() -> None:
    # Another slow device serves nothing that the others could not.
    idle = replace(POOL, types=(replace(GPU, most=1), CPU, SLOW), latency_s=(
        (0.01, 0.02, 0.08), (0.3, 0.3, 0.4), (0.3, 0.3, 2.0)))  # fmt: skip
    assert [each.counts for each in rank(idle, 0.9, top=3).best] == [
        (1, 0, 0),
        (1, 0, 1),
        (1, 0, 2),
    ]


def test_ranking_by_eq_15_is_stable_and_its_values_are_the_formula() -> None:
    found = rank(POOL, 1.2, "eq15", 5)
    counts = np.array([each.counts for each in found.best])
    assert [each.bound_qps for each in found.best] == pytest.approx(
        eq15_bounds(POOL.times, counts).tolist()
    )
    assert found.with_base == int((mixes_within(POOL.types, 1.2)[:, 0] > 0).sum())


def test_an_unknown_bound_names_the_known_ones() -> None:
    with pytest.raises(PlanError, match="eq15, fluid"):
        rank(POOL, 1.0, "best")


def test_the_base_is_the_most_throughput_per_dollar_that_meets_the_slo_at_every_size() -> None:
    assert base_of(POOL) == 0
    assert base_of(replace(POOL, slo_s=0.5)) == 0
    cheap = replace(POOL, types=(replace(GPU, price=5.0), CPU, SLOW), slo_s=0.5)
    assert base_of(cheap) == 1
    assert base_of(replace(POOL, slo_s=0.05)) is None
    assert base_of(replace(POOL, base="cpu")) == 1
    with pytest.raises(PlanError, match="gpu, cpu, slow"):
        base_of(replace(POOL, base="tpu"))


def test_the_guard_of_two_percent_counts_for_the_base() -> None:
    assert base_of(replace(POOL, slo_s=0.0815)) is None
    assert base_of(replace(POOL, slo_s=0.0817)) == 0


def test_coefficients_compare_the_largest_query_with_the_base() -> None:
    assert POOL.coefficients == pytest.approx((1.0, 0.2, 0.04))
    assert POOL.largest == {"gpu": 1000, "cpu": 100, "slow": 10}


def test_the_paper_picks_the_first_where_the_best_three_share_the_base_count() -> None:
    best = [Ranked(c, 1.0, q) for c, q in [((1, 9), 9.0), ((1, 0), 8.0), ((1, 5), 7.0)]]
    assert pick_paper(best, 0) == best[0] == pick_first(best, 0)


def test_the_paper_picks_the_mix_nearest_to_the_others_otherwise() -> None:
    best = [Ranked(c, 1.0, q) for c, q in [((1, 9), 9.0), ((2, 5), 8.0), ((3, 2), 7.0)]]
    assert pick_paper(best, 0) == best[1]


@pytest.mark.parametrize("demand", [1.0, 20.0, 77.0, 200.0])
def test_cheapest_mix_for_a_demand_equals_exhaustive_search(demand: float) -> None:
    found = cheapest(POOL, demand)
    assert found is not None
    assert found.bound_qps >= demand * (1 - 1e-6)
    counts = mixes_within(POOL.types, found.cost)
    bounds = FluidBound(POOL.times).above(counts)
    fluid = FluidBound(POOL.times)
    carrying = [
        row for row, above in zip(counts, bounds, strict=True)
        if above >= demand and fluid.exact(row.astype(float)) >= demand * (1 - 1e-9)
    ]  # fmt: skip
    least = min(costs(POOL.types, np.array(carrying)))
    assert found.cost == pytest.approx(float(least))


def test_no_mix_is_the_cheapest_where_types_are_limited_or_miss_the_slo() -> None:
    few = tuple(replace(each, most=1) for each in POOL.types)
    assert cheapest(replace(POOL, types=few), 500.0) is None
    assert cheapest(replace(POOL, slo_s=0.05), 1.0) is None


def test_nearest_alternative_is_an_slo_a_size_and_a_price() -> None:
    found = nearest_pool(replace(POOL, slo_s=0.05))
    assert found.slo_s == pytest.approx(0.08 / 0.98)
    assert found.size == 100
    assert found.budget is None
    assert nearest_pool(POOL).budget == 0.5


@pytest.mark.thorough
def test_a_thousand_types_are_ranked_or_refused_before_they_fill_the_memory() -> None:
    types = [PricedType(f"t{i}", 0.2 + 0.0001 * i) for i in range(1000)]
    assert len(mixes_within(types, 0.3)) == 1000
    with pytest.raises(PlanError, match="more than 64,000 mixes of 1000 types"):
        mixes_within(types, 0.5)
