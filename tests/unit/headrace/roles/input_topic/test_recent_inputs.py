"""A session's inputs are joined with their labels in the order of the labels."""

import pytest

from control.problem.sample_sets import InputSet
from headrace.roles.input_topic.recent_inputs import (
    MOST,
    MOST_LABELLED,
    MOST_UNLABELLED,
    InputJoin,
    awaited,
    between,
)
from schemas.records import Label


def joined(join: InputJoin) -> list[tuple[int, object, object]]:
    return [(each.number, each.payload, each.truth) for each in join.samples]


def test_samples_are_in_the_order_of_their_labels() -> None:
    join = InputJoin()
    for name in ("a", "b", "c"):
        join.add_input(name, name.upper())
    for name in ("c", "a"):
        join.add_label(Label(id=name, truth=f"true {name}"), 1.0)
    join.join(10.0)
    assert joined(join) == [(0, "C", "true c"), (1, "A", "true a")]


def test_an_input_that_comes_after_its_label_keeps_its_place() -> None:
    join = InputJoin()
    join.add_input("b", "B")
    join.add_label(Label(id="a", truth=1), 9.8)
    join.add_label(Label(id="b", truth=2), 9.9)
    join.join(10.0)
    assert joined(join) == []
    join.add_input("a", "A")
    join.join(10.1)
    assert joined(join) == [(0, "A", 1), (1, "B", 2)]


def test_labels_of_other_inputs_hold_up_the_others_for_half_a_second() -> None:
    join = InputJoin()
    join.add_input("b", "B")
    join.add_label(Label(id="another session's", truth=1), 9.8)
    join.add_label(Label(id="b", truth=2), 9.9)
    join.join(10.2)
    assert joined(join) == []
    join.join(10.4)
    assert joined(join) == [(0, "B", 2)]


def test_a_label_without_a_truth_makes_no_sample() -> None:
    join = InputJoin()
    join.add_input("a", "A")
    join.add_label(Label(id="a", right=1.0, of=1.0), 1.0)
    join.join(10.0)
    assert joined(join) == []


def test_of_too_many_inputs_without_a_label_the_newest_are_kept() -> None:
    join = InputJoin()
    for number in range(MOST_UNLABELLED + 1):
        join.add_input(str(number), number)
    for name in ("0", "1"):
        join.add_label(Label(id=name, truth=0), 1.0)
    join.join(10.0)
    assert joined(join) == [(0, 1, 0)]


def test_inputs_that_are_read_after_their_labels_are_kept_however_many_follow() -> None:
    """A profiler that was started later numbered the samples otherwise than the first one."""
    join = InputJoin()
    for name in ("0", "7"):
        join.add_label(Label(id=name, truth=0), 1.0)
    for number in range(2 * MOST_UNLABELLED):
        join.add_input(str(number), number)
    join.join(10.0)
    assert joined(join) == [(0, 0, 0), (1, 7, 0)]


def test_of_too_many_inputs_with_labels_the_oldest_are_kept() -> None:
    join = InputJoin()
    count = MOST_LABELLED + MOST_UNLABELLED + 1
    for number in range(count):
        join.add_label(Label(id=str(number), truth=0), 1.0)
    for number in range(count):
        join.add_input(str(number), number)
    join.join(10.0)
    assert [each.payload for each in join.samples[:MOST_LABELLED]] == list(range(MOST_LABELLED))


@pytest.mark.parametrize(
    ("count", "upto", "waited_s", "waits"),
    [
        (20, 20, 0.0, False),
        (20, 30, 4.9, True),
        (20, 30, 5.0, False),
        (35, 40, 0.0, False),  # a profile test is decided by the available samples
    ],
)
def test_the_first_thirty_samples_are_waited_for_and_no_more(
    count: int, upto: int, waited_s: float, waits: bool
) -> None:
    assert awaited(count, upto, waited_s) is waits


def test_inputs_between_two_times_are_in_the_order_of_their_stamps() -> None:
    taken = [
        ((2000, 1, 7), "cam", "c"), ((1999, 0, 9), "cam", "b"), ((2000, 0, 11), "other", "x"),
        ((2000, 1, 8), "cam", "d"), ((1500, 3, 1), "cam", "a"), ((3001, 0, 12), "cam", "late"),
        ((1499, 0, 8), "cam", "early"),
    ]  # fmt: skip
    inputs = InputSet("cam", 1.5, 3.0)
    for order in (taken, taken[::-1]):
        assert [(s.number, s.payload) for s in between(inputs, order)] == [
            (0, "a"), (1, "b"), (2, "c"), (3, "d"),
        ]  # fmt: skip
    many = [((2000, 0, offset), "cam", offset) for offset in range(MOST + 5)]
    assert [s.payload for s in between(inputs, many)] == list(range(MOST))
