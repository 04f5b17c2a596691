"""Query formats that the client writes to an input topic."""

import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from headrace.client.formats import WRITERS, payload_from, writer_of
from schemas.codec.raw import query_from_raw
from schemas.codec.single_object import CodecError, decode
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


def test_a_file_holds_the_payload_itself_or_as_json() -> None:
    held = b'{"texts": ["a", "b"], "rate": 0.5}'
    assert payload_from(held, "raw", "a.json") == held
    for form in ("avro", "confluent"):
        assert payload_from(held, form, "a.json") == {"texts": ["a", "b"], "rate": 0.5}


@pytest.mark.parametrize("form", WRITERS)
def test_a_file_that_is_no_text_is_sent_as_it_is(form: str) -> None:
    assert payload_from(b"\x89PNG", form, "a.png") == b"\x89PNG"


@pytest.mark.parametrize(
    ("held", "form", "sentence"),
    [
        (b"", "raw", "a.png is empty; a query needs a payload"),
        (b"a word", "avro", "a.png is no JSON, as which a pipeline with `input: avro` takes a"),
        (b"[" * 100_000, "confluent", "a.png is no JSON"),
    ],
)
def test_a_file_without_a_payload_is_reported(held: bytes, form: str, sentence: str) -> None:
    with pytest.raises(CodecError, match=re.escape(sentence)):
        payload_from(held, form, "a.png")


def test_a_payload_that_a_raw_topic_does_not_take_is_reported() -> None:
    with pytest.raises(CodecError, match="a payload is str, but a raw input topic takes bytes"):
        WRITERS["raw"](a_pipeline())(Query(payload="x", id="q"))


@pytest.mark.parametrize("held", [b"0", b"-3", b"4.5", b"many", b"", b"9" * 40])
def test_invalid_size_is_reported(held: bytes) -> None:
    found = query_from_raw(b"x", [("headrace-size", held)], None, "headrace-size")
    assert isinstance(found, Garbled)
    assert "it must be a whole number" in found.reason


def test_without_the_header_the_size_is_one() -> None:
    assert query_from_raw(b"x", None, None, "headrace-size") == Query(payload=b"x")


class Registry(BaseHTTPRequestHandler):
    """A schema registry that gives every schema the id 7; ``asked`` are the paths of requests."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"id": 7}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_registry_is_asked_before_the_first_query_and_by_none() -> None:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        write = writer_of(a_pipeline(input="confluent", schema_registry=url))
        assert len(Registry.asked) == 1
        value, _ = write(Query(payload=b"x", id="q"))
        server.shutdown()
    assert (value[:5], len(Registry.asked)) == (b"\0\0\0\0\x07", 1)
