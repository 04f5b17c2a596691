"""Arrival times of seeded processes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.arrivals.arrival_processes import (
    Bursts,
    Renewal,
    from_rates,
    gamma,
    poisson,
)
from headrace.errors import ArrivalsError


def test_poisson_arrivals_come_at_the_rate_that_was_asked_for(rng: np.random.Generator) -> None:
    times = poisson(50.0, 200.0, rng)
    assert abs(len(times) - 10_000) < 4 * 100  # four standard deviations
    gaps = np.diff(times)
    assert abs(gaps.std() / gaps.mean() - 1.0) < 0.05  # exponential gaps


@given(rate=st.floats(0.1, 200), seconds=st.floats(0.1, 20), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_poisson_arrivals_ascend_within_the_time(rate: float, seconds: float, seed: int) -> None:
    times = poisson(rate, seconds, np.random.default_rng(seed))
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < seconds))


def test_the_same_seed_gives_the_same_arrivals() -> None:
    one, other = (poisson(20.0, 5.0, np.random.default_rng(7)) for _ in range(2))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("rate", "seconds", "what"), [(0.0, 1.0, "rate is 0"), (1.0, -1.0, "time is -1")]
)
def test_a_rate_or_time_that_is_not_above_0_is_refused(
    rng: np.random.Generator, rate: float, seconds: float, what: str
) -> None:
    with pytest.raises(ArrivalsError, match=what):
        poisson(rate, seconds, rng)


@given(rates=st.lists(st.floats(0, 50), min_size=1, max_size=20), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_seconds_without_a_rate_have_no_arrivals(rates: list[float], seed: int) -> None:
    times = from_rates(rates, np.random.default_rng(seed))
    assert np.all(np.diff(times) >= 0)
    assert {int(t) for t in times} <= {s for s, rate in enumerate(rates) if rate > 0}


@pytest.mark.parametrize("draw", [poisson, lambda *more: gamma(*more[:2], 0.5, more[2])])
@pytest.mark.parametrize(("rate", "seconds"), [(1e300, 1.0), (1e6, 1e9)])
def test_more_queries_than_a_run_can_have_are_refused(
    rng: np.random.Generator, draw: Any, rate: float, seconds: float
) -> None:
    with pytest.raises(ArrivalsError, match=r"queries, and 1e\+08 are the most of a run; lower"):
        draw(rate, seconds, rng)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gaps_vary_as_was_asked_for(rng: np.random.Generator, cv: float) -> None:
    times = gamma(100.0, 400.0, cv, rng)
    gaps = np.diff(times)
    assert len(times) == pytest.approx(40_000, rel=5 * cv / 200)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


@given(rate=st.floats(0.1, 200), cv=st.floats(0.1, 5), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_gamma_arrivals_ascend_within_the_time(rate: float, cv: float, seed: int) -> None:
    times = gamma(rate, 5.0, cv, np.random.default_rng(seed))
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < 5.0))


def test_a_variation_of_nothing_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ArrivalsError, match="variation is 0; it must be above 0"):
        gamma(1.0, 1.0, 0.0, rng)


def test_a_renewal_process_of_variation_1_is_the_poisson_process() -> None:
    one, other = (np.random.default_rng(4) for _ in range(2))
    assert Renewal(20.0, 5.0).drawn(one).tolist() == poisson(20.0, 5.0, other).tolist()


def test_bursts_keep_the_mean_and_are_bursts(rng: np.random.Generator) -> None:
    times = Bursts(rate_qps=100.0, seconds=4000.0, factor=5.0).drawn(rng)
    assert np.all(np.diff(times) >= 0)
    assert len(times) == pytest.approx(400_000, rel=0.1)
    counts = np.histogram(times, 4000, (0, 4000))[0]
    assert counts.var() / counts.mean() > 20  # a Poisson process has 1
