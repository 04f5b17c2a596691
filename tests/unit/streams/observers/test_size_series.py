"""Sizes that come in runs are measured, logged and exported."""

import logging
from collections.abc import Sequence

import numpy as np
import pytest

from schemas.effects import QUERIES, Arrived
from schemas.records import Query
from streams.observers.size_series import FEWEST, SizeSeries


def seen(sizes: Sequence[int], series: SizeSeries | None = None) -> SizeSeries:
    series = series or SizeSeries("rank")
    for offset, size in enumerate(sizes):
        query = Query(payload=b"", size=size)
        series.saw("ingress-0", Arrived(query, QUERIES, 0, offset, 0.0), [], 0.0)
    return series


DRAWN = np.random.default_rng(0).choice((10, 100, 1000), 5 * FEWEST, p=(0.5, 0.4, 0.1)).tolist()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (DRAWN, 0.0),
        (sorted(DRAWN), 1.0),
        ([*([10] * 5 + [100] * 5)] * 500, 0.6),  # a run of five has one other neighbour in five
        ([10, 100] * 2500, -1.0),
        ([10] * 5000, 0.0),
    ],
    ids=["independent", "sorted", "runs", "alternating", "equal"],
)
def test_the_autocorrelation_of_consecutive_sizes_is_exported(
    sizes: list[int], expected: float
) -> None:
    ((name, labels, value),) = seen(sizes).samples()
    assert (name, labels) == ("size_autocorrelation_ratio", ())
    assert value == pytest.approx(expected, abs=0.05)


def test_few_queries_have_none() -> None:
    assert list(seen(sorted(DRAWN)[: FEWEST - 1]).samples()) == []


def test_runs_are_logged_once_until_sizes_are_independent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = [*([10] * 50 + [1000] * 50)] * 50
    with caplog.at_level(logging.WARNING, "headrace.node"):
        series = seen(DRAWN)
        assert not caplog.records
        seen(runs, series)
        assert len(caplog.records) == 1
        seen(DRAWN * 8, series)
        seen(runs, series)
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "sizes of consecutive queries are correlated"
    ] * 2
