from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from control.policies.kairos.matching import (
    LARGE,
    LEAST_COST,
    device_costs,
    matched,
)

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


@settings(max_examples=30, deadline=None)
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
