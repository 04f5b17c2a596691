"""Slots that the client has silently stopped reading."""

from typing import Any

from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.reading.partition_reader import assign_anew
from streams.kafka.reading.silent_slots import SilentSlots, deletion_sentence, reread_sentence

A, B = ("work", 0), ("work", 1)


def reading(**offsets: int) -> SilentSlots:
    """Return a reader of slots after its first look."""
    slots = SilentSlots()
    for name, offset in offsets.items():
        slots.reads({"a": A, "b": B}[name], offset)
    assert slots.silent(()) == []
    return slots


def test_a_slot_behind_at_two_looks_without_a_record_is_read_anew() -> None:
    slots = reading(a=5, b=5)
    assert slots.silent(()) == [A, B]
    assert slots.stopped({A: 9, B: 5}, ()) == []
    assert slots.silent(()) == [A, B]
    assert slots.stopped({A: 12, B: 5}, ()) == [(A, 5)]


def test_a_record_between_the_looks_clears_it() -> None:
    slots = reading(a=5)
    slots.silent(())
    slots.stopped({A: 9}, ())
    slots.heard(A, 5)
    assert slots.silent(()) == []
    assert slots.silent(()) == [A]
    assert slots.stopped({A: 9}, ()) == []


def test_a_record_that_came_while_the_broker_was_asked_counts() -> None:
    slots = reading(a=5)
    slots.silent(())
    slots.stopped({A: 9}, ())
    slots.silent(())
    slots.heard(A, 5)
    assert slots.stopped({A: 9}, ()) == []


def test_a_fetch_that_takes_long_is_not_discarded_each_second() -> None:
    """A throttled ingress read nothing: each look discarded the fetch under way."""
    slots, due = reading(a=5), list[int]()
    for second in range(100):
        slots.silent(())
        if slots.stopped({A: 9 + second}, ()):
            due.append(second)
    assert due == [1, 2, 4, 8, 16, 32, 64, 96]
    slots.heard(A, 5)
    slots.silent(())
    slots.silent(())
    assert slots.stopped({A: 200}, ()) == []
    slots.silent(())
    assert slots.stopped({A: 200}, ()) == [(A, 6)]


def test_a_long_fetch_is_not_discarded_after_each_record_that_is_written_meanwhile() -> None:
    """With a record every three seconds, each look that followed one discarded the fetch."""
    slots, due = reading(a=5), list[int]()
    for second in range(100):
        slots.silent(())
        if slots.stopped({A: 9 + second // 3}, ()):
            due.append(second)
    assert due == [1, 3, 7, 12, 22, 39, 73]


def test_marks_behind_the_last_record_cost_one_assignment() -> None:
    slots = reading(a=5)
    found = []
    for _ in range(6):
        slots.silent(())
        found.append(slots.stopped({A: 6}, ()))
    assert found == [[], [(A, 5)], [], [], [], []]


def test_paused_slots_and_those_from_the_beginning_are_not_asked_about() -> None:
    slots = reading(a=5, b=-2)
    assert slots.silent({A}) == []
    slots.heard(B, 0)
    slots.silent({A})
    assert slots.silent({A}) == [B]


def test_a_slot_that_was_paused_while_the_broker_was_asked_is_found_when_it_is_read_again() -> None:
    slots = reading(a=5)
    slots.silent(())
    slots.stopped({A: 9}, ())
    slots.silent(())
    assert slots.stopped({A: 9}, {A}) == []
    found = []
    for _ in range(2):
        slots.silent(())
        found.append(slots.stopped({A: 9}, ()))
    assert found == [[], [(A, 5)]]


def test_a_slot_that_was_left_is_forgotten() -> None:
    slots = reading(a=5)
    slots.silent(())
    slots.stopped({A: 9}, ())
    slots.leaves(A)
    assert slots.silent(()) == []
    assert slots.stopped({A: 9}, ()) == []


def test_the_sentence_names_place_and_end() -> None:
    assert (
        reread_sentence([(A, 5)], {A: 9})
        == "the client stopped reading work-0 at 5 of 9; reading again"
    )


def test_records_that_were_deleted_before_they_were_read_are_found() -> None:
    """The client went on with the first record that was left, and nothing was logged."""
    slots = reading(a=5, b=5)
    slots.heard(A, 9)
    assert slots.skipped == [A]
    assert slots.deleted({A: 9, B: 0}) == [(A, range(5, 9))]
    assert slots.skipped == []
    assert slots.deleted({A: 9}) == []


def test_a_slot_whose_unread_records_were_all_deleted_has_not_stopped() -> None:
    """The log had a line that the client stopped reading it."""
    slots = reading(a=5)
    for deleted in ([(A, range(5, 9))], []):
        assert slots.silent(()) == [A]
        assert slots.deleted({A: 9}) == deleted
        assert slots.stopped({A: 9}, ()) == []
    slots.heard(A, 9)
    assert slots.skipped == []


def test_offsets_without_a_record_are_not_deleted_ones() -> None:
    slots = reading(a=5)
    slots.heard(A, 6)  # 5 is the mark of a transaction
    slots.heard(A, 9)
    slots.heard(A, 11)
    assert slots.deleted({A: 3}) == []
    assert slots.skipped == []


def test_of_several_gaps_between_two_looks_the_largest_counts() -> None:
    slots = reading(a=5)
    for offset in (6, 99, 101):
        slots.heard(A, offset)
    assert slots.deleted({A: 99}) == [(A, range(7, 99))]


def test_a_slot_whose_bounds_were_not_answered_is_asked_about_again() -> None:
    slots = reading(a=5)
    slots.heard(A, 9)
    assert slots.deleted({}) == []
    assert slots.skipped == [A]


def test_the_sentence_names_the_deleted_records() -> None:
    text = deletion_sentence([(A, range(5, 9)), (B, range(3, 4))])
    assert "before this role read them: work-0 from 5 to 8, work-1 from 3 to 3; their" in text
    assert "raise retention.ms and retention.bytes" in text


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40))
def test_a_reader_that_keeps_up_is_never_disturbed(steps: list[tuple[bool, int]]) -> None:
    """Records arrive at once: at each look the position is the end."""
    slots, end = reading(a=0), 0
    for looks, records in steps:
        for _ in range(records):
            slots.heard(A, end)
            end += 1
        if looks:
            asked = slots.silent(())
            assert slots.stopped(dict.fromkeys(asked, end), ()) == []


class Assigned:
    """A consumer that keeps its assignment, of logs that begin at offset 2."""

    def __init__(self) -> None:
        self.places: list[TopicPartition] = []
        self.sought: list[TopicPartition] = []

    def resume(self, places: list[TopicPartition]) -> None:
        """Do nothing."""

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        """Do nothing."""

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.places += places

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return 2, 9

    def seek(self, place: TopicPartition) -> None:
        self.sought.append(place)


def test_a_slot_is_read_anew_with_the_epoch_of_its_last_record() -> None:
    """Its log may have lost its end meanwhile and have other records at that offset."""
    client: Any = Assigned()
    assign_anew(client, [(A, 5), (B, 6)], {A: 9, B: 9}, {A: 3})
    assert [p.offset for p in client.places] == [2, 6]
    assert [(p.offset, p.leader_epoch) for p in client.sought] == [(5, 3)]
