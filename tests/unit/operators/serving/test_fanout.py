from collections import UserDict
from typing import Any

import numpy as np
import pytest

from operators.record_size import MOST_BYTES
from operators.serving.fanout import failed_item, outcome
from operators.timed_batch import OutOfTime
from schemas.enumerations import ReasonCode
from schemas.pipeline import Task
from schemas.records import ANSWERED, DROPPED, FAILED, FULL_CREDIT, End, Item
from tests.builders import a_hop, a_pipeline, an_end, an_item

PATH = (a_hop(),)
LEAF = a_pipeline().root
LOCATE = a_pipeline({"locate": ["read"], "read": []}).root
TWO = a_pipeline({"locate": ["read", "sort"], "read": [], "sort": []}).root
THIRD = FULL_CREDIT // 3


def failing(task: Task, output: Any) -> str:
    """Return why the only item from an output failed."""
    ((to, item),) = outcome(task, an_item(), PATH, output)
    assert to == ""
    assert item.end is not None
    assert item == Item(path=PATH, end=an_end(FAILED, task.name, item.end.reason))
    return item.end.reason


def test_an_item_whose_time_came_first_is_dropped_and_not_failed() -> None:
    ((to, item),) = outcome(LOCATE, an_item(), PATH, OutOfTime("no answer within 50 ms"))
    end = End(DROPPED, "locate", "no answer within 50 ms", ReasonCode.PAST_SAVING)
    assert (to, item) == ("", Item(path=PATH, end=end))


@pytest.mark.parametrize("output", [None, True, 3, 0.5, "text", b"bytes", [1, {"a": None}], {}])
def test_a_leafs_output_is_the_answer(output: Any) -> None:
    item = an_item(branch=(0, 1), credit=7)
    answer = Item(branch=(0, 1), credit=7, value=output, path=PATH, end=an_end(ANSWERED, "read"))
    assert outcome(LEAF, item, PATH, output) == [("", answer)]


def test_numbers_of_numpy_travel_as_pythons() -> None:
    ((_, item),) = outcome(LEAF, an_item(), PATH, np.float32(0.5))
    assert (type(item.value), item.value) == (float, 0.5)


def test_an_array_travels_as_it_is() -> None:
    array = np.zeros((2, 3), np.uint8)
    ((_, item),) = outcome(LEAF, an_item(), PATH, array)
    assert item.value is array


def test_children_share_the_credit_and_are_numbered_in_order() -> None:
    item = an_item(branch=(1, 4))
    assert outcome(LOCATE, item, PATH, ["a", "b", "c"]) == [
        ("read", Item(branch=(1, 4, 0, 0), credit=THIRD + 1, value="a", path=PATH)),
        ("read", Item(branch=(1, 4, 0, 1), credit=THIRD, value="b", path=PATH)),
        ("read", Item(branch=(1, 4, 0, 2), credit=THIRD, value="c", path=PATH)),
    ]


def test_branches_follow_the_order_of_the_children_in_the_pipeline_not_in_the_output() -> None:
    assert outcome(TWO, an_item(), PATH, {"sort": ["s"], "read": ["r", "q"]}) == [
        ("read", Item(branch=(0, 0), credit=THIRD + 1, value="r", path=PATH)),
        ("read", Item(branch=(0, 1), credit=THIRD, value="q", path=PATH)),
        ("sort", Item(branch=(1, 0), credit=THIRD, value="s", path=PATH)),
    ]


def test_a_child_may_be_left_out() -> None:
    ((to, item),) = outcome(TWO, an_item(), PATH, {"sort": ["s"]})
    assert (to, item.branch, item.credit) == ("sort", (1, 0), FULL_CREDIT)


@pytest.mark.parametrize("output", [[], (), {}, {"read": []}, np.zeros((0, 4))])
def test_without_children_the_credit_closes_with_an_empty_result(output: Any) -> None:
    item = an_item(branch=(0, 2), credit=9)
    closed = Item(branch=(0, 2), credit=9, path=PATH, end=an_end(ANSWERED, "locate"))
    assert outcome(LOCATE, item, PATH, output) == [("", closed)]


def test_the_rows_of_an_array_are_items() -> None:
    onward = outcome(LOCATE, an_item(), PATH, np.array([1, 2]))
    assert [(to, item.value) for to, item in onward] == [("read", 1), ("read", 2)]


def test_items_of_different_shapes_travel_side_by_side() -> None:
    crops = [np.zeros((2, 3)), np.zeros((4, 1))]
    onward = outcome(LOCATE, an_item(), PATH, {"read": crops})
    assert [item.value for _, item in onward] == crops


