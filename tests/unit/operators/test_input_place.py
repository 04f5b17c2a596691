"""Places on the input topic only grow, whatever Kafka's offsets do."""

from hypothesis import given
from hypothesis import strategies as st

from operators.input_place import GENERATION, InputPlaces, next_generation, place_of

OFFSETS = st.lists(st.integers(0, 1000), min_size=1, max_size=60)


@given(OFFSETS)
def test_places_only_grow_and_each_is_given_once(offsets: list[int]) -> None:
    places = InputPlaces({})
    found = [places.take(0, offset) for offset in offsets]
    assert found == sorted(set(found))
    assert [place % GENERATION for place in found] == offsets


@given(OFFSETS, st.integers(0, 59))
def test_what_was_committed_leads_to_the_same_places(offsets: list[int], at: int) -> None:
    whole, first = InputPlaces({}), InputPlaces({})
    expected = [whole.take(0, offset) for offset in offsets]
    at = min(at, len(offsets) - 1)
    for offset in offsets[: at + 1]:
        first.take(0, offset)
    again = InputPlaces({0: place_of(*first.committed(0))})
    assert [again.take(0, offset) for offset in offsets[at + 1 :]] == expected[at + 1 :]


def test_passed_over_offsets_and_returns_are_counted() -> None:
    places = InputPlaces({1: 5})
    for offset in (5, 9, 10, 0, 1):
        places.take(1, offset)
    assert (places.missing, places.regressed) == (3, 1)


def test_a_generation_begins_above_every_place_of_the_one_before() -> None:
    assert next_generation(0) == GENERATION
    assert next_generation(GENERATION - 1) == GENERATION
    assert next_generation(GENERATION + 5) == 2 * GENERATION
