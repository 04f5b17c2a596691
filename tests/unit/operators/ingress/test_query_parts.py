"""Queries above the largest size, split into parts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.ingress.query_parts import UnfitQuery, even_parts, sized_items
from operators.record_size import MOST_BYTES
from operators.serving.sized import Sized
from schemas.pipeline import MOST_PARTS, QuerySize
from schemas.records import FULL_CREDIT, Item, Query, Value

SIZES = QuerySize(most=100, split="rank.parts:halves")


def by_bytes(payload: Value, size: int, most: int) -> Sequence[Sized]:
    assert isinstance(payload, bytes)
    return [
        Sized(payload[at : at + most], len(payload[at : at + most])) for at in range(0, size, most)
    ]


@given(st.integers(1, 1000))
def test_parts_fit_make_up_the_query_and_share_its_credit(size: int) -> None:
    payload = bytes(at % 256 for at in range(size))
    items = sized_items(Query(payload=payload, size=size), SIZES, by_bytes)
    assert b"".join(item.value for item, _ in items) == payload  # type: ignore[misc]
    assert sum(item.credit for item, _ in items) == FULL_CREDIT
    assert all(1 <= part <= 100 for _, part in items)
    assert [item.branch for item, _ in items] == sorted({item.branch for item, _ in items})


def test_a_query_that_fits_is_one_item_without_a_call_of_the_function() -> None:
    def never(payload: Value, size: int, most: int) -> Sequence[Sized]:
        raise AssertionError

    assert sized_items(Query(payload=b"x", size=100), SIZES, never) == [(Item(value=b"x"), 100)]


def test_sizes_alone_are_split_evenly() -> None:
    assert [each.size for each in even_parts(None, 250, 100)] == [84, 83, 83]


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (0, "size 0 is not from 1 to 100000; split the query"),
        (100 * MOST_PARTS + 1, "size 100001 is not from 1 to 100000"),
        (10**9, "size 1000000000 is not from 1 to 100000"),
    ],
)
def test_sizes_that_no_number_of_parts_covers_are_refused(size: int, says: str) -> None:
    with pytest.raises(UnfitQuery, match=says):
        sized_items(Query(payload=b"", size=size), SIZES, even_parts)


def test_without_a_function_a_query_above_the_largest_size_is_refused() -> None:
    with pytest.raises(UnfitQuery, match="size 101 is not from 1 to 100; split the query"):
        sized_items(Query(payload=b"", size=101), QuerySize(most=100), None)
    with pytest.raises(UnfitQuery, match="size 101 is not from 1 to 100; split the query"):
        sized_items(Query(payload=b"", size=101), QuerySize(most=100), even_parts)


def test_a_payload_that_no_record_holds_is_refused() -> None:
    with pytest.raises(UnfitQuery, match="fits no record"):
        sized_items(Query(payload=b"x" * (MOST_BYTES + 1), size=1), SIZES, even_parts)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ([], "rank.parts:halves, must return a list of 1 to 1000 Sized"),
        ([b"x", b"y"], "must return a list of 1 to 1000 Sized"),
        ([Sized(b"x", 150)], "parts of 150 in all and 150 at most of a query of size 150"),
        ([Sized(b"x", 100), Sized(b"y", 10)], "parts of 110 in all .* make parts of 100 at most"),
        (None, "raised TypeError"),
    ],
)
def test_invalid_result_of_the_split_function_is_reported_in_one_sentence(
    made: object, says: str
) -> None:
    with pytest.raises(UnfitQuery, match=says):
        sized_items(Query(payload=b"x", size=150), SIZES, lambda *_: made)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("no header"), "raised ValueError: no header for a query of size 150"),
        (SystemExit("no licence"), "raised SystemExit: no licence for a query of size 150"),
        (BaseException("a panic"), "raised BaseException: a panic for a query of size 150"),
    ],
)
def test_error_of_the_split_function_is_reported(error: BaseException, says: str) -> None:
    def broken(payload: Value, size: int, most: int) -> Sequence[Sized]:
        raise error

    with pytest.raises(UnfitQuery, match=says):
        sized_items(Query(payload=b"x", size=150), SIZES, broken)


def test_parts_are_in_the_form_in_which_values_travel() -> None:
    parts = [Sized((1, (2, 3)), 100), Sized(np.float32(0.5), 50)]
    items = sized_items(Query(payload=b"x", size=150), SIZES, lambda *_: parts)
    assert [item.value for item, _ in items] == [[1, [2, 3]], 0.5]


@pytest.mark.parametrize("value", [object(), {1: "a"}, {"a": {"b": b"c"}}, b"x" * (MOST_BYTES + 1)])
def test_a_part_that_cannot_be_sent_is_refused(value: Any) -> None:
    parts = [Sized(value, 100), Sized(b"y", 50)]
    with pytest.raises(UnfitQuery, match=r"rank\.parts:halves, made a part that cannot be sent: a"):
        sized_items(Query(payload=b"x", size=150), SIZES, lambda *_: parts)
