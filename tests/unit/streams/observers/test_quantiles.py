"""Quantiles of a stream: within the promised error, in bounded memory."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.observers.quantiles import GROWTH, Quantiles


def counted(values: list[float]) -> Quantiles:
    quantiles = Quantiles()
    for value in values:
        quantiles.add(value)
    return quantiles


@given(
    st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200),
    st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]),
)
def test_a_quantile_is_the_exact_one_to_within_a_thousandth(
    values: list[float], quantile: float
) -> None:
    exact = sorted(values)[math.ceil(quantile * len(values)) - 1]
    assert counted(values).at(quantile) == pytest.approx(exact, rel=1e-3)


def test_without_values_there_is_no_quantile() -> None:
    assert (Quantiles().at(0.5), Quantiles().mean) == (None, None)


def test_zero_is_a_value() -> None:
    assert counted([0.0, 0.0]).at(0.5) == pytest.approx(0.0, abs=1e-8)


def test_memory_is_bounded_by_the_range_of_the_values(rng: np.random.Generator) -> None:
    many = counted(rng.uniform(0.001, 1.0, 300_000).tolist())
    assert len(many._buckets) <= math.log(1000) / GROWTH + 2
