import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.kairos_rivals import RIVALS, evaluations

SPACE = np.array([(a, b) for a in range(6) for b in range(6) if a + b and a + b < 7])


@pytest.mark.parametrize("name", RIVALS)
@given(weights=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)), seed=st.integers(0, 99))
def test_search_finds_the_best_mix_of_a_monotone_space(
    name: str, weights: tuple[float, float], seed: int
) -> None:
    values = SPACE @ np.array(weights)
    found = evaluations(RIVALS[name], SPACE, values, seed)
    assert 1 <= found <= len(SPACE)
    assert found == evaluations(RIVALS[name], SPACE, values, seed)


def test_a_search_that_learns_needs_fewer_mixes_than_a_random_one() -> None:
    values = SPACE @ np.array([2.0, 1.0]) - 0.3 * ((SPACE - 3) ** 2).sum(axis=1) + 20
    mean = {
        name: np.mean([evaluations(propose, SPACE, values, seed) for seed in range(20)])
        for name, propose in RIVALS.items()
    }
    assert mean["Bayesian"] < mean["random"]
