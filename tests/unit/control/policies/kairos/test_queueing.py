import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.kairos.queueing import carried, erlang_c
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes

# A fast type serves both classes, a slow one only the first.
TIMES = ServiceTimes(np.array([[0.1, 0.4], [0.2, 2.0]]), np.array([0.8, 0.2]), 1.0)


def test_waiting_probability_is_the_load_for_one_server_and_tabulated_for_many() -> None:
    assert erlang_c(1, 0.3) == pytest.approx(0.3)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.409, abs=1e-3)
    assert erlang_c(3, 0.0) == 0.0


def test_one_device_carries_what_one_server_does() -> None:
    """M/M/1 would be late with rho exp(-(1 - rho) 9); constant service halves the wait."""
    times = ServiceTimes(np.array([[0.1]]), np.array([1.0]), 1.0)
    rho = carried(times, (1,)) * 0.1
    assert rho * np.exp(-2 * (1 - rho) * 9) == pytest.approx(0.01, rel=0.05)


def test_many_devices_carry_more_of_their_bound_than_few() -> None:
    times = ServiceTimes(np.array([[0.1]]), np.array([1.0]), 0.2)
    shares = [carried(times, (n,)) / (10 * n) for n in (1, 2, 5, 20, 100)]
    assert shares == sorted(shares)
    assert shares[0] < 0.4
    assert shares[-1] > 0.9


def test_a_mix_that_cannot_serve_every_class_carries_nothing() -> None:
    assert carried(TIMES, (0, 5)) == 0.0


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 8))
def test_estimate_is_below_the_bound_and_its_shares_solve_the_linear_program(
    fast: int, slow: int
) -> None:
    mix = np.array([fast, slow], dtype=float)
    fluid = FluidBound(TIMES)
    bound, shares = fluid.exact(mix), fluid.shares(mix)
    assert 0 < carried(TIMES, (fast, slow)) < bound
    assert shares.sum(axis=0) == pytest.approx(TIMES.probabilities)
    assert (bound * (shares * TIMES.latency_s).sum(axis=1) <= mix + 1e-6).all()
    assert shares[1, 1] == 0.0
