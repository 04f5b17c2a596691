import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policies.kairos.query_sizes import (
    SizeDistribution,
    SizesError,
    observed_sizes,
    parsed_sizes,
)


def test_a_file_of_sizes_is_normalised() -> None:
    found = parsed_sizes("size,probability\n10,0.25\n20,0.7500003\n", "sizes.csv")
    assert found.sizes == (10, 20)
    assert sum(found.probabilities) == pytest.approx(1.0, abs=1e-15)
    assert found.mean == pytest.approx(17.5, abs=1e-4)
    assert (found.quantile(0.249), found.quantile(0.26), found.quantile(1.0)) == (10, 20, 20)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "sizes.csv:1: the header must be"),
        ("10,1\n", "sizes.csv:1: the header must be"),
        ("size,probability\n", "has a header only"),
        ("size,probability\n0,1\n", "sizes.csv:2: size 0 must be from 1"),
        ("size,probability\n2000000000,1\n", "sizes.csv:2: size 2000000000 must be from 1"),
        ("size,probability\n10,x\n", "sizes.csv:2: '10,x'"),
        ("size,probability\n10\n", "sizes.csv:2: '10' is no line"),
        ("size,probability\n10,0.5\n20,0.2\n", "sum to 0.7; they must sum to 1"),
        ("size,probability\n20,0.5\n10,0.5\n", "sizes must ascend"),
        ("size,probability\n10,-0.5\n20,1.5\n", "must be from 0 to 1"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_the_line(text: str, says: str) -> None:
    with pytest.raises(SizesError, match=says):
        parsed_sizes(text, "sizes.csv")


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=400), st.integers(1, 50))
def test_classes_of_observed_sizes_never_understate_a_size(sizes: list[int], most: int) -> None:
    found = observed_sizes(sizes, most)
    assert len(found.sizes) <= most
    assert found.sizes[-1] == max(sizes)
    assert found.mean >= sum(sizes) / len(sizes) - 1e-6


def test_observed_sizes_are_their_frequencies() -> None:
    assert observed_sizes([3, 1, 3, 3]) == SizeDistribution((1, 3), (0.25, 0.75))
    with pytest.raises(SizesError, match="no sizes were observed"):
        observed_sizes([])
