import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.renting import Change, change_of, wanted_mix
from control.policies.kairos.throughput_bounds import FluidBound

# One size: a fast device carries 10/s for 0.5 $/h, a slow one 4/s for 0.1 $/h.
POOL = Pool(
    types=(PricedType("fast", 0.5), PricedType("slow", 0.1, most=3)),
    sizes=SizeDistribution((1,), (1.0,)), latency_s=((0.1,), (0.25,)), largest_s=(0.1, 0.25),
    largest_size=1, slo_s=1.0,
)  # fmt: skip
BUDGET = 1.3
NONE = (0, 0)


@pytest.mark.parametrize(
    ("demand", "present", "wanted"),
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
    demand: float, present: tuple[int, int], wanted: tuple[int, int]
) -> None:
    assert wanted_mix(POOL, demand, 1.0, BUDGET, present) == wanted


def test_a_mix_that_carries_the_demand_stays_where_another_saves_little() -> None:
    dear = Pool(
        types=(PricedType("a", 0.50), PricedType("b", 0.49)), sizes=POOL.sizes,
        latency_s=((0.1,), (0.1,)), largest_s=(0.1, 0.1), largest_size=1, slo_s=1.0,
    )  # fmt: skip
    assert wanted_mix(dear, 8.0, 1.0, BUDGET, (1, 0)) == (1, 0)
    assert wanted_mix(dear, 8.0, 1.0, BUDGET, NONE) == (0, 1)


def test_new_devices_come_first_where_the_budget_takes_both_mixes() -> None:
    # From three slow ones to two fast ones and none: 1.0 $/h more, within 1.3.
    assert change_of(POOL, BUDGET, (0, 3), (0, 3), (2, 0)) == Change((2, 0), NONE)
    assert change_of(POOL, BUDGET, (2, 3), (0, 3), (2, 0)) == Change(NONE, NONE)  # they boot
    assert change_of(POOL, BUDGET, (2, 3), (2, 3), (2, 0)) == Change(NONE, (0, 3))


def test_old_devices_go_first_where_it_does_not() -> None:
    assert change_of(POOL, 1.2, (0, 3), (0, 3), (2, 0)) == Change(NONE, (0, 3))
    assert change_of(POOL, 1.2, NONE, NONE, (2, 0)) == Change((2, 0), NONE)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 60), st.tuples(st.integers(0, 2), st.integers(0, 3)), st.floats(0.1, 2.0))
def test_every_change_ends_at_a_mix_that_stays_and_never_exceeds_the_budget(
    demand: float, present: tuple[int, int], budget: float
) -> None:
    prices = np.array([0.5, 0.1])
    here = present if float(np.array(present) @ prices) <= budget + 1e-9 else NONE
    wanted = wanted_mix(POOL, demand, 1.0, budget, here)
    for _ in range(4):
        change = change_of(POOL, budget, here, here, wanted)
        here = tuple(np.array(here) + np.array(change.rent) - np.array(change.release))
        assert float(np.array(here) @ prices) <= budget + 1e-9
    assert here == wanted
    assert wanted_mix(POOL, demand, 1.0, budget, here) == wanted
    best = FluidBound(POOL.times).exact(np.array(here, dtype=float))
    assert best >= demand or wanted == wanted_mix(POOL, 1e6, 1.0, budget, NONE)
