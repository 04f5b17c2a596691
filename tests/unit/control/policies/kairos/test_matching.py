from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from control.policies.kairos.matching import (
    LARGE,
    LEAST_COST,
    PENALTY,
    MatchingWeights,
    costs_of,
    device_costs,
    matched,
)
from tests.property_examples import at_most

Rows = list[list[float]]


def _least(cost: Rows) -> float:
    m, n = len(cost), len(cost[0])
    if m > n:
        cost, m, n = [list(column) for column in zip(*cost, strict=True)], n, m
    return min(
        sum(cost[i][j] for i, j in enumerate(chosen)) for chosen in permutations(range(n), m)
    )


@st.composite
def _costs(draw: st.DrawFn) -> Rows:
    m, n = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    # Few distinct values cause ties, as among devices of one type.
    value = st.sampled_from([0.0, 0.5, 1.0, 2.5, 10.0]) | st.floats(-5, 10)
    return [[draw(value) for _ in range(n)] for _ in range(m)]


@settings(max_examples=at_most(100), deadline=None)
@given(_costs())
def test_a_matching_costs_what_the_best_permutation_costs(cost: Rows) -> None:
    pairs = matched(np.array(cost))
    assert len(pairs) == min(len(cost), len(cost[0]))
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    assert sum(cost[i][j] for i, j in pairs) == pytest.approx(_least(cost))


def test_a_pair_costs_its_device_seconds_less_the_wait_and_a_late_one_ten_times_the_slo() -> None:
    weights = MatchingWeights(slo_s=1.0, guard=0.02, urgency=0.5)
    finish = np.array([[0.2, 0.99], [0.2, 0.5]])  # 0.99 is in time, but not by the guard
    slack, wait, speeds = np.array([1.0, 0.4]), np.array([0.0, 0.6]), np.array([1.0, 0.5])
    cost = costs_of(weights, finish, finish, slack, wait, speeds)
    # The penalty is constant: times the speed of a cheap device it would not dominate.
    assert cost == pytest.approx(np.array([[0.2, PENALTY], [0.2 - 0.3, PENALTY]]))


def test_the_deadline_is_checked_with_the_worst_case_and_the_cost_is_that_of_the_mean() -> None:
    weights = MatchingWeights(slo_s=2.0, guard=0.0, urgency=0.0)
    finish, worst = np.array([[0.2, 0.3]]), np.array([[1.1, 1.0]])
    cost = costs_of(weights, finish, worst, np.array([1.0]), np.array([0.0]), np.ones(2))
    assert cost == pytest.approx(np.array([[PENALTY * 2.0, 0.3]]))
    assert matched(cost) == [(0, 1)]


@settings(max_examples=at_most(30), deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(0, 40), st.sampled_from([0.0, 0.3, 1.0]), st.booleans()
)
def test_a_prepared_matrix_costs_the_optimum(
    seed: int, wider: int, late: float, tied: bool
) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.uniform(-1, 5, (LARGE, LARGE + wider))
    if tied:  # devices of one type, late queries
        cost = np.repeat(cost[:, :1], cost.shape[1], axis=1) + rng.integers(0, 3, cost.shape)
    cost[rng.random(LARGE) < late] = 10.0  # queries that are late everywhere
    i, j = linear_sum_assignment(cost)
    pairs = matched(cost)
    assert [row for row, _ in pairs] == list(range(LARGE))
    assert len({column for _, column in pairs}) == LARGE
    assert sum(cost[pair] for pair in pairs) == pytest.approx(cost[i, j].sum())


def test_the_dearest_type_costs_one_and_an_idle_one_a_tenth_of_its_speed() -> None:
    speeds = np.array([1.0, 0.5, 0.25])
    found = device_costs(speeds, np.array([40.0, 20.0, 0.0]))
    assert found == pytest.approx([1.0, 0.5, LEAST_COST * 0.25])
    assert device_costs(speeds, np.zeros(3)) is speeds


def test_costs_are_relative_however_little_throughput_a_device_adds() -> None:
    speeds, marginal = np.array([1.0, 0.5]), np.array([0.2, 0.4])
    assert device_costs(speeds, marginal) == pytest.approx(np.array([0.5, 1.0]))
