"""The packing formula is exact: it equals brute force, and best fit reaches it."""

from collections.abc import Iterable
from itertools import count, pairwise
from operator import mul

from hypothesis import example, given
from hypothesis import strategies as st

from control.policies.compass.packing import (
    EMPTY_ROWS,
    FREE_GIVES,
    GIVES,
    QUARTERS,
    TAKES,
    Sizes,
    gpus,
    packed_items,
)

ITEMS = st.lists(st.integers(1, 4), max_size=7)
FREE = st.lists(st.integers(1, 3), max_size=3)
COUNTS = st.tuples(*[st.integers(0, 6)] * 4)
NONE_FREE = (0, 0, 0)


def sizes(quarters: list[int]) -> Sizes:
    """Return the number of items of 1, 2, 3 and 4 quarters."""
    one, two, three, four = (quarters.count(each) for each in range(1, QUARTERS + 1))
    return one, two, three, four


def fits(items: list[int], bins: list[int]) -> bool:
    """Return whether a placement of all items exists."""
    if not items:
        return True
    head, rest = items[0], items[1:]
    tried = set()
    for index, room in enumerate(bins):
        if room >= head and room not in tried:
            tried.add(room)
            if fits(rest, [*bins[:index], room - head, *bins[index + 1 :]]):
                return True
    return False


def brute_force(items: list[int], free: list[int]) -> int:
    falling = sorted(items, reverse=True)
    opened = 0
    while not fits(falling, [*free, *[QUARTERS] * opened]):
        opened += 1
    return opened


@given(ITEMS)
def test_the_formula_equals_brute_force(items: list[int]) -> None:
    assert gpus(sizes(items)) == brute_force(items, [])


@given(ITEMS, FREE)
def test_the_formula_equals_brute_force_beside_partly_used_gpus(
    items: list[int], free: list[int]
) -> None:
    counted = [free.count(quarters) for quarters in (1, 2, 3)]
    assert gpus(sizes(items), counted) == brute_force(items, free)


@given(st.lists(st.integers(1, 4), max_size=40), st.lists(st.integers(1, 3), max_size=12))
def test_best_fit_attains_the_formula_and_overfills_no_gpu(
    items: list[int], free: list[int]
) -> None:
    placed = packed_items(items, free)
    used = [0] * len(placed.free)
    for item, gpu in zip(items, placed.gpu, strict=True):
        used[gpu] += item
    before = [*free, *[QUARTERS] * (len(placed.free) - len(free))]
    assert [room - taken for room, taken in zip(before, used, strict=True)] == list(placed.free)
    assert min(placed.free, default=0) >= 0
    counted = [free.count(quarters) for quarters in (1, 2, 3)]
    assert len(placed.free) - len(free) == gpus(sizes(items), counted)


def hold(items: tuple[int, ...], free: tuple[int, ...], opened: int, rows: Iterable[int]) -> bool:
    """Return whether the conditions of these rows hold for items on opened GPUs."""
    return all(
        sum(map(mul, TAKES[row], items))
        <= GIVES[row] * opened + sum(map(mul, FREE_GIVES[row], free))
        for row in rows
    )


@example((1, 0, 0, 1), (0, 0, 3))  # a whole GPU, for which no other row stands
@example((0, 1, 0, 1), (0, 0, 3))
@example((0, 0, 1, 1), (0, 0, 3))
@given(COUNTS, st.tuples(*[st.integers(0, 4)] * 3))
def test_the_rows_of_the_linear_program_are_the_formula(
    items: tuple[int, ...], free: tuple[int, ...]
) -> None:
    opened = next(n for n in count() if hold(items, free, n, range(len(TAKES))))
    assert opened == gpus(items, free)
    empty = next(n for n in count() if hold(items, NONE_FREE, n, EMPTY_ROWS))
    assert empty == gpus(items)


def test_three_quarters_do_not_divide_a_gpu() -> None:
    # Compass, Appendix B packs by the sum: 2 GPUs for {.75, .75, .5}; no such packing exists.
    assert gpus(sizes([3, 3, 2])) == 3


def test_more_items_never_need_fewer_gpus() -> None:
    needed = [gpus((n, n, n, n)) for n in range(20)]
    assert all(one <= more for one, more in pairwise(needed))
