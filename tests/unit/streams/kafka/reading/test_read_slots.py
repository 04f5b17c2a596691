"""Slots that are read, given up and paused, in whatever order the orders arrive."""

from streams.kafka.reading.read_slots import ReadSlots

A, B, C = ("work", 0), ("work", 1), ("other", 0)


def test_a_slot_that_was_given_up_while_its_offset_was_looked_up_is_not_read() -> None:
    slots = ReadSlots()
    assert slots.leaves([A], 2) == []
    assert slots.begins([A, B], 1) == {B}
    assert slots.of([A, B]) == [B]
    assert slots.begins([A], 3) == {A}


def test_a_slot_that_one_assignment_gives_up_and_reads_is_read_again() -> None:
    slots = ReadSlots()
    slots.begins([A], 1)
    assert slots.leaves([A], 2) == [A]
    assert slots.of([A]) == []
    assert slots.begins([A], 2) == {A}
    assert slots.of([A]) == [A]


def test_only_slots_that_are_read_are_given_up_by_the_client() -> None:
    slots = ReadSlots()
    slots.begins([B, A], 1)
    assert slots.leaves([C, B, A], 2) == [A, B]
    assert slots.leaves([A], 3) == []


def test_exactly_the_wanted_slots_pause_among_those_of_one_node() -> None:
    slots = ReadSlots()
    assert slots.pauses([A, C], [A, B]) == ({A}, set())  # C is another node's
    assert slots.pauses([C], [C]) == ({C}, set())
    assert slots.pauses([A, B], [A, B]) == ({B}, set())
    assert slots.pauses([B], [A, B]) == (set(), {A})
    assert slots.paused == {B, C}
    assert slots.pauses((), [B]) == (set(), {B})
    assert slots.paused == {C}
