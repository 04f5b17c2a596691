"""Values that fit no record are reported before the broker refuses them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.per_query.routing import WeightedRoundRobin
from operators.dead_letter import dead_letter
from operators.record_size import MOST_BYTES, MOST_REASON_BYTES, brief, excess, record_size
from operators.serving.outbox import packed
from schemas.codec.single_object import encode
from schemas.effects import Arrived, Send
from schemas.records import DeadLetter, Garbled, Item, Origin, Work

RECORD_BYTES = 8 * 1024 * 1024


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        (b"abc", 3),
        ("abc", 3),
        (np.zeros((4, 4), np.uint8), 16),
        (np.zeros(4, np.float32), 16),
        ([b"ab", b"c"], 3),
        ({"crop": np.zeros(5, np.uint8)}, 9),
        (None, 8),
        (1.5, 8),
    ],
)
def test_a_value_weighs_about_its_bytes(value: object, bytes_: int) -> None:
    assert record_size(value) == bytes_


def test_text_near_the_limit_is_weighed_as_utf_8() -> None:
    assert record_size("é" * (MOST_BYTES // 2)) == MOST_BYTES // 2 * 2


def test_only_bytes_that_fit_no_record_are_excess() -> None:
    assert excess(bytes(MOST_BYTES)) == ""
    assert "fits no record" in excess(bytes(MOST_BYTES + 1))


def test_a_terminal_does_not_act_on_a_reason_that_quotes_an_input() -> None:
    assert brief("no postcode: \x1b]0;owned\x07\x9b2J\n\tat 3") == (
        "no postcode: \\x1b]0;owned\\x07\\x9b2J\n\tat 3"
    )


@given(st.text(max_size=3 * MOST_REASON_BYTES))
def test_a_brief_reason_fits_and_stays_as_it_is(reason: str) -> None:
    short = brief(reason)
    assert len(short.encode()) <= MOST_REASON_BYTES
    assert brief(short) == short


def test_items_that_together_exceed_a_record_travel_in_several() -> None:
    work = Work(query_id="q", origin=Origin(0, 0), task="a", created_s=0.0, deadline_s=1.0, epoch=1)
    items = [Item(branch=(0, i), credit=1, value=bytes(3 * 1024 * 1024)) for i in range(5)]
    sent = packed(
        [(work, "b", item) for item in items], {"b": WeightedRoundRobin([(0, 1.0)])}, 1, 4
    )
    assert [len(send.record.items) for send in sent] == [2, 2, 1]
    assert [i for send in sent for i in send.record.items] == items
    assert all(len(encode(send.record)) < RECORD_BYTES for send in sent)


def test_items_without_a_byte_travel_with_the_others() -> None:
    work = Work(query_id="q", origin=Origin(0, 0), task="a", created_s=0.0, deadline_s=1.0, epoch=1)
    items = [Item(branch=(0, i), value=value) for i, value in enumerate((b"", b"", b"x"))]
    one = {"b": WeightedRoundRobin([(0, 1.0)])}
    (send,) = packed([(work, "b", item) for item in items], one, 1, 4)
    assert list(send.record.items) == items


def test_a_dead_letter_of_any_size_fits_a_record() -> None:
    event = Arrived(Garbled(b"", ""), "queries", 1, 2, 3.0)
    whole = dead_letter(event, Garbled(b"x", "odd", id="q"), "n", 4.0)
    assert whole == Send(
        "dead-letters",
        DeadLetter(
            topic="queries", partition=1, offset=2, reason="odd", value=b"x", node="n", at_s=4.0
        ),
        key="q",
    )
    cut = dead_letter(event, Garbled(bytes(RECORD_BYTES), "odd"), "n", 4.0).record
    assert "the first" in cut.reason
    assert len(encode(cut)) < RECORD_BYTES
