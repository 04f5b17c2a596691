"""Wire formats: the decoder and encoder of each of a pipeline's topics."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from schemas.codec.confluent import ConfluentCodec
from schemas.codec.json_form import answer_from_json, answer_to_json, origin_of_answer
from schemas.codec.label_form import label_of
from schemas.codec.path_tree import compact, folded, unfolded
from schemas.codec.raw import MAX_ID_LENGTH, query_fault, query_from_raw
from schemas.codec.schema_store import MARK, schemas_by_prefix
from schemas.codec.single_object import CodecError, decode, encode, writes_newest
from schemas.effects import LABELS, QUERIES, RESULTS
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, FAILED, Answer, Garbled, Query, Record
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical


class Fetched(Struct, frozen=True, gc=False):
    """A record as fetched; ``at_s`` is its time stamp in seconds since the Unix epoch.

    ``fault`` is "" or the record's error: in its headers, which are None then, or in all of it,
    which has no value then.
    """

    topic: str
    slot: int
    offset: int
    at_s: float
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None
    fault: str = ""


Decode = Callable[[Fetched], Record]
Encode = Callable[[Record], bytes]


def decoder(pipeline: Pipeline, topic: str) -> Decode:
    """Return the decoder of a logical topic; it returns ``Garbled`` for an unreadable record."""
    if topic == QUERIES:
        return INPUTS[pipeline.input](pipeline)
    if topic == RESULTS:
        return _answers(pipeline)
    return _label if topic == LABELS else _decoded


def encoder(pipeline: Pipeline, topic: str) -> Encode:
    """Return the encoder of a logical topic."""
    if topic != RESULTS:
        return encode
    reported, write = PATHS[pipeline.answer_paths], ANSWERS[pipeline.results](pipeline)

    def answer(record: Record) -> bytes:
        assert isinstance(record, Answer)
        return write(reported(record))

    return answer


FRAME_BYTES = 5  # of Confluent's framing: 0 and the schema's id


@cache
def _answer_prefixes() -> list[bytes]:
    """Return the prefixes of answers in all releases, the newest first."""
    return [
        p for p, schema in reversed(schemas_by_prefix().items()) if schema.record == Answer.__name__
    ]


def origins(pipeline: Pipeline) -> Callable[[bytes], list[tuple[int, int]]]:
    """Return a function from a results record's value to its query's (partition, offset).

    The record may have any format, since the pipeline file may have named another one before. The
    function returns no origin for a foreign record. It reads Confluent-framed answers of this and
    earlier releases without the registry, which may have been lost. For others it raises
    ``BrokerError`` if the file names no registry, or the registry does not answer.
    """
    confluent = cache(lambda: _confluent_answers(pipeline))

    def of_framed(value: bytes) -> Record:
        for prefix in _answer_prefixes():
            with suppress(CodecError):
                return decode(prefix + value[FRAME_BYTES:])
        return confluent()(value)

    def found(value: bytes) -> list[tuple[int, int]]:
        framed = value.startswith(b"\0") and len(value) > FRAME_BYTES
        if not framed and not value.startswith(MARK):
            return origin_of_answer(value)
        try:
            record = of_framed(value) if framed else decode(value)
        except CodecError:
            return []
        if not isinstance(record, Answer):
            return []
        return [(record.origin.partition, record.origin.offset)]

    return found


def _confluent_answers(pipeline: Pipeline) -> Callable[[bytes], Record]:
    if not pipeline.schema_registry:
        raise BrokerError(
            f"topic {physical(pipeline.name, RESULTS)} has answers in Confluent's framing, and "
            "without them a query could get two answers; name the registry that they were "
            "written with in the pipeline file (schema_registry: URL) until the topic has dropped "
            "them"
        )
    return confluent_codec(pipeline, RESULTS).decode


def _reader(pipeline: Pipeline) -> Callable[[bytes], Record]:
    """Return the function that decodes a record of the results topic."""
    if pipeline.results == "json":
        return answer_from_json
    return confluent_codec(pipeline, RESULTS).decode if pipeline.results == "confluent" else decode


def _answers(pipeline: Pipeline) -> Decode:
    read = _reader(pipeline)

    def answer(value: bytes) -> Record:
        record = read(value)
        if not isinstance(record, Answer):
            raise CodecError(f"a {type(record).__name__} record where an Answer was expected")
        return unfolded(record)

    return lambda fetched: _decoded(fetched, answer)


def _label(fetched: Fetched) -> Record:
    return _decoded(fetched, lambda value: label_of(value, fetched.key or b""))


def _decoded(fetched: Fetched, decode: Callable[[bytes], Record] = decode) -> Record:
    try:
        return decode(fetched.value or b"")
    except CodecError as error:
        return _garbled(fetched, str(error))


def _raw_query(pipeline: Pipeline) -> Decode:
    header = pipeline.size.header if pipeline.size else ""

    def query(fetched: Fetched) -> Record:
        if fetched.fault:  # its headers may have held an id, a deadline or a size
            return _garbled(fetched, fetched.fault)
        return query_from_raw(fetched.value, fetched.headers, fetched.key, header)

    return query


def _query(fetched: Fetched, decode: Callable[[bytes], Record]) -> Record:
    if fetched.fault and fetched.value is None:
        return _garbled(fetched, fetched.fault)
    record = _decoded(fetched, decode)
    if isinstance(record, Query):
        fault = query_fault(record)
        return replace(_garbled(fetched, fault), id=record.id[:MAX_ID_LENGTH]) if fault else record
    if isinstance(record, Garbled):
        return record
    return _garbled(fetched, f"a {type(record).__name__} record where a Query was expected")


def _garbled(fetched: Fetched, reason: str) -> Garbled:
    # The client returns None for a header without a value, despite its type annotations.
    headers = tuple((name, held or b"") for name, held in fetched.headers or ())
    return Garbled(fetched.value or b"", reason, headers)


def _readable(form: Callable[[Answer], Answer]) -> Callable[[Answer], Answer]:
    """Return ``form``, but leave answers unchanged while older releases must read them."""
    return lambda answer: form(answer) if writes_newest(Answer) else answer


def _without_paths(answer: Answer) -> Answer:
    """Return the answer without paths; one without a result keeps them, for ``explain``."""
    return replace(answer, paths=(), ends=()) if answer.outcome == ANSWERED else answer


def _json_answer(record: Record) -> bytes:
    assert isinstance(record, Answer)
    try:
        return answer_to_json(record)
    except CodecError as error:
        # A result that JSON cannot represent fails the query, not egress.
        failed = replace(
            record, outcome=FAILED, late=False, reason=str(error), result=None,
            reason_code=ReasonCode.COMBINE,
        )  # fmt: skip
        return answer_to_json(failed)


def confluent_codec(pipeline: Pipeline, topic: str) -> ConfluentCodec:
    """Return the codec of a topic in Confluent's framing, by the pipeline's schema registry."""
    # Imported here: the registry's client is an extra and takes half a second to import.
    from streams.codecs.schema_registry import registry_codec

    return registry_codec(pipeline.schema_registry, physical(pipeline.name, topic))


def _confluent_query(pipeline: Pipeline) -> Decode:
    codec = confluent_codec(pipeline, QUERIES)
    return lambda fetched: _query(fetched, codec.decode)


INPUTS: dict[str, Callable[[Pipeline], Decode]] = {
    "raw": _raw_query,
    "avro": lambda _: lambda fetched: _query(fetched, decode),
    "confluent": _confluent_query,
}
# The form of an answer's paths and ends on the topic, by ``answer_paths``.
PATHS: dict[str, Callable[[Answer], Answer]] = {
    "auto": _readable(compact),
    "tree": _readable(folded),
    "all": lambda answer: answer,
    "none": _without_paths,
}
ANSWERS: dict[str, Callable[[Pipeline], Encode]] = {
    "avro": lambda _: encode,
    "json": lambda _: _json_answer,
    "confluent": lambda pipeline: confluent_codec(pipeline, RESULTS).encode,
}
