"""Inputs of the sizes drawn by a load, from a workload that makes them."""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import PipelineError
from headrace.load.load import drawn_sizes, inputs_of

RNG = np.random.default_rng(0)
ANSWERS = Path(__file__).parents[4] / "examples" / "answers" / "pipeline.yaml"


class OfAnySize:
    """Queries of one byte."""

    def queries(self, rng: np.random.Generator) -> Iterator[tuple[bytes, Any]]:
        return cycle([(b"a", "a"), (b"b", "b")])


class OfSizes(OfAnySize):
    """Two queries of each size up to 4."""

    def sized_queries(self, size: int, rng: np.random.Generator) -> list[tuple[bytes, Any]]:
        return [(b"x" * size, 1), (b"y" * size, 2)] if size <= 4 else []


@given(st.lists(st.integers(1, 4), min_size=1, max_size=40))
def test_each_query_has_an_input_of_its_size(sizes: list[int]) -> None:
    found = inputs_of(OfSizes(), len(sizes), sizes, RNG)
    assert [len(payload) for payload, _ in found] == sizes
    for size in set(sizes):
        own = [truth for payload, truth in found if len(payload) == size]
        assert own == list(islice(cycle([1, 2]), len(own)))


def test_inputs_of_any_size_are_sent_where_the_workload_makes_no_others() -> None:
    assert inputs_of(OfAnySize(), 3, (4, 1, 2), RNG) == [(b"a", "a"), (b"b", "b"), (b"a", "a")]
    assert len(inputs_of(OfSizes(), 2, (), RNG)) == 2  # queries have no sizes


def test_a_size_without_an_input_is_an_error() -> None:
    with pytest.raises(PipelineError, match="no query of the size 5; it must have one at least"):
        inputs_of(OfSizes(), 2, (1, 5), RNG)


def test_without_a_distribution_a_load_sends_no_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    """The load in examples/answers/README.md was refused: only inner items have sizes there."""
    assert drawn_sizes(read_pipeline_file(ANSWERS), None, 3, RNG) == ()
    assert "every query has size 1" in capsys.readouterr().err
