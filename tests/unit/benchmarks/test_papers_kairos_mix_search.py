import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.kairos_mix_search import search

SPACE = np.array([(a, b) for a in range(5) for b in range(5) if a + b])
PRICES = SPACE @ np.array([0.5, 0.2])


def _carried(mix: tuple[int, ...]) -> float:
    return 3 * min(mix[0], 2) + min(mix[1], 3)  # more devices never carry less


@given(st.lists(st.floats(0, 5), min_size=len(SPACE), max_size=len(SPACE)))
def test_search_with_a_true_bound_finds_the_best_mix(slack: list[float]) -> None:
    true = np.array([_carried(tuple(row)) for row in SPACE.tolist()])
    found = search(SPACE, true + np.array(slack), PRICES, _carried)
    assert found.qps == true.max()
    assert found.qps == _carried(found.counts)


def test_contained_and_outbid_mixes_are_not_evaluated() -> None:
    bounds = np.array([_carried(tuple(row)) for row in SPACE.tolist()])
    found = search(SPACE, bounds, PRICES, _carried)
    # Ties with the best mix are kept; mixes contained in an evaluated one are not.
    assert [mix for mix, _ in found.evaluated] == [(2, 3), (2, 4), (3, 3), (3, 4), (4, 3), (4, 4)]


def test_cheapest_mix_among_equal_bounds_is_evaluated_first_and_wins() -> None:
    counts = np.array([[4, 0], [0, 4], [2, 2]])
    bounds = np.array([4.0, 4.0 * (1 - 1e-9), 4.0])
    found = search(counts, bounds, counts @ np.array([0.5, 0.2]), lambda _: 3.0)
    assert found.counts == (0, 4)
