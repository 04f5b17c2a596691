"""Places on the input topic only grow, whatever the offsets of Kafka do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.input_place import (
    GENERATION,
    InputPlaces,
    InputStart,
    next_generation,
    note_of_base,
    place_of,
    start_of_input,
)

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


def test_a_topic_of_another_id_begins_a_generation_though_its_offsets_went_on() -> None:
    notes = {0: (500, note_of_base(0, "old")), 1: (7, note_of_base(GENERATION, "old"))}
    assert start_of_input((0, 1), notes, {}, "new") == InputStart(
        {0: GENERATION, 1: 2 * GENERATION}, {0: GENERATION, 1: 2 * GENERATION}, 2
    )
    assert start_of_input((0, 1), notes, {}, "old") == InputStart(
        {0: 500, 1: GENERATION + 7}, {}, 0
    )


@pytest.mark.parametrize(
    ("commit", "closed", "upto"),
    [
        (None, 0, None),  # a new partition
        (None, 50, GENERATION),  # its commit was deleted with the old topic
        ((0, "@old"), 0, None),  # nothing was read of the old one
        ((0, "1@old"), 0, GENERATION),
        ((1, "1@old"), 0, 2 * GENERATION),
        ((1, "@old"), GENERATION + 1, 2 * GENERATION),
    ],
)
def test_a_recreated_partition_begins_above_every_place_that_was_committed_or_closed(
    commit: tuple[int, str] | None, closed: int, upto: int | None
) -> None:
    start = start_of_input((0,), {0: commit} if commit else {}, {0: closed}, "new")
    assert start == InputStart(
        {} if upto is None else {0: upto}, {0: upto or 0}, int(upto is not None)
    )


def test_a_commit_of_an_earlier_generation_leaves_out_no_query_behind_the_closed_ones() -> None:
    start = start_of_input((0,), {0: (900, "@id")}, {0: GENERATION + 20}, "id")
    assert start.upto == {0: GENERATION + 20}
    again = start_of_input((0,), {0: (7, "@id")}, {0: GENERATION + 20}, "id")
    assert again.upto == {0: GENERATION + 7}  # what was read twice is closed
    assert (start.offsets, again.offsets) == ({0: 20}, {0: 7})


def test_a_commit_without_the_topics_id_and_a_broker_without_ids_are_of_the_same_topic() -> None:
    assert start_of_input((0,), {0: (5, "1")}, {}, "new") == InputStart({0: GENERATION + 5}, {}, 0)
    assert start_of_input((0,), {0: (5, "1@old")}, {}, "") == InputStart({0: GENERATION + 5}, {}, 0)


@given(st.integers(0, 1000), st.integers(0, 3), st.integers(0, 1000))
def test_a_commit_that_a_tool_has_reset_is_in_the_generation_of_the_closed_queries(
    offset: int, generation: int, closed: int
) -> None:
    base = generation * GENERATION
    start = start_of_input((0,), {0: (offset, "")}, {0: base + closed}, "id")
    assert start == InputStart({0: base + offset}, {}, 0)
    assert InputPlaces(start.upto).take(0, offset) == base + offset


@given(OFFSETS, st.integers(0, 59), st.integers(0, 59))
def test_whatever_ingress_had_committed_when_it_ended_it_reads_on_in_the_generation_that_is_closed(
    offsets: list[int], at: int, closed_at: int
) -> None:
    """Egress may close queries whose ingress ends before its commit."""
    places = InputPlaces({}, "id")
    taken = [places.take(0, offset) for offset in offsets]
    closed = taken[min(closed_at, len(taken) - 1)] + 1
    first = InputPlaces({}, "id")
    for offset in offsets[: at + 1]:
        first.take(0, offset)
    start = start_of_input((0,), {0: first.committed(0)}, {0: closed}, "id")
    assert start.upto[0] // GENERATION >= closed // GENERATION
    if first.upto[0] < closed:
        assert start.upto[0] <= closed  # no query between them is left out


def test_the_commits_bear_the_topics_id() -> None:
    places = InputPlaces({0: GENERATION + 3}, "an-id", regressed=2)
    places.take(0, 3)
    assert places.committed(0) == (4, "1@an-id")
    assert places.regressed == 2


@given(OFFSETS, st.integers(0, 59))
def test_a_held_query_of_an_earlier_generation_leads_to_no_record_before_the_regression(
    offsets: list[int], held_at: int
) -> None:
    places = InputPlaces({})
    found = [places.take(0, offset) for offset in offsets]
    held = found[min(held_at, len(offsets) - 1)]
    generation = found[-1] // GENERATION
    first = next(place for place in found if place // GENERATION == generation)
    assert place_of(*places.committed(0, held)) == max(held, first)


def test_a_log_that_ends_before_what_egress_has_closed_is_read_from_there_on() -> None:
    """The first record behind the cut is a different query than the previous one at its offset."""
    commits, closed = {0: (700, "")}, {0: 1000}
    assert start_of_input((0,), commits, closed, "id", {0: 1000}) == InputStart({0: 700}, {}, 0)
    start = start_of_input((0,), commits, closed, "id", {0: 950})
    assert start == InputStart({0: 1000}, {0: 1000}, 0)
    places = InputPlaces(start.upto)
    assert [places.take(0, offset) for offset in (900, 901)] == [GENERATION + 900, GENERATION + 901]


def test_places_closed_before_the_commit_or_in_an_earlier_generation_say_nothing_of_the_end() -> (
    None
):
    behind = start_of_input((0,), {0: (5, "1")}, {0: 1000}, "id", {0: 7})
    assert behind == InputStart({0: GENERATION + 5}, {}, 0)
    beyond = start_of_input((0,), {0: (1000, "")}, {0: 990}, "id", {0: 900})  # shown by its commit
    assert beyond == InputStart({0: 1000}, {}, 0)
