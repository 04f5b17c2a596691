"""headrace/results/statistics.py: means, their intervals, paired differences."""

from statistics import StatisticsError

import pytest

from headrace.results.statistics import Mean, difference, mean_of


def test_single_value_has_no_interval() -> None:
    assert mean_of([3.0]) == Mean(3.0, None, 1)
    assert not mean_of([3.0]).certain


def test_the_interval_is_students() -> None:
    # t for 95 % with 4 degrees of freedom is 2.7764; the standard deviation of 1..5 is 1.5811.
    found = mean_of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.value, found.half) == (3.0, pytest.approx(2.7764 * 1.5811 / 5**0.5, rel=1e-4))
    assert found.certain


def test_common_variation_does_not_widen_the_paired_difference() -> None:
    first, second = [1.0, 5.0, 9.0], [2.0, 6.1, 9.9]
    assert difference(second, first).certain
    assert not mean_of(first).certain
    assert difference(second, first).value == pytest.approx(1.0)


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match=r"longer|shorter"):
        difference([1.0, 2.0], [1.0])
    with pytest.raises(StatisticsError):
        mean_of([])
