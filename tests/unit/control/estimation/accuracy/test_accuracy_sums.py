import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.accuracy.accuracy_sums import Z_95, AccuracySums, merged_sums

SCORES = st.lists(
    st.integers(1, 8).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))), max_size=60
)


def sums(scores: list[tuple[int, int]]) -> AccuracySums:
    found = AccuracySums()
    for right, of in scores:
        found = found.plus(right, of)
    return found


def wilson(right: int, n: int) -> tuple[float, float]:
    p, z = right / n, Z_95
    root = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return tuple((p + z * z / (2 * n) + sign * root) / (1 + z * z / n) for sign in (-1, 1))  # type: ignore[return-value]


def test_accuracy_is_unknown_without_labels() -> None:
    assert AccuracySums().accuracy is None
    assert AccuracySums().interval() == (0.0, 1.0)


def test_eight_of_ten_have_the_published_wilson_interval() -> None:
    low, high = sums([(1, 1)] * 8 + [(0, 1)] * 2).interval()
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


@given(st.integers(0, 200), st.integers(1, 200))
def test_with_one_part_a_query_the_interval_is_wilsons(right: int, n: int) -> None:
    right = min(right, n)
    found = sums([(1, 1)] * right + [(0, 1)] * (n - right))
    assert found.interval() == pytest.approx(wilson(right, n), abs=1e-9)


@given(SCORES)
def test_the_interval_holds_the_accuracy_and_stays_within_0_and_1(
    scores: list[tuple[int, int]],
) -> None:
    found = sums(scores)
    low, high = found.interval()
    assert 0.0 <= low <= high <= 1.0
    if found.accuracy is not None:
        assert low <= found.accuracy <= high


@given(SCORES, SCORES)
def test_sums_of_two_groups_are_those_of_all(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    assert merged_sums((sums(one), sums(other))) == sums([*one, *other])


def test_parts_that_fail_together_widen_the_interval() -> None:
    together = sums([(5, 5)] * 80 + [(0, 5)] * 20).interval()
    single = sums([(1, 1)] * 80 + [(0, 1)] * 20).interval()
    assert together == pytest.approx(single)


def test_the_interval_covers_the_true_accuracy_in_about_95_of_100_samples() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(600):
        # Each query has its own rate of correct parts, with mean 0.8.
        rates = rng.beta(8, 2, 150)
        low, high = sums([(int(rng.binomial(5, rate)), 5) for rate in rates]).interval()
        covered += low <= 0.8 <= high
    assert 0.92 <= covered / 600 <= 0.98
