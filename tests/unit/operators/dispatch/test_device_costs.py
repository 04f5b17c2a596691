"""The costs of devices: by the sizes of queries, and by the latencies that were learned."""

import pytest

from control.policies import POLICIES
from control.policies.kairos.latency_learning import LatencyModel
from control.policies.kairos.matching import LEAST_COST
from control.policies.kairos.query_sizes import SizeDistribution
from operators.dispatch.device_costs import ENOUGH_SIZES, FIRST_PRICES, DeviceCosts
from operators.dispatch.dispatch_profile import DispatchProfile, dispatch_profile

SLO_S = 0.1
BOTH = (0, 1)  # a device of each type
KAIROS = POLICIES["kairos"].usual
MIXED = SizeDistribution((10, 90), (0.5, 0.5))


def seconds(type_: str, size: int, quantile: str) -> float:
    return size / {"gpu": 1000, "slow": 250}[type_]


def a_profile() -> DispatchProfile:
    return dispatch_profile(("gpu", "slow"), seconds, 100, sizes=MIXED)


def costs_of(profile: DispatchProfile) -> tuple[DeviceCosts, LatencyModel]:
    learned = LatencyModel(profile.types, profile.mean_s)
    return DeviceCosts(profile, learned), learned


def of_both(costs: DeviceCosts) -> list[float]:
    assert costs.table is not None
    return costs.table.coefficients.tolist()


def test_prices_follow_the_sizes_that_were_seen() -> None:
    costs, _ = costs_of(a_profile())
    costs.change(KAIROS, BOTH, SLO_S)
    # Half the queries are large and need the gpu: the slow device limits nothing.
    expected = pytest.approx([1.0, LEAST_COST * 0.25])
    assert of_both(costs) == expected
    for _ in range(ENOUGH_SIZES):
        costs.add(10)
    assert of_both(costs) == expected  # until the next plan
    costs.change(KAIROS, BOTH, SLO_S)
    assert of_both(costs) == pytest.approx([1.0, 0.25])


def test_prices_follow_the_sizes_that_an_earlier_dispatcher_saw() -> None:
    costs, _ = costs_of(a_profile())
    costs.recall([10] * ENOUGH_SIZES)
    costs.change(KAIROS, BOTH, SLO_S)
    assert of_both(costs) == pytest.approx([1.0, 0.25])


def test_costs_follow_what_devices_took() -> None:
    costs, model = costs_of(dispatch_profile(("gpu", "slow"), lambda *_: 0.05, 100))
    costs.change(KAIROS, BOTH, SLO_S)
    assert of_both(costs) == [1.0, 1.0]
    for n in range(FIRST_PRICES):
        type_ = ("gpu", "slow")[n % 2]
        model.observe(type_, 1 + n, seconds(type_, 1 + n, "mean"), f"{type_}-0")
        costs.learned()
    assert of_both(costs) == pytest.approx([1.0, 0.25], rel=0.05)


def test_the_threshold_is_what_the_auxiliary_type_finishes_in_time() -> None:
    costs, _ = costs_of(a_profile())
    costs.change(KAIROS, BOTH, SLO_S)
    assert costs.threshold() == 25  # 100 ms on the slow type; the gpu is the base


def test_without_a_device_there_are_no_costs() -> None:
    costs, _ = costs_of(a_profile())
    costs.change(KAIROS, BOTH, SLO_S)
    costs.change(KAIROS, (), SLO_S)
    assert (costs.table, costs.threshold()) == (None, 0)
