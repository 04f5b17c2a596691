"""Which bytes stand on which topic: the codec that a pipeline's topics are read and written with."""

from collections.abc import Callable
from typing import NamedTuple

from schemas.codec import CodecError, decode, encode
from schemas.effects import QUERIES, RESULTS
from schemas.json_form import answer_to_json, query_from_raw
from schemas.pipeline import Pipeline
from schemas.records import Answer, Garbled, Query, Record, Work


class Fetched(NamedTuple):
    """A record as the broker gave it. ``at_s`` is its time stamp, seconds since the epoch."""

    topic: str
    slot: int
    offset: int
    at_s: float
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None


Decode = Callable[[Fetched], Record]
Encode = Callable[[Record], bytes]


def decoder(pipeline: Pipeline, topic: str) -> Decode:
    """How records of a logical topic are read. What cannot be read comes back ``Garbled``."""
    if topic == QUERIES:
        return INPUTS[pipeline.input]
    return _avro


def encoder(pipeline: Pipeline, topic: str) -> Encode:
    """How records of a logical topic are written."""
    return OUTPUTS[pipeline.results] if topic == RESULTS else encode


def _avro(fetched: Fetched) -> Record:
    try:
        return decode(fetched.value or b"")
    except CodecError as error:
        return _garbled(fetched, str(error))


def _raw_query(fetched: Fetched) -> Record:
    return query_from_raw(fetched.value, fetched.headers, fetched.key)


def _avro_query(fetched: Fetched) -> Record:
    record = _avro(fetched)
    if isinstance(record, Query | Garbled):
        return record
    return _garbled(fetched, f"a {type(record).__name__} record where a Query was expected")


def _garbled(fetched: Fetched, reason: str) -> Garbled:
    return Garbled(fetched.value or b"", reason, tuple(fetched.headers or ()))


def _json_answer(record: Record) -> bytes:
    assert isinstance(record, Answer)
    return answer_to_json(record)


INPUTS: dict[str, Decode] = {"raw": _raw_query, "avro": _avro_query}
OUTPUTS: dict[str, Encode] = {"avro": encode, "json": _json_answer}

__all__ = ["Decode", "Encode", "Fetched", "Work", "decoder", "encoder"]