def test_an_exception_fails_its_own_item() -> None:
    assert failing(LEAF, ValueError("no digit in it")) == "no digit in it"
    assert failing(LOCATE, KeyError()) == "KeyError"


def test_an_exception_that_was_raised_is_named_with_its_type() -> None:
    with pytest.raises(ValueError, match="no digit in it") as raised:
        raise ValueError("no digit in it")
    assert failing(LEAF, raised.value).startswith("ValueError: no digit in it (at test_fanout.py:")


@pytest.mark.parametrize(
    "output", [b"x" * (MOST_BYTES + 1), ["x" * (MOST_BYTES + 1)], np.zeros(MOST_BYTES, np.int16)]
)
def test_an_output_that_fits_no_record_fails_its_item(output: Any) -> None:
    assert "MiB fits no record" in failing(LEAF, output)
    assert "MiB fits no record" in failing(LOCATE, [output])


class Odd:
    """An object that cannot be sent."""


@pytest.mark.parametrize("output", [Odd(), [Odd()], {1: 2}, 1 << 63, (1, {2}), "\ud800"])
def test_an_output_that_cannot_be_sent_fails_its_item_before_it_is_sent(output: Any) -> None:
    assert failing(LEAF, output)
    assert failing(LOCATE, [output])


def nested(levels: int, within: Any) -> Any:
    for _ in range(levels):
        within = [within]
    return within


def endless() -> list[Any]:
    found: list[Any] = []
    found += [found, found]
    return found


def endless_dict() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["a"] = found
    return found


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Lazy(UserDict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise LookupError(f"{key} is not loaded")


@pytest.mark.parametrize("output", [endless(), nested(3000, 1), {"a": endless()}, [endless_dict()]])
def test_an_output_that_is_nested_without_end_fails_its_item(output: Any) -> None:
    """A ``RecursionError`` here ended the worker, and every later one that read the item."""
    assert failing(LEAF, output) == "a value is nested more than 64 levels deep; flatten it"
    assert failing(LOCATE, [output]) == "a value is nested more than 64 levels deep; flatten it"


def test_a_tuple_at_the_deepest_level_travels() -> None:
    ((_, item),) = outcome(LEAF, an_item(), PATH, nested(63, (1,)))
    assert item.value == nested(64, 1)


def test_an_exception_without_words_fails_its_item() -> None:
    assert failing(LEAF, Mute()) == "Mute: its message cannot be shown (RuntimeError)"


def test_an_output_that_raises_when_it_is_read_fails_its_item() -> None:
    reason = failing(LOCATE, Lazy(read=[1]))
    assert reason.startswith("the output cannot be read: LookupError: read is not loaded")


def test_the_reason_names_the_type_that_cannot_be_sent() -> None:
    assert "Odd cannot travel between tasks" in failing(LEAF, Odd())
    assert "array of object cannot travel" in failing(LEAF, np.array([Odd()]))


@pytest.mark.parametrize("output", ["text", 3, None, np.array(3)])
def test_children_that_are_no_list_fail_the_item(output: Any) -> None:
    assert "return a list of items for each input" in failing(LOCATE, output)


def test_an_unknown_child_is_named_with_the_known_ones() -> None:
    assert failing(LOCATE, {"raed": []}) == (
        "the operator of task 'locate' gave items for 'raed'; its children are read"
    )


def test_a_list_for_two_children_does_not_say_whose_items_they_are() -> None:
    assert "task 'locate' has 2 children, so its operator returns a mapping" in failing(TWO, [1])


def test_more_children_than_credits_fail_the_item() -> None:
    ((to, item),) = outcome(LOCATE, an_item(credit=2), PATH, [1, 2, 3])
    assert (to, item.end) == (
        "",
        an_end(FAILED, "locate", "3 children cannot share 2 credits; fan out less"),
    )


def test_failure_with_text_that_is_not_utf8_is_still_reported() -> None:
    assert failed_item("read", an_item(), PATH, "bad \udcff byte").end == an_end(
        FAILED, "read", "bad ? byte"
    )


@pytest.mark.parametrize(
    ("output", "sent"),
    [
        ((1, 2), [1, 2]),
        ({"box": (0, 0, 4, 4), "parts": [("a", 1)]}, {"box": [0, 0, 4, 4], "parts": [["a", 1]]}),
    ],
)
def test_a_tuple_travels_as_a_list(output: Any, sent: Any) -> None:
    ((_, item),) = outcome(LEAF, an_item(), PATH, output)
    assert (item.value, item.end) == (sent, an_end(ANSWERED, LEAF.name))
    ((_, child),) = outcome(LOCATE, an_item(), PATH, [output])
    assert child.value == sent
