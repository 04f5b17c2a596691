from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from control.policies.kairos.throughput_bounds import (
    MOST_BITS,
    FluidBound,
    ServiceTimes,
    TwoClass,
    eq15,
    eq15_bounds,
)
from control.problem.problem import PlanError
from tests.property_examples import at_most


@pytest.mark.parametrize(
    ("small", "base", "large", "auxiliary", "u", "v", "qps"),
    [
        (0.5, 50, 40, 100, 1, 1, 80),  # the base is the bottleneck
        (0.8, 60, 30, 40, 1, 1, 90),  # the auxiliary type is
        (0.8, 60, 30, 40, 2, 5, 270),
        (0.8, 60, 30, 40, 2, 20, 300),
    ],
)
def test_eq_15_gives_the_values_of_the_two_class_examples(
    small: float, base: float, large: float, auxiliary: float, u: int, v: int, qps: float
) -> None:
    of = TwoClass(
        small=small, base_qps=base, base_large_qps=large, auxiliary_qps=np.array([auxiliary])
    )
    assert eq15(of, np.array([float(u)]), np.array([[v]])) == pytest.approx([qps])


def test_eq_15_without_auxiliary_devices_is_that_of_the_base_devices() -> None:
    times = ServiceTimes(np.array([[1.0, 2.0], [2.0, 8.0]]), np.array([0.5, 0.5]), 4.0, 0)
    assert eq15_bounds(times, np.array([[3, 0], [0, 2]])) == pytest.approx([2.0, 0.0])


def test_eq_15_adds_throughputs_if_auxiliary_devices_serve_every_size() -> None:
    times = ServiceTimes(np.array([[1.0, 2.0], [2.0, 3.0]]), np.array([0.5, 0.5]), 4.0, 0)
    assert eq15_bounds(times, np.array([[3, 5]])) == pytest.approx([3 / 1.5 + 5 / 2.5])


def test_eq_15_refuses_a_pool_without_base() -> None:
    times = ServiceTimes(np.array([[1.0, 2.0]]), np.array([0.5, 0.5]), 1.5)
    with pytest.raises(PlanError, match="base type"):
        eq15_bounds(times, np.array([[1]]))


@st.composite
def _service_times(draw: st.DrawFn) -> ServiceTimes:
    types, classes = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    seconds = st.floats(0.01, 2.0)
    latency = np.array([sorted(draw(seconds) for _ in range(classes)) for _ in range(types)])
    weights = np.array([draw(st.integers(0, 5)) for _ in range(classes)], dtype=float)
    weights[draw(st.integers(0, classes - 1))] += 1
    return ServiceTimes(latency, weights / weights.sum(), draw(st.floats(0.05, 2.0)), 0)


def _independent(times: ServiceTimes, mix: list[int]) -> float:
    """The dual program, solved as such: min n.w with sum_k p_k z_k >= 1, z_k <= w_i t_i(k)."""
    types, classes = times.latency_s.shape
    rows, right = [], []
    for k in range(classes):
        if times.probabilities[k] == 0:
            continue
        feasible = [i for i in range(types) if mix[i] > 0 and times.latency_s[i, k] <= times.slo_s]
        if not feasible:
            return 0.0
        for i in feasible:
            row = np.zeros(types + classes)
            row[i], row[types + k] = -times.latency_s[i, k], 1.0
            rows.append(row)
            right.append(0.0)
    rows.append(np.concatenate([np.zeros(types), -times.probabilities]))
    right.append(-1.0)
    found = linprog(
        np.concatenate([np.array(mix, dtype=float), np.zeros(classes)]),
        A_ub=np.array(rows),
        b_ub=np.array(right),
        bounds=[(0, None)] * (types + classes),
    )
    assert found.status == 0
    return float(found.fun)


@settings(max_examples=at_most(60), deadline=None)
@given(_service_times(), st.data())
def test_the_fluid_bound_equals_the_independent_dual_program(
    times: ServiceTimes, data: st.DataObject
) -> None:
    mix = [data.draw(st.integers(0, 4)) for _ in times.latency_s]
    exact = FluidBound(times).exact(np.array(mix, dtype=float))
    assert exact == pytest.approx(_independent(times, mix), rel=1e-6, abs=1e-9)


@settings(max_examples=at_most(40), deadline=None)
@given(_service_times(), st.data())
def test_bounds_do_not_depend_on_the_mixes_solved_before(
    times: ServiceTimes, data: st.DataObject
) -> None:
    # Later mixes start from the basis of earlier ones and leave it by the dual simplex.
    counts = st.lists(st.integers(0, 9), min_size=len(times.latency_s), max_size=4)
    mixes = data.draw(st.lists(counts.map(lambda c: c[: len(times.latency_s)]), max_size=8))
    fluid = FluidBound(times)
    for mix in mixes:
        alone = FluidBound(times).exact(np.array(mix, dtype=float))
        assert fluid.exact(np.array(mix, dtype=float)) == pytest.approx(alone, rel=1e-9)


