import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.policies.kairos.mix_search import climb, search

SPACE = np.array([(a, b) for a in range(5) for b in range(5) if a + b])


def _carried(mix: tuple[int, ...]) -> float:
    return 3 * min(mix[0], 2) + min(mix[1], 3)  # more never carries less


@given(st.lists(st.floats(0, 5), min_size=len(SPACE), max_size=len(SPACE)))
def test_with_a_true_bound_the_best_of_all_mixes_is_found(slack: list[float]) -> None:
    true = np.array([_carried(tuple(row)) for row in SPACE.tolist()])
    found = search(SPACE, true + np.array(slack), _carried)
    assert found.qps == true.max()
    assert found.qps == _carried(found.counts)


def test_contained_and_outbid_mixes_are_not_evaluated() -> None:
    bounds = np.array([_carried(tuple(row)) for row in SPACE.tolist()])
    found = search(SPACE, bounds, _carried)
    # Ties with the best are kept, those contained in an evaluated one are not.
    assert [mix for mix, _ in found.evaluated] == [(2, 3), (2, 4), (3, 3), (3, 4), (4, 3), (4, 4)]


def test_a_climb_ends_at_the_top() -> None:
    def around(mix: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [(mix[0] + 1, mix[1]), (mix[0], mix[1] + 1)]

    found = climb([(0, 0)], around, lambda mix: -((mix[0] - 2) ** 2) - (mix[1] - 3) ** 2)
    assert (found.counts, found.qps) == ((2, 3), 0)
