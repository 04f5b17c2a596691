"""Every record survives the wire, and any other bytes raise only CodecError.

The strategies are built from the annotations of schemas/records/: a new field there is drawn here
and fails here until schemas/codec/rows.py and the .avsc carry it.
"""

import enum
import json
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from io import BytesIO

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from msgspec import Struct
from msgspec.structs import astuple, replace

from schemas import records
from schemas.codec.confluent import ConfluentCodec
from schemas.codec.hot import HOT
from schemas.codec.rows import TO_ROW
from schemas.codec.schema_store import CURRENT, Schema, parse
from schemas.codec.single_object import (
    CodecError,
    decode,
    encode,
    read,
    reader_of,
    write_as,
    write_row,
)
from schemas.codec.values import DTYPES, MAX_DEPTH
from schemas.enumerations import ReasonCode
from schemas.records import (
    Answer,
    Command,
    CommandResult,
    DeadLetter,
    End,
    Garbled,
    Hop,
    Item,
    Origin,
    Query,
    Report,
    Trace,
    Value,
    Work,
)
from tests.builders import a_hop, a_work, an_item

LONGS = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
# An int may have any size only inside a list or an object; a single one is a long, or refused.
JSON_CONTAINERS = st.lists(JSON_VALUES, max_size=4) | st.dictionaries(
    st.text(max_size=5), JSON_VALUES, max_size=4
)
ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: npst.arrays(name, npst.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
FLAT = (
    st.none()
    | st.booleans()
    | LONGS
    | st.floats()
    | st.text()
    | st.binary()
    | ARRAYS
    | JSON_CONTAINERS
)
VALUES = FLAT | st.lists(FLAT, max_size=4) | st.dictionaries(st.text(), FLAT, max_size=4)
PRIMITIVES = {
    int: LONGS,
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bool: st.booleans(),
    bytes: st.binary(max_size=50),
    type(None): st.none(),
}


@cache  # a strategy is checked when it is first drawn from, which takes longer than to draw
def drawn(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    """Return a strategy for values of an annotation in schemas/records/."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint == Value:
        return VALUES
    if hint in PRIMITIVES:
        return PRIMITIVES[hint]
    if isinstance(hint, type) and issubclass(hint, Struct):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{name: drawn(hints[name]) for name in hint.__struct_fields__})
    if isinstance(hint, enum.EnumType):
        return st.sampled_from(list(hint))
    if origin in (typing.Union, types.UnionType):
        return st.one_of([drawn(one) for one in inner])
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(drawn(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[drawn(one) for one in inner])
    assert origin is Mapping, f"draw {hint} here"
    return st.dictionaries(drawn(inner[0]), drawn(inner[1]), max_size=3)


KINDS = [kind for kind in typing.get_args(records.Record) if kind is not Garbled]
RECORDS = st.one_of([drawn(kind) for kind in KINDS])


def comparable(thing: typing.Any) -> typing.Any:
    """Return a structure that is equal if the values are: arrays by content, NaN as itself."""
    if isinstance(thing, Struct):
        return (type(thing), [comparable(value) for value in astuple(thing)])
    if isinstance(thing, np.ndarray):
        little = thing.astype(thing.dtype.newbyteorder("<"))
        return (thing.dtype.name, thing.shape, little.tobytes())
    if isinstance(thing, dict):
        return {key: comparable(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return (type(thing), [comparable(value) for value in thing])
    return (type(thing), repr(thing))


def test_there_is_a_schema_for_every_record_and_none_besides() -> None:
    assert sorted(CURRENT) == sorted(kind.__name__ for kind in KINDS)


@given(RECORDS)
def test_every_record_comes_back_equal(record: typing.Any) -> None:
    assert comparable(decode(encode(record))) == comparable(record)


@given(st.one_of([drawn(kind) for kind in HOT]))
def test_hot_records_are_written_byte_by_byte_as_fastavro_writes_them(record: typing.Any) -> None:
    assert encode(record) == write_row(record, CURRENT[type(record).__name__].prefix)


@given(RECORDS)
def test_confluent_framing_brings_every_record_back_equal(record: typing.Any) -> None:
    texts: list[str] = []

    def id_of(text: str) -> int:
        texts.append(text)
        return len(texts) + 0xFFFF

    codec = ConfluentCodec(id_of, lambda number: texts[number - 0x10000])
    data = codec.encode(record)
    assert data[:5] == b"\x00\x00\x01\x00\x00"
    assert data[5:] == encode(record)[10:]
    assert comparable(codec.decode(data)) == comparable(record)


# --- what a record looks like on the wire -------------------------------------------------------


def test_a_record_begins_with_the_fingerprint_of_avros_specification() -> None:
    # The test vector of the specification: "int" has 0x7275d51a3f395c8f, here little-endian.
    assert parse('"int"').prefix == bytes.fromhex("c3018f5c393f1ad57572")


def test_the_bytes_of_a_query_are_as_the_specification_says() -> None:
    query = Query(payload=b"ab", id="q", deadline_s=1.0)
    after = (
        b"\x0a\x04ab"
        + b"\x02q"
        + b"\x02\x00\x00\x00\x00\x00\x00\xf0\x3f"
        + b"\x00"
        + b"\x02"
        + b"\x00"
    )
    assert encode(query) == CURRENT["Query"].prefix + after


def test_an_array_comes_back_on_the_bytes_it_came_in_and_is_read_only() -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    back = decode(encode(Query(payload=array)))
    assert isinstance(back, Query)
    assert isinstance(back.payload, np.ndarray)
    assert not back.payload.flags.owndata
    assert not back.payload.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.arange(10)[::3],
        np.array(True),
        np.zeros((0, 3), np.float16),
    ],
    ids=["big-endian", "transposed", "strided", "no axes", "empty"],
)
def test_an_array_of_any_layout_comes_back_by_value(array: np.ndarray) -> None:
    back = decode(encode(Query(payload=array)))
    assert comparable(back) == comparable(Query(payload=array))


@pytest.mark.parametrize(
    ("given_value", "arrives"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        ([np.int8(1), {"score": np.float64(0.25)}], [1, {"score": 0.25}]),
    ],
)
def test_numpy_scalars_arrive_as_python_numbers(given_value: Value, arrives: Value) -> None:
    back = decode(encode(Query(payload=given_value)))
    assert comparable(back) == comparable(Query(payload=arrives))


def test_a_header_without_a_value_is_kept_as_an_empty_one() -> None:
    headers: typing.Any = (("trace", None),)
    letter = DeadLetter(
        topic="t", partition=0, offset=1, reason="r", value=b"", headers=headers, at_s=2.0
    )
    assert decode(encode(letter)) == replace(letter, headers=(("trace", b""),))


def test_counts_may_be_any_mapping() -> None:
    counts = types.MappingProxyType({"admitted": 3.0})
    report = Report(
        node="n", role="ingress", pipeline="p", epoch=1, incarnation=1.0, sent_s=2.0,
        state="ready", counts=counts,
    )  # fmt: skip
    assert decode(encode(report)) == replace(report, counts={"admitted": 3.0})


# --- what cannot be written ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ((1, 2), "type tuple cannot travel"),
        (object(), "type object cannot travel"),
        (np.ma.array([1]), r"type numpy.ma\S*.MaskedArray cannot travel"),
        (np.longdouble(1), "type numpy.longdouble cannot travel"),
        (np.array(["a"]), "an array of <U1 cannot travel"),
        (np.zeros(2, complex), "an array of complex128 cannot travel"),
        (2**63, r"an int below -2\*\*63 or above"),
        ([2**63, b""], r"an int below -2\*\*63 or above"),
        ([[b"x"]], "a nested list holds a value of type bytes"),
        ({"a": {"b": np.zeros(1)}}, r"a nested dict holds a value of type numpy.ndarray"),
        ([(1,)], "type tuple cannot travel"),
        ({1: "a"}, "a key of type int"),
        ({None: b"a"}, "a key of type NoneType"),
        ([{"a": float("nan")}], "holds NaN"),
        ("\ud800", "half a surrogate pair"),
        (["\ud800", b""], "half a surrogate pair"),
        ({"\ud800": b""}, "half a surrogate pair"),
    ],
)
def test_a_value_without_a_place_in_the_contract_is_refused_in_a_sentence(
    value: typing.Any, says: str
) -> None:
    with pytest.raises(CodecError, match=says) as caught:
        encode(Query(payload=value))
    assert "\n" not in str(caught.value)


def nested(levels: int) -> list[typing.Any]:
    value: list[typing.Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_is_bounded_alike_for_writers_and_readers() -> None:
    deepest = Query(payload=nested(MAX_DEPTH))
    assert decode(encode(deepest)) == deepest
    with pytest.raises(CodecError, match="64 levels deep"):
        encode(Query(payload=nested(MAX_DEPTH + 1)))
    with pytest.raises(CodecError, match="64 levels deep"):
        decode(as_json_branch("[" * 65 + "]" * 65))
    with pytest.raises(CodecError, match="64 levels deep"):
        decode(as_json_branch("[" * 100_000 + "]" * 100_000))


def test_fields_that_do_not_fit_their_schema_are_refused() -> None:
    with pytest.raises(CodecError, match="the Command record cannot be written"):
        encode(Command(id="\ud800", pipeline="", action="replan"))
    with pytest.raises(CodecError, match="does not fit the 64 bits of a field"):
        encode(replace(WORK, epoch=2**63))
    with pytest.raises(CodecError, match="the CommandResult record cannot be written"):
        encode(
            CommandResult(
                id="1", pipeline="", action="", ok=True, message="", epoch=2**63, finished_s=1.0
            )
        )


@pytest.mark.parametrize(
    "field",
    [{"task": 5}, {"task": None}, {"epoch": 1.5}, {"created_s": "noon"}, {"items": (None,)}],
)
def test_a_field_of_another_type_is_refused(field: dict[str, typing.Any]) -> None:
    with pytest.raises(CodecError, match="the Work record cannot be written"):
        encode(replace(WORK, **field))


def test_garbled_records_never_leave_the_process() -> None:
    with pytest.raises(CodecError, match="Garbled records never leave the process"):
        encode(Garbled(b"", "no reason"))


# --- what cannot be read ------------------------------------------------------------------------

HOP = Hop(
    task="locate", variant="small", worker="w-1", epoch=3, received_s=1.0, started_s=2.0,
    finished_s=3.0, batch=4, released="full",
)  # fmt: skip
WORK = Work(
    query_id="q-1", origin=Origin(1, 2), task="read", created_s=0.5, deadline_s=4.5, epoch=3,
    items=(
        Item(branch=(0, 0), credit=5, value=np.arange(4, dtype=np.uint8), path=(HOP,)),
        Item(branch=(0, 1), credit=6, value=[1, {"a": None}], end=End("dropped", "read", "late")),
    ),
)  # fmt: skip
ANSWER = Answer(
    id="q-1", origin=Origin(1, 2), outcome="answered", result=[b"x", 1.5, {"k": [1]}],
    created_s=0.5, deadline_s=4.5, answered_s=3.5, expected_accuracy=0.9, paths=((HOP,), ()),
)  # fmt: skip


def as_json_branch(text: str) -> bytes:
    body = BytesIO()
    row = {"payload": ("headrace.Json", {"text": text})}
    fastavro.schemaless_writer(body, CURRENT["Query"].parsed, row)
    return CURRENT["Query"].prefix + body.getvalue()


def as_tensor_branch(**fields_of_it: typing.Any) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(
        body, CURRENT["Query"].parsed, {"payload": ("headrace.Tensor", fields_of_it)}
    )
    return CURRENT["Query"].prefix + body.getvalue()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "a record is empty"),
        (b"{}", "begins with 7b 7d where"),
        (b"\xc3\x01\x00", "ends after 3 of the 10 bytes"),
        (b"\xc3\x01" + bytes(8), "unknown fingerprint 0000000000000000; bring readers"),
        (encode(WORK) + b"x", "the Work record has 1 bytes too many"),
        (encode(WORK)[:-1], "cut short"),
        (as_json_branch("1"), "neither a list nor an object"),
        (as_json_branch("[NaN]"), "NaN is not JSON"),
        (as_json_branch("[1e999]"), "1e999 is beyond the range"),
        (as_json_branch("[" + "9" * 5000 + "]"), "cut short"),
        (as_tensor_branch(dtype="object", shape=[1], data=bytes(8)), "dtype 'object'; known are"),
        (as_tensor_branch(dtype="uint8", shape=[3], data=b"ab"), "came with 2 bytes"),
        (as_tensor_branch(dtype="uint8", shape=[-1, -2], data=b"ab"), "came with 2 bytes"),
        (as_tensor_branch(dtype="uint8", shape=[2**62, 2**62], data=b"ab"), "came with 2 bytes"),
        (as_tensor_branch(dtype="uint8", shape=[1] * 65, data=b"a"), "65 dimensions"),
        (as_tensor_branch(dtype="uint8", shape=[2**62] * 40_000, data=b"a"), "40000 dimensions"),
        (as_tensor_branch(dtype="uint8", shape=[0, 2**62, 2**62], data=b""), "the Query record"),
        (as_tensor_branch(dtype="uint8", shape=[1] * 99, data=b"a"), "the Query record"),
    ],
)
def test_bytes_that_make_no_sense_are_reported_in_one_sentence(data: bytes, says: str) -> None:
    with pytest.raises(CodecError, match=says) as caught:
        decode(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("record", [WORK, ANSWER], ids=["work", "answer"])
def test_every_beginning_of_a_record_is_refused(record: Work | Answer) -> None:
    data = encode(record)
    for length in range(len(data)):
        with pytest.raises(CodecError):
            decode(data[:length])


def survives(data: bytes) -> None:
    """Check that bytes give either a CodecError or a record that can be sent."""
    try:
        record = decode(data)
    except CodecError:
        return
    encode(record)


@given(st.binary())
def test_arbitrary_bytes_raise_nothing_but_codec_errors(data: bytes) -> None:
    survives(data)


@given(st.sampled_from(sorted(CURRENT)), st.binary(max_size=200))
def test_arbitrary_bytes_behind_a_known_fingerprint_raise_nothing_but_codec_errors(
    name: str, data: bytes
) -> None:
    survives(CURRENT[name].prefix + data)


@given(
    st.sampled_from([encode(WORK), encode(ANSWER)]),
    st.lists(st.tuples(st.integers(10, 400), st.binary(max_size=12)), min_size=1, max_size=3),
)
def test_damaged_records_raise_nothing_but_codec_errors(
    data: bytes, damage: list[tuple[int, bytes]]
) -> None:
    for place, patch in damage:
        data = data[:place] + patch + data[place + 1 :]
    survives(data)


@pytest.mark.parametrize("length", [2**31 - 1, 2**31, 2**62, 2**63 - 1, -1, -(2**63)])
def test_absurd_lengths_cost_neither_memory_nor_time(length: int) -> None:
    count = BytesIO()
    fastavro.schemaless_writer(count, "long", length)
    data = encode(replace(WORK, items=()))
    # no items, follow, size, class, session, variant, trace
    assert data[-7:] == b"\x00\x00\x02\x00\x00\x00\x00"
    survives(data[:-7] + count.getvalue())  # items
    survives(CURRENT["Query"].prefix + b"\x0a" + count.getvalue() + b"abc")  # a payload's bytes
    with pytest.raises(CodecError):
        decode(CURRENT["Command"].prefix + count.getvalue() + b"abc")  # an id


def test_a_trace_context_is_two_texts_behind_all_that_work_had_before() -> None:
    parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = encode(replace(WORK, trace=Trace(parent.decode(), "k=v")))
    assert traced == encode(WORK)[:-1] + b"\x02\x6e" + parent + b"\x06k=v"
    write_as(6)
    try:
        older = decode(encode(replace(WORK, trace=Trace(parent.decode()))))
        assert isinstance(older, Work)
        assert older.trace is None
    finally:
        write_as(None)


# --- records of other writers -------------------------------------------------------------------


def older(name: str, *without: str) -> Schema:
    """Return a schema that lacks some fields and has one that no longer exists."""
    raw = json.loads(CURRENT[name].text)
    raw["fields"] = [field for field in raw["fields"] if field["name"] not in without]
    raw["fields"].insert(0, {"name": "gone", "type": "string"})
    return parse(json.dumps(raw))


@given(drawn(Work), drawn(Answer))
def test_field_missing_from_an_older_writer_takes_its_default(work: Work, answer: Answer) -> None:
    # A code that is missing is inferred (test_older_releases.py).
    items = tuple(replace(item, end=None) for item in work.items)
    ends = tuple(replace(end, reason_code=ReasonCode.OTHER) for end in answer.ends)
    answer = replace(answer, reason_code=ReasonCode.OTHER, ends=ends)
    for record, without, default in (
        (replace(work, items=items), ("attempt",), {"attempt": 1}),
        (answer, ("late", "paths", "tree"), {"late": False, "paths": (), "tree": None}),
    ):
        schema = older(type(record).__name__, *without)
        body = BytesIO()
        row = {**TO_ROW[type(record)](record), "gone": "forgotten"}
        fastavro.schemaless_writer(body, schema.parsed, row)
        back = read(reader_of(schema), body.getvalue(), 0)
        assert comparable(back) == comparable(replace(record, **default))


FOREIGN = {
    "type": "record", "name": "Query", "namespace": "com.example",
    "fields": [{"name": "payload", "type": "string"}, {"name": "deadline_s", "type": "double"}],
}  # fmt: skip


def written(schema: dict[str, typing.Any], row: dict[str, typing.Any]) -> bytes:
    body = BytesIO()
    body.write(bytes(5))
    fastavro.schemaless_writer(body, schema, row)
    return body.getvalue()


def registry_of(*texts: str) -> ConfluentCodec:
    return ConfluentCodec(lambda text: 7, lambda number: texts[number])


def test_a_producer_with_its_own_schema_of_a_query_is_understood() -> None:
    data = written(FOREIGN, {"payload": "hello", "deadline_s": 9.5})
    back = registry_of(json.dumps(FOREIGN)).decode(data)
    assert back == Query(payload="hello", deadline_s=9.5)


@pytest.mark.parametrize(
    ("payload", "value", "says"),
    [
        ({"type": "array", "items": "int"}, [1], "a value came as list"),
        ({"type": "map", "values": "int"}, {"a": 1}, "a value is a record of a; known are"),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 1, tzinfo=UTC),
         "a value came as datetime.datetime"),
    ],
)  # fmt: skip
def test_a_payload_of_a_type_that_is_no_value_is_refused(
    payload: typing.Any, value: typing.Any, says: str
) -> None:
    schema = {"type": "record", "name": "Query", "fields": [{"name": "payload", "type": payload}]}
    with pytest.raises(CodecError, match=says):
        registry_of(json.dumps(schema)).decode(written(schema, {"payload": value}))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "this one with nothing"),
        (b"\0\0\0", "this one with 00 00 00"),
        (encode(WORK), "this one with Avro's single-object encoding"),
        (b"\0\0\0\0\x09", "no schema with the id 9"),
        (b"\0\0\0\0\x00", "record named ''; known are"),
        (b"\0\0\0\0\x01", "schema 1 of the registry is not Avro"),
        (b"\0\0\0\0\x02", "schema 2 of the registry is not Avro"),
    ],
)
def test_confluent_framing_reports_what_it_cannot_read(data: bytes, says: str) -> None:
    with pytest.raises(CodecError, match=says):
        registry_of('"int"', "{}", "nonsense").decode(data)


def test_a_registry_that_does_not_answer_is_not_the_records_fault() -> None:
    def silent(number: int) -> str:
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError):
        ConfluentCodec(lambda text: 1, silent).decode(b"\0\0\0\0\x01")


@pytest.fixture
def _as_today() -> Iterator[None]:
    yield
    write_as(None)


@pytest.mark.usefixtures("_as_today")
def test_an_earlier_release_can_be_written_for_processes_of_it() -> None:
    rerouted = an_item(path=(a_hop(released="full", rerouted="4 ms behind"),))
    work = a_work(0, rerouted, follow=2)
    older = a_work(0, an_item(path=(a_hop(released=""),)))
    today = encode(work)
    write_as(1)
    assert encode(work)[:10] != today[:10]
    assert decode(encode(work)) == older
    with pytest.raises(CodecError, match="the Work record cannot be written"):
        encode(replace(work, epoch="first"))
    write_as(2)
    assert decode(encode(work)) == a_work(0, an_item(path=(a_hop(released="full"),)))
    write_as(3)
    assert decode(encode(work)) == a_work(0, rerouted)
    write_as(5)
    assert decode(encode(work)) == work
    write_as(6)
    assert decode(encode(replace(work, slo_class="gold"))) == work
    write_as(7)
    assert encode(work) == today
    with pytest.raises(ValueError, match=r"no release 99; released are \[1, 2"):
        write_as(99)
