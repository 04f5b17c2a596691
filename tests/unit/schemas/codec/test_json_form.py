"""JSON for people: answers out, commands in; and queries as raw values."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec.json_form import (
    answer_to_json,
    command_from_json,
    decode_any,
    origin_of_answer,
    query_from_raw,
    to_json,
)
from schemas.codec.raw import query_fault
from schemas.codec.single_object import CodecError, encode
from schemas.enumerations import ReasonCode
from schemas.records import (
    Answer,
    Command,
    DeadLetter,
    End,
    Garbled,
    Hop,
    Origin,
    Plan,
    Query,
    Settings,
    Value,
)


def an_answer(result: Value = None) -> Answer:
    hop = Hop(
        task="read", variant="forest", worker="w-1", epoch=4, received_s=10.0, started_s=10.25,
        finished_s=10.5, batch=8, released="full",
    )  # fmt: skip
    return Answer(
        id="q-1", origin=Origin(2, 77), outcome="answered", result=result, created_s=9.5,
        deadline_s=12.5, answered_s=11.0, epoch=4, expected_accuracy=0.5, paths=((hop,),),
        ends=(End("answered", "read"),),
    )  # fmt: skip


# --- records ------------------------------------------------------------------------------------


def test_an_answer_has_the_keys_of_its_record() -> None:
    assert json.loads(answer_to_json(an_answer("75001"))) == {
        "id": "q-1",
        "origin": {"partition": 2, "offset": 77},
        "outcome": "answered",
        "reason": "",
        "task": "",
        "late": False,
        "incomplete": False,
        "result": "75001",
        "created_s": 9.5,
        "deadline_s": 12.5,
        "answered_s": 11.0,
        "epoch": 4,
        "expected_accuracy": 0.5,
        "paths": [
            [
                {
                    "task": "read", "variant": "forest", "worker": "w-1", "epoch": 4,
                    "received_s": 10.0, "started_s": 10.25, "finished_s": 10.5, "batch": 8,
                        "released": "full", "rerouted": "",
                }
            ]
        ],
        "ends": [{"outcome": "answered", "task": "read", "reason": "", "reason_code": "none"}],
        "reason_code": "none",
        "slo_class": "",
        "session": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (None, None),
        (b"ab\xff", "YWL/"),
        (["a", {"b": 1.5}], ["a", {"b": 1.5}]),
        ([b"", np.float32(0.5)], ["", 0.5]),
        (
            np.arange(6, dtype=">i2").reshape(2, 3),
            {"dtype": "int16", "shape": [2, 3], "data": [0, 1, 2, 3, 4, 5]},
        ),
        (np.array(True), {"dtype": "bool", "shape": [], "data": [True]}),
        ({"s": np.zeros((0, 2))}, {"s": {"dtype": "float64", "shape": [0, 2], "data": []}}),
    ],
)  # fmt: skip
def test_every_kind_of_result_has_a_json_form(result: Value, shown: Any) -> None:
    assert json.loads(answer_to_json(an_answer(result)))["result"] == shown


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (math.nan, "holds NaN or an infinity"),
        (np.array([0.0, math.inf]), "holds NaN or an infinity"),
        ([math.nan], "holds NaN or an infinity"),
        ((1,), "type tuple cannot travel"),
        ({1: 2}, "a key of type int"),
    ],
)
def test_a_result_that_json_would_change_is_refused(result: Any, says: str) -> None:
    with pytest.raises(CodecError, match=says):
        answer_to_json(an_answer(result))


_TIMES = st.floats(min_value=0.0, max_value=1e10)


@given(
    st.builds(
        Answer,
        id=st.text(),
        origin=st.builds(Origin, st.integers(0, 2**62), st.integers(0, 2**62)),
        outcome=st.sampled_from(["refused", "dropped", "failed", "answered"]),
        reason=st.text(),
        task=st.text(),
        late=st.booleans(),
        incomplete=st.booleans(),
        created_s=_TIMES,
        deadline_s=st.floats(),
        answered_s=_TIMES,
        epoch=st.integers(0, 2**62),
        reason_code=st.sampled_from(list(ReasonCode)),
        slo_class=st.text(),
        session=st.text(),
    )
)
def test_an_answer_without_a_result_is_written_as_any_other_record(answer: Answer) -> None:
    """Refusals have a faster way to the same bytes."""
    if math.isfinite(answer.deadline_s):
        assert answer_to_json(answer).decode() == to_json(answer)
    else:
        with pytest.raises(CodecError, match="holds NaN or an infinity"):
            answer_to_json(answer)


def test_every_record_has_a_json_form() -> None:
    letter = DeadLetter(
        topic="t", partition=1, offset=2, reason="r", value=b"v", headers=(("h", b"w"),), at_s=3.0
    )
    assert json.loads(to_json(letter)) == {
        "topic": "t", "partition": 1, "offset": 2, "reason": "r", "value": "dg==",
        "headers": [["h", "dw=="]], "node": "", "at_s": 3.0,
    }  # fmt: skip
    plan = Plan(
        pipeline="p", epoch=1, issued_s=2.0, reason="r",
        settings=Settings(policy="static", slo_s=0.5),
    )  # fmt: skip
    shown = json.loads(to_json(plan))
    assert shown["settings"]["drained"] == []
    assert shown["capacity_qps"] is None
    with pytest.raises(CodecError, match="Garbled records never leave"):
        to_json(Garbled(b"", "r"))


def test_the_origin_of_a_json_answer_is_found_and_of_other_json_is_not() -> None:
    assert origin_of_answer(answer_to_json(an_answer())) == [(2, 77)]
    for other in (b"", b"[]", b"{}", b'{"origin": {"partition": 1}}', b"\xff", b"[" * 100_000):
        assert origin_of_answer(other) == []


# --- commands -----------------------------------------------------------------------------------


def test_a_command_is_what_a_person_types() -> None:
    typed = (
        b'{"id": "7", "action": "slo", "arguments": {"slo": 0.25, "n": 3, "on": true, "u": "s"}}'
    )
    assert command_from_json(typed) == Command(
        id="7",
        pipeline="",
        action="slo",
        arguments={"slo": "0.25", "n": "3", "on": "true", "u": "s"},
    )


def test_a_command_may_say_everything() -> None:
    typed = {"id": "7", "pipeline": "p", "action": "pause", "arguments": {}, "issued_s": 5}
    assert command_from_json(json.dumps(typed).encode()) == Command(
        id="7", pipeline="p", action="pause", issued_s=5.0
    )


def typed(**changed: Any) -> bytes:
    command: dict[str, Any] = {"id": "7", "action": "pause", **changed}
    return json.dumps(
        {key: value for key, value in command.items() if value != "leave out"}
    ).encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "neither Avro nor JSON"),
        (b"pause", "neither Avro nor JSON"),
        (b"\x00\x00\x00\x00\x01abc", "neither Avro nor JSON"),
        (b"\xff\xfe{", "neither Avro nor JSON"),
        (b"[1]", "must be a JSON object such as .* not a list"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"id": "1", "id": "2", "action": "pause"}', "the key 'id' twice"),
        (typed(pipline="p"), "unknown key 'pipline'; did you mean 'pipeline'"),
        (typed(zzz="p"), "unknown key 'zzz'; known are id, pipeline, action"),
        (typed(action="leave out"), "has no 'action'"),
        (typed(id="leave out"), "has no 'id'"),
        (typed(id=""), "'id' has 0 characters; 1 to 256 fit"),
        (typed(id="x" * 257), "'id' has 257 characters"),
        (typed(id=7), "'id' is 7; it must be a string"),
        (typed(pipeline=None), "'pipeline' is null; it must be a string"),
        (typed(arguments=["a"]), r"'arguments' are \[\"a\"\]; they must be an object"),
        (typed(arguments={"a": None}), "argument 'a' is null"),
        (typed(arguments={"a": math.nan}), "argument 'a' is NaN"),
        (typed(arguments={"a": [1]}), r"argument 'a' is \[1\]"),
        (typed(issued_s="noon"), "'issued_s' is \"noon\"; it must be in seconds"),
        (typed(issued_s=True), "'issued_s' is true"),
        (typed(issued_s=10**400), "'issued_s' is 1000"),
        (typed(arguments={"a": "\ud800"}), "'a' holds half a surrogate pair"),
    ],
)
def test_a_mistyped_command_is_reported_in_one_sentence(data: bytes, says: str) -> None:
    with pytest.raises(CodecError, match=says) as caught:
        decode_any(data)
    assert "\n" not in str(caught.value)


def test_the_command_topic_takes_avro_and_json() -> None:
    command = Command(id="7", pipeline="p", action="pause", arguments={"a": "b"}, issued_s=1.5)
    assert decode_any(encode(command)) == command
    assert decode_any(to_json(command).encode()) == command
    with pytest.raises(CodecError, match="type Query came where Command was wanted"):
        decode_any(encode(Query(payload=None)))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
            ["id", "action", "arguments", "pipeline", "issued_s", "a"]), inner),
    )
)  # fmt: skip
def test_any_json_is_a_command_that_can_be_sent_or_a_codec_error(value: Any) -> None:
    try:
        command = decode_any(json.dumps(value).encode())
    except CodecError:
        return
    assert decode_any(encode(command)) == command


# --- raw queries --------------------------------------------------------------------------------


def test_a_raw_value_is_the_payload_and_needs_nothing_else() -> None:
    assert query_from_raw(b"image", None, b"key") == Query(payload=b"image")


def test_headers_say_id_deadline_and_slo_class() -> None:
    headers = [
        ("headrace-id", "Zürich-1".encode()),
        ("headrace-deadline-ms", b"1767225600250"),
        ("headrace-slo-class", b"bulk"),
        ("traceparent", b"\xff"),
    ]
    assert query_from_raw(b"image", headers, None) == Query(
        payload=b"image", id="Zürich-1", deadline_s=1767225600.25, slo_class="bulk"
    )


def test_the_last_of_several_equal_headers_counts() -> None:
    headers = [("headrace-id", b"a"), ("headrace-id", b"b")]
    assert query_from_raw(b"x", headers, None) == Query(payload=b"x", id="b")


@pytest.mark.parametrize(
    ("value", "header", "reason"),
    [
        (b"", ("other", b""), "the value is empty"),
        (None, ("other", b""), "the value is empty"),
        (b"x", ("headrace-deadline-ms", b"soon"), "is 'soon'; it must be a number"),
        (b"x", ("headrace-deadline-ms", b""), "is ''; it must be a number"),
        (b"x", ("headrace-deadline-ms", b"nan"), "is 'nan'; it must be a number"),
        (b"x", ("headrace-deadline-ms", b"inf"), "is 'inf'; it must be a number"),
        (b"x", ("headrace-deadline-ms", b"\xff"), "it must be a number"),
        (b"x", ("headrace-deadline-ms", b"1767225600"), "between the years 2000 and 2200"),
        (b"x", ("headrace-deadline-ms", b"1767225600250000"), "between the years 2000 and 2200"),
        (b"x", ("headrace-deadline-ms", b"-1"), "between the years 2000 and 2200"),
        (b"x", ("headrace-slo-class", b"\xff"), "header headrace-slo-class is not UTF-8"),
        (b"x", ("headrace-slo-class", b"c" * 257), "headrace-slo-class has 257 characters"),
    ],
)
def test_a_raw_query_that_makes_no_sense_is_garbled_and_keeps_its_id(
    value: bytes | None, header: tuple[str, bytes], reason: str
) -> None:
    headers = (("headrace-id", b"q-1"), header)
    garbled = query_from_raw(value, headers, None)
    assert isinstance(garbled, Garbled)
    assert reason in garbled.reason
    assert garbled == Garbled(value or b"", garbled.reason, headers, "q-1")


@pytest.mark.parametrize("held", [b"\xff", b"i" * 257, b"\x1b[2J", b"two\nlines", b"\xc2\x9b31m"])
def test_an_id_that_cannot_be_kept_leaves_the_query_garbled_without_one(held: bytes) -> None:
    garbled = query_from_raw(b"x", [("headrace-id", held)], None)
    assert isinstance(garbled, Garbled)
    assert (garbled.id, garbled.value) == ("", b"x")


def test_an_avro_query_with_an_escape_sequence_for_an_id_is_at_fault() -> None:
    fault = query_fault(Query(payload=b"x", id="\x1b]0;mine\x07"))
    assert fault == ("the query's id is '\\x1b]0;mine\\x07'; write it without control characters")
    assert query_fault(Query(payload=b"x", id="caf\u00e9 17")) == ""


def test_a_header_without_a_value_is_as_an_empty_one() -> None:
    headers: Any = [("headrace-id", None)]
    assert query_from_raw(b"x", headers, None) == Query(payload=b"x")


@given(
    st.none() | st.binary(),
    st.lists(
        st.tuples(
            st.sampled_from(["headrace-id", "headrace-deadline-ms", "headrace-slo-class", "x"]),
            st.binary() | st.integers().map(lambda n: str(n).encode()),
        )
    ),
)
def test_any_raw_value_and_headers_are_a_query_that_can_be_sent_or_garbled(
    value: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    record = query_from_raw(value, headers, None)
    if isinstance(record, Query):
        assert query_fault(record) == ""
        encode(record)
    else:
        assert record.reason


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (Query(payload=None, id="i" * 257), "the query's id has 257 characters"),
        (Query(payload=None, slo_class="i" * 257), "the query's slo_class has 257 characters"),
        (Query(payload=None, deadline_s=math.nan), "deadline_s is nan"),
        (Query(payload=None, deadline_s=1767225600250.0), "between the years 2000 and 2200"),
    ],
)
def test_an_avro_query_is_held_to_the_rules_for_raw_ones(query: Query, says: str) -> None:
    assert says in query_fault(query)
