"""control/policies/ramsis/arrival_counts.py: numbers of queries in an interval."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import example, given
from hypothesis import strategies as st

from control.policies.ramsis.arrival_counts import ArrivalCounts, count_table, more_than
from control.problem.problem import SelectionError

STRETCHES = np.array([0.0, 0.01, 0.5, 2.0])


def test_poisson_counts_are_those_of_scipy() -> None:
    counts = np.arange(40)
    expected = scipy.stats.poisson.pmf(counts, (10.0 * STRETCHES)[:, None])
    assert count_table(ArrivalCounts(10.0), STRETCHES, 40) == pytest.approx(expected, rel=1e-12)


def test_bursty_counts_are_negative_binomial_with_the_dispersion_as_variance_over_mean() -> None:
    counts, mean = np.arange(400), 10.0 * STRETCHES[1:]
    table = count_table(ArrivalCounts(10.0, dispersion=3.0), STRETCHES[1:], 400)
    expected = scipy.stats.nbinom.pmf(counts, (mean / 2)[:, None], 1 / 3)
    assert table == pytest.approx(expected, abs=1e-13)
    assert table @ counts == pytest.approx(mean)
    assert table @ counts**2 - mean**2 == pytest.approx(3 * mean)


@pytest.mark.parametrize("dispersion", [1.0, 4.0])
def test_counts_of_two_intervals_add_up_to_those_of_their_union(dispersion: float) -> None:
    arrivals = ArrivalCounts(10.0, dispersion)
    short, rest, whole = count_table(arrivals, np.array([0.3, 0.9, 1.2]), 60)
    assert np.convolve(short, rest)[:60] == pytest.approx(whole, abs=1e-14)


@pytest.mark.parametrize("dispersion", [1.0, 4.0])
def test_the_tail_is_exact_far_out(dispersion: float) -> None:
    arrivals = ArrivalCounts(10.0, dispersion)
    table = count_table(arrivals, np.array([0.5]), 2000)[0]
    tail = more_than(arrivals, np.array([4.0, 30.0, 90.0]), np.array([0.5]))
    assert tail == pytest.approx([math.fsum(table[k + 1 :]) for k in (4, 30, 90)], rel=1e-9)


@pytest.mark.parametrize("dispersion", [1.0, 4.0])
@pytest.mark.parametrize("arrivals", [(0.0, 5.0), (10.0, 0.0), (10.0, -1.0)])
def test_no_arrivals_at_zero_load_or_in_zero_time(
    arrivals: tuple[float, float], dispersion: float
) -> None:
    qps, seconds = arrivals
    table = count_table(ArrivalCounts(qps, dispersion), np.array([seconds]), 5)
    assert table.tolist() == [pytest.approx([1, 0, 0, 0, 0], abs=1e-200)]
    assert more_than(
        ArrivalCounts(qps, dispersion), np.array([0.0]), np.array([seconds])
    ) == pytest.approx([0.0], abs=1e-200)


@pytest.mark.parametrize("qps", [-1.0, math.inf, math.nan])
def test_invalid_load_is_refused(qps: float) -> None:
    with pytest.raises(SelectionError, match="must be 0 or above"):
        ArrivalCounts(qps)


@pytest.mark.parametrize("dispersion", [0.5, math.nan, math.inf])
def test_arrivals_more_regular_than_poisson_are_refused_with_a_remedy(dispersion: float) -> None:
    with pytest.raises(SelectionError, match="give 1 for more regular"):
        ArrivalCounts(10.0, dispersion)


@given(st.floats(0, 1e4), st.floats(1, 50), st.floats(0, 10), st.integers(1, 300))
@example(1.0, 1 + 2**-52, 1.0, 2)
def test_counts_are_probabilities(
    qps: float, dispersion: float, seconds: float, below: int
) -> None:
    arrivals, stretch = ArrivalCounts(qps, dispersion), np.array([seconds])
    table = count_table(arrivals, stretch, below)[0]
    tail = float(more_than(arrivals, np.array([below - 1.0]), stretch)[0])
    assert table.min() >= 0
    assert 0 <= tail <= 1
    assert table.sum() + tail == pytest.approx(1, abs=1e-8)
