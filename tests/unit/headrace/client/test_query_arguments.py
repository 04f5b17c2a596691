"""Arguments of a call of ``headrace.Client``."""

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from headrace.client.query_arguments import query_of, seconds
from schemas.records import Query

NOW_S = 1.7e9


def the_query(payload: Any = b"x", *, raw: bool = True, **more: Any) -> Query:
    return query_of(payload, **{"id": "q", "deadline_s": NOW_S, "raw": raw, **more})


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (None, None), (0.3, 0.3), (2, 2.0), (-1.0, -1.0), (np.float32(0.5), 0.5),
        (Fraction(1, 2), 0.5), ("2s", 2.0), ("300ms", 0.3), ("500 us", 5e-4),
    ],
)  # fmt: skip
def test_a_time_is_a_number_of_seconds_or_a_text_as_in_the_pipeline_file(
    said: Any, found: float | None
) -> None:
    assert seconds("deadline", said) == found


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("2", "deadline is '2' without a unit; write 2ms or 2s"),
        ("2h", "deadline is '2h', but 'h' is no unit here; use us, ms or s"),
        ("{s}", "deadline is '{s}', which is no duration; write one such as 300ms"),
        ("soon", "deadline is 'soon', which is no duration; write one such as 300ms"),
        (True, "deadline is True, which is no duration; write one such as 300ms"),
        (b"2s", "deadline is b'2s', which is no duration; write one such as 300ms"),
        (math.nan, "deadline is nan; say seconds, as in 0.3, or a text such as 300ms"),
    ],
)
def test_another_time_is_refused_with_what_to_write(said: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        seconds("deadline", said)


def test_a_query_has_a_session_and_a_size() -> None:
    query = Query(payload=b"x", id="q", deadline_s=NOW_S, slo_class="a", session="s", size=3)
    assert the_query(slo_class="a", session="s", size=3) == query


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"payload": "x"}, "the payload is str, but a raw input topic takes bytes"),
        ({"id": 7}, "id is 7; it must be a str"),
        ({"session": None}, "session is None; it must be a str"),
        ({"slo_class": b"a"}, "slo_class is b'a'; it must be a str"),
        ({"size": "3"}, "size is '3'; it must be a whole number from 1"),
        ({"size": True}, "size is True; it must be a whole number from 1"),
        ({"size": 0}, "the query's size is 0; it must be 1 or more"),
        ({"session": "a\n"}, "the query's session is 'a\\n'; write it without control characters"),
    ],
)
def test_an_argument_that_no_query_can_have_is_named(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        the_query(**more)


def test_any_value_is_a_payload_unless_the_topic_takes_bytes() -> None:
    assert the_query({"a": 1}, raw=False).payload == {"a": 1}
