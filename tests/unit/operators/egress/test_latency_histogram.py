"""Latencies in buckets, and quantiles derived from them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.egress.latency_histogram import bucket, quantile_s

LATENCIES = st.lists(st.floats(2e-4, 90.0), min_size=1, max_size=200)


def counted(latencies_s: list[float]) -> Counter[str]:
    return Counter(map(bucket, latencies_s))


def test_a_bucket_is_named_for_the_longest_latency_it_holds() -> None:
    assert [bucket(x) for x in (0.0, 1e-4, 1.01e-4, 0.0128, 100.0, 1e3)] == [
        "latency_s/0.0001",
        "latency_s/0.0001",
        "latency_s/0.0001189",
        "latency_s/0.0128",
        "latency_s/104.9",
        "latency_s/inf",
    ]


@given(LATENCIES, st.floats(0.01, 1.0))
def test_a_quantile_lies_within_a_bucket_of_the_exact_one(
    latencies_s: list[float], quantile: float
) -> None:
    ordered = sorted(latencies_s)
    exact = next(x for i, x in enumerate(ordered, 1) if i >= quantile * len(ordered) - 1e-9)
    found = quantile_s(counted(latencies_s), quantile)
    assert found is not None
    assert exact / 1.19 <= found * (1 + 1e-6)
    assert found <= exact * 1.19 * (1 + 1e-6)


@given(LATENCIES)
def test_quantiles_grow(latencies_s: list[float]) -> None:
    told = [quantile_s(counted(latencies_s), q) or 0.0 for q in (0.1, 0.5, 0.9, 0.99, 1.0)]
    assert told == sorted(told)


def test_without_latencies_there_is_no_quantile() -> None:
    assert quantile_s({"answered": 3.0}, 0.5) is None


def test_rates_do_as_well_as_counts() -> None:
    counts = counted([0.01, 0.02, 0.03, 0.4])
    rates = {name: count / 3 for name, count in counts.items()}
    assert quantile_s(rates, 0.5) == pytest.approx(quantile_s(counts, 0.5))


def test_latency_beyond_all_buckets_is_reported_as_the_highest_bound() -> None:
    assert quantile_s(counted([1e3]), 0.5) == pytest.approx(104.8576)
