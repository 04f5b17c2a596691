"""Queries as the client writes them to an input topic."""

import pytest

from headrace.client.formats import WRITERS
from schemas.codec.raw import query_from_raw
from schemas.codec.single_object import decode
from schemas.pipeline import QuerySize
from schemas.records import Garbled, Query
from tests.builders import a_pipeline


@pytest.mark.parametrize("header", ["headrace-size", "items"])
def test_a_raw_query_carries_its_size_in_the_header_of_the_file(header: str) -> None:
    pipeline = a_pipeline(size=QuerySize(most=100, header=header))
    query = Query(payload=b"x", id="q", size=40)
    value, headers = WRITERS["raw"](pipeline)(query)
    assert (header, b"40") in headers
    assert query_from_raw(value, headers, None, header) == query


def test_a_raw_query_of_a_pipeline_without_sizes_has_no_such_header() -> None:
    _, headers = WRITERS["raw"](a_pipeline())(Query(payload=b"x", id="q", size=40))
    assert headers == [("headrace-id", b"q")]


def test_an_avro_query_carries_its_size_in_the_record() -> None:
    query = Query(payload=b"x", id="q", size=40)
    value, _ = WRITERS["avro"](a_pipeline())(query)
    assert decode(value) == query


@pytest.mark.parametrize("held", [b"0", b"-3", b"4.5", b"many", b"", b"9" * 40])
def test_a_size_that_is_none_is_told(held: bytes) -> None:
    found = query_from_raw(b"x", [("headrace-size", held)], None, "headrace-size")
    assert isinstance(found, Garbled)
    assert "it must be a whole number" in found.reason


def test_without_the_header_the_size_is_one() -> None:
    assert query_from_raw(b"x", None, None, "headrace-size") == Query(payload=b"x")