@pytest.mark.thorough
def test_rare_sizes_do_not_reduce_precision() -> None:
    # A normal distribution gives some classes 1e-15; bases of such patterns are near-singular.
    sizes = np.arange(10, 1001, 10)
    weights = np.exp(-((sizes - 256) ** 2) / (2 * 32.0**2))
    lines = ((0.012, 3.0e-5), (0.002, 7.0e-5), (0.003, 8.0e-5), (0.004, 16.0e-5))
    noise = np.random.default_rng(0).uniform(0.97, 1.03, (len(lines), len(sizes)))
    latency = noise * np.array([a + b * sizes for a, b in lines])
    times = ServiceTimes(latency, weights / weights.sum(), 0.05, 0)
    fluid = FluidBound(times)
    for mix in product(range(4), range(5), range(8), range(8)):
        if any(mix):
            alone = FluidBound(times).exact(np.array(mix, dtype=float))
            assert fluid.exact(np.array(mix, dtype=float)) == pytest.approx(alone, rel=1e-8)


def test_only_the_newest_prices_are_tried_where_asked() -> None:
    times = ServiceTimes(np.array([[1.0, 2.0], [2.0, 3.0]]), np.array([0.5, 0.5]), 4.0, 0)
    fluid, mixes = FluidBound(times), np.array([[3, 5], [1, 0]])
    assert np.isinf(fluid.above(mixes, fluid.known)).all()
    known = fluid.known
    exact = fluid.exact(np.array([3.0, 5.0]))
    newest = fluid.above(mixes, known)
    assert newest[0] == pytest.approx(exact)
    assert (newest >= fluid.above(mixes) * (1 - 1e-12)).all()


@settings(max_examples=at_most(60), deadline=None)
@given(_service_times(), st.data())
def test_sampled_prices_never_bound_below_the_exact_value(
    times: ServiceTimes, data: st.DataObject
) -> None:
    mix = [data.draw(st.integers(0, 4)) for _ in times.latency_s]
    fluid = FluidBound(times)
    exact = fluid.exact(np.array(mix, dtype=float))
    assert FluidBound(times).above(np.array([mix]))[0] >= exact * (1 - 1e-9)
    # The prices that proved the exact value are kept, so now they bound the mix exactly.
    assert fluid.above(np.array([mix]))[0] == pytest.approx(exact, rel=1e-6)


def test_sampled_prices_bound_mixes_of_more_types_than_an_integer_has_bits() -> None:
    rng = np.random.default_rng(3)
    times = ServiceTimes(rng.uniform(0.1, 1.0, (MOST_BITS + 8, 3)), np.full(3, 1 / 3), 2.0, 0)
    mixes = rng.integers(0, 3, (20, MOST_BITS + 8)) * (rng.random((20, MOST_BITS + 8)) < 0.05)
    mixes[10:] = mixes[:10]  # groups of equal types
    above = FluidBound(times).above(mixes)
    exact = [FluidBound(times).exact(mix.astype(float)) for mix in mixes]
    assert (above >= np.array(exact) * (1 - 1e-9)).all()
    assert above[10:] == pytest.approx(above[:10])


def test_a_mix_in_which_no_type_serves_some_size_carries_nothing() -> None:
    times = ServiceTimes(np.array([[1.0, 2.0], [2.0, 9.0]]), np.array([0.5, 0.5]), 4.0, 0)
    fluid = FluidBound(times)
    assert fluid.exact(np.array([0.0, 3.0])) == 0.0
    assert fluid.above(np.array([[0, 3], [0, 0]])) == pytest.approx([0.0, 0.0])


@settings(max_examples=at_most(40), deadline=None)
@given(_service_times(), st.data())
def test_the_marginal_throughput_bounds_what_devices_add(
    times: ServiceTimes, data: st.DataObject
) -> None:
    mix = np.array([float(data.draw(st.integers(0, 3))) for _ in times.latency_s])
    fluid = FluidBound(times)
    marginal = fluid.marginal(mix)
    bound = fluid.exact(mix)
    assert mix @ marginal == pytest.approx(bound)  # the bound is homogeneous of degree 1
    for at, count in enumerate(mix):
        if count:  # it is concave: another device adds at most its marginal throughput
            more = mix.copy()
            more[at] += 1
            assert fluid.exact(more) <= bound + marginal[at] + 1e-6 * bound
