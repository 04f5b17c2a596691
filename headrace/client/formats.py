"""Encode queries and decode answers in the forms of a pipeline's topics."""

import json
from collections.abc import Callable, Iterable, Sequence

from schemas.codec.json_form import answer_from_json
from schemas.codec.path_tree import unfolded
from schemas.codec.raw import DEADLINE_HEADER, ID_HEADER, SESSION_HEADER, SLO_CLASS_HEADER
from schemas.codec.single_object import CodecError, decode, encode
from schemas.effects import QUERIES, RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Answer, Query, Value
from streams.codecs.wire import confluent_codec

Headers = Sequence[tuple[str, bytes]]
Write = Callable[[Query], tuple[bytes, Headers]]
Read = Callable[[bytes], Answer]

RAW = "raw"


def payload_from(held: bytes, form: str, name: str) -> Value:
    """Return the payload in a file of that name, for a pipeline with this ``input``: its bytes, or
    for Avro and Confluent's framing the value that it holds as JSON. A file that is no text, such
    as an image, is its bytes there, too.

    Raises ``CodecError`` for an empty file, and for text that is no JSON.
    """
    if not held:
        raise CodecError(f"{name} is empty; a query needs a payload")
    if form == RAW:
        return held
    try:
        value: Value = json.loads(held.decode())
    except UnicodeDecodeError:
        return held
    except (RecursionError, ValueError) as error:
        raise CodecError(
            f"{name} is no JSON, as which a pipeline with `input: {form}` takes a payload: {error}"
        ) from None
    return value


def writer_of(pipeline: Pipeline) -> Write:
    """Return the function that encodes a query for the input topic: value and headers.

    For Confluent's framing it registers the schema, so that no query waits for the registry.
    Raises ``BrokerError`` if the registry does not take it, or the extra ``registry`` is missing.
    """
    return WRITERS[pipeline.input](pipeline)


def answer_reader(pipeline: Pipeline) -> Read:
    """Return the function that decodes an answer; the first byte selects JSON, Avro or Confluent.

    The function raises ``CodecError`` for a record that is no answer, and ``BrokerError`` if the
    schema registry does not respond.
    """
    if not pipeline.schema_registry:
        return read_answer
    codec = confluent_codec(pipeline, RESULTS)
    return lambda value: _answer(codec.decode(value)) if value[:1] == b"\0" else read_answer(value)


def answers_in(values: Iterable[bytes], read: Read) -> list[Answer]:
    """Return the answers among the records of a results topic; skip other records."""
    found = []
    for value in values:
        try:
            found.append(read(value))
        except CodecError:
            continue  # a foreign record
    return found


def read_answer(value: bytes) -> Answer:
    """Decode an answer in JSON or Avro, by its first byte; raises ``CodecError``.

    The answer has ``paths`` and ``ends`` if the record has a tree.
    """
    return _answer(answer_from_json(value) if value[:1] == b"{" else decode(value))


def _answer(record: object) -> Answer:
    if not isinstance(record, Answer):
        raise CodecError(f"a {type(record).__name__} record where an Answer was expected")
    return unfolded(record)


def _raw(pipeline: Pipeline) -> Write:
    size_header = pipeline.size.header if pipeline.size else ""
    return lambda query: _raw_query(query, size_header)


def _raw_query(query: Query, size_header: str) -> tuple[bytes, Headers]:
    if not isinstance(query.payload, bytes):
        raise CodecError(
            f"a payload is {type(query.payload).__name__}, but a raw input topic takes bytes"
        )
    headers = [(ID_HEADER, query.id.encode())]
    if query.deadline_s is not None:
        headers.append((DEADLINE_HEADER, f"{query.deadline_s * 1e3:.3f}".encode()))
    if query.slo_class:
        headers.append((SLO_CLASS_HEADER, query.slo_class.encode()))
    if query.session:
        headers.append((SESSION_HEADER, query.session.encode()))
    if size_header and query.size != 1:  # a query without the header has size 1
        headers.append((size_header, str(query.size).encode()))
    return query.payload, headers


def _confluent(pipeline: Pipeline) -> Write:
    codec = confluent_codec(pipeline, QUERIES)
    codec.encode(Query(payload=b""))
    return lambda query: (codec.encode(query), [])


WRITERS: dict[str, Callable[[Pipeline], Write]] = {
    RAW: _raw,
    "avro": lambda _: lambda query: (encode(query), []),
    "confluent": _confluent,
}
