"""How long a reader lets records gather: not at all while each comes alone, longer under load."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.coalescing import LEAST_S, MANY, MOST_S, Coalescing, longest_wait_s


def waits(fetches: list[int], most_s: float = MOST_S) -> list[float]:
    """Return the wait after each fetch of so many records."""
    reader, found = Coalescing(most_s), []
    for records in fetches:
        reader.fetched(records)
        found.append(reader.wait_s)
    return found


def test_records_that_come_alone_never_wait() -> None:
    assert waits([1] * 5) == [0.0] * 5


def test_waits_grow_under_load_up_to_the_longest_and_end_with_it() -> None:
    grown = waits([MANY] * 5)
    assert grown[0] == LEAST_S
    assert all(later in (2 * wait, MOST_S) for wait, later in itertools.pairwise(grown))
    assert grown[-1] == MOST_S
    assert waits([MANY] * 5 + [1] * 3)[-1] == 0.0


def test_a_few_records_keep_the_wait_as_it_is() -> None:
    assert waits([2, 3]) == [0.0, 0.0]
    assert waits([MANY, 2, 3])[-1] == LEAST_S


@given(st.lists(st.integers(0, 500)), st.floats(0.0, 0.01))
def test_no_wait_is_longer_than_allowed(fetches: list[int], most_s: float) -> None:
    assert all(0.0 <= wait_s <= most_s for wait_s in waits(fetches, most_s))


def test_the_longest_wait_is_a_hundredth_of_the_slo() -> None:
    assert longest_wait_s(0.25) == 0.0025
    assert longest_wait_s(60.0) == MOST_S
    assert longest_wait_s(0.05) == 0.0  # the client cannot wait for half a millisecond
