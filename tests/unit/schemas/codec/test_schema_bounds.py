"""A producer's own schema cannot turn a few bytes into hours of work."""

import json
from typing import Any

import pytest

from schemas.codec.confluent import ConfluentCodec
from schemas.codec.schema_bounds import check_bounded
from schemas.codec.schema_store import parse, schemas_by_prefix
from schemas.codec.values import CodecError

PAYLOAD = {"name": "payload", "type": ["null", "bytes"]}
EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}
NONE = {"type": "fixed", "name": "None", "size": 0}


def a_query(*extra: Any) -> str:
    fields = [PAYLOAD, *({"name": f"x{n}", "type": each} for n, each in enumerate(extra))]
    return json.dumps(
        {"type": "record", "name": "Query", "namespace": "headrace", "fields": fields}
    )


def decoded(text: str, value: bytes) -> Any:
    codec = ConfluentCodec(lambda _: 1, lambda _: text)
    return codec.decode(b"\0\0\0\0\1" + value)


@pytest.mark.parametrize("items", ["null", EMPTY, NONE, {"type": "null"}])
def test_an_array_whose_items_take_no_bytes_is_refused(items: Any) -> None:
    for text in (
        a_query({"type": "array", "items": items}),
        a_query(["null", {"type": "map", "values": {"type": "array", "items": items}}]),
    ):
        with pytest.raises(CodecError, match="an array whose items take no bytes"):
            # payload null, then 2 ** 62 items in ten bytes
            decoded(text, b"\0" + b"\x80" * 8 + b"\x7f" + b"\0")


def test_a_recursive_schema_is_refused() -> None:
    nested = {
        "type": "record",
        "name": "Chain",
        "fields": [{"name": "next", "type": ["null", "Chain"]}],
    }
    with pytest.raises(CodecError, match="contains itself; flatten it"):
        decoded(a_query(nested), b"\0" + b"\2" * 1_000_000 + b"\0")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"type": "record"}', '"null"', "3", "{}"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        decoded(text, b"\0")


def test_schemas_that_are_bounded_are_read() -> None:
    pair = {"type": "record", "name": "Pair", "fields": [{"name": "a", "type": "int"}]}
    text = a_query({"type": "array", "items": pair}, {"type": "array", "items": "Pair"}, EMPTY)
    assert decoded(text, b"\0\2\6\0\0").payload is None
    for schema in schemas_by_prefix().values():
        check_bounded(schema.parsed)
    check_bounded(parse('"null"').parsed)
