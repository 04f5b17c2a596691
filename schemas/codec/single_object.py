"""Codec for records in Avro's single-object encoding.

``C3 01``, eight bytes of fingerprint (CRC-64-AVRO of the writer's schema in canonical form,
little-endian), the record in Avro's binary encoding. ``schemas/codec/confluent.py`` frames the same
records for a schema registry, ``schemas/codec/json_form.py`` writes them for people.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from io import BytesIO
from typing import Any

from fastavro import schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from schemas.codec.hot import HOT, Parts
from schemas.codec.older_releases import FILL
from schemas.codec.rows import FROM_ROW, TO_ROW, Row
from schemas.codec.schema_store import (
    CURRENT,
    MARK,
    Schema,
    as_of,
    for_resolution,
    schemas_by_prefix,
    symbols,
)
from schemas.codec.values import CodecError
from schemas.records import Record

__all__ = [
    "CodecError", "Reader", "decode", "encode", "prefix_of", "read", "reader_of", "write",
    "write_as", "write_row", "writes_newest",
]  # fmt: skip

_PREFIX_LENGTH = 10
# Errors of fastavro and the record classes for data that do not fit; all become CodecError.
_MISFITS = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError,
    SchemaResolutionError, StopIteration, TypeError, ValueError, struct.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reader:
    """The schemas and the constructor that turn bytes of one schema into a record."""

    record: str
    written_as: Any
    read_as: Any  # None if both are the same, which is a quarter faster
    build: Callable[[Row], Record]


def reader_of(schema: Schema) -> Reader:
    """Return the reader for a writer's schema; raise CodecError if its record is unknown."""
    current = CURRENT.get(schema.record)
    if current is None:
        raise CodecError(
            f"the schema is of a record named {schema.record!r}; known are {', '.join(CURRENT)}"
        )
    build = FROM_ROW[current.record]
    if schema.prefix == current.prefix:
        return Reader(current.record, schema.parsed, None, build)
    read_as = for_resolution(current.parsed)
    return Reader(current.record, schema.parsed, read_as, _filled(current.record, build))


def _filled(record: str, build: Callable[[Row], Record]) -> Callable[[Row], Record]:
    """Return ``build``, preceded by filling in enumerations that older records lack."""
    fill = FILL.get(record)
    if fill is None:
        return build

    def filled(row: Row) -> Record:
        fill(row)
        return build(row)

    return filled


_WRITERS = {
    kind: (to_row, CURRENT[kind.__name__].parsed, CURRENT[kind.__name__].prefix)
    for kind, to_row in TO_ROW.items()
}
_READERS = {schema.prefix: reader_of(schema) for schema in CURRENT.values()}
# The schemas of an earlier release that ``encode`` writes, each with the symbols that it lacks.
_OLDER: dict[type, tuple[Schema, frozenset[str]]] = {}


def write_as(release: int | None) -> None:
    """Make ``encode`` write as ``release`` did, for processes of it; None: the current release.

    Applies to this process from now on. Raises ``ValueError`` for an unknown release.
    """
    _OLDER.clear()
    if release is not None:
        _OLDER.update(_older(release))


@cache
def _older(release: int) -> Mapping[type, tuple[Schema, frozenset[str]]]:
    """Return the schemas of a release that differ from the current ones, each with the symbols that
    it lacks."""
    schemas = as_of(release)
    found = {}
    for kind in TO_ROW:
        schema = schemas.get(kind.__name__)
        current = CURRENT[kind.__name__]
        if schema is not None and schema.prefix != current.prefix:
            had = symbols(schema.parsed)
            found[kind] = (schema, symbols(current.parsed) - had if had else had)
    return found


def writes_newest(kind: type) -> bool:
    """Return whether records of a class are written by their newest schema (see ``write_as``)."""
    return kind not in _OLDER


def encode(record: Record) -> bytes:
    """Return a record as Avro; raise CodecError for values outside the contract."""
    older = _OLDER.get(type(record))
    if older is None:
        return write(record, prefix_of(record))
    schema, lacks = older
    try:
        row = _WRITERS[type(record)][0](record)
        return _bytes(_known(row, lacks) if lacks else row, schema.parsed, schema.prefix)
    except CodecError:
        raise
    except _MISFITS as problem:
        raise _misfit(record, problem) from problem


@cache
def _readers_of_all_releases() -> dict[bytes, Reader]:
    return {prefix: reader_of(schema) for prefix, schema in schemas_by_prefix().items()}


def decode(data: bytes) -> Record:
    """Return the record that ``encode`` of this or any earlier release wrote.

    Raises CodecError, and nothing else, for all other bytes.
    """
    prefix = data[:_PREFIX_LENGTH]
    reader = _READERS.get(prefix) or _readers_of_all_releases().get(prefix)
    if reader is None:
        raise CodecError(_unknown(data))
    return read(reader, data, _PREFIX_LENGTH)


def prefix_of(record: Record) -> bytes:
    """Return the ten bytes of the encoding's prefix; raise CodecError for in-process records."""
    writer = _WRITERS.get(type(record))
    if writer is None:
        raise CodecError(
            f"{type(record).__name__} records never leave the process; "
            f"send one of {', '.join(CURRENT)}"
        )
    return writer[2]


def write(record: Record, prefix: bytes) -> bytes:
    """Return the record in Avro's binary encoding behind a prefix; raise CodecError."""
    hot = HOT.get(type(record))
    try:
        if hot is None:
            return write_row(record, prefix)
        parts: Parts = [prefix]
        hot(record, parts)
        return b"".join(parts)
    except CodecError:
        raise
    except _MISFITS as problem:
        raise _misfit(record, problem) from problem


def write_row(record: Record, prefix: bytes) -> bytes:
    """Return the same bytes as ``write``, through a row and fastavro, whose errors propagate."""
    return _row(record, _WRITERS[type(record)][1], prefix)


def _row(record: Record, schema: Any, prefix: bytes) -> bytes:
    return _bytes(_WRITERS[type(record)][0](record), schema, prefix)


def _bytes(row: Row, schema: Any, prefix: bytes) -> bytes:
    buffer = BytesIO()
    buffer.write(prefix)
    schemaless_writer(buffer, schema, row)  # fields that the schema does not know are left out
    return buffer.getvalue()


def _known(value: Any, lacks: frozenset[str]) -> Any:
    """Return a row in which OTHER replaces the members of enumerations that an older schema lacks.

    Readers with that schema read them so from the current schema, too.
    """
    if isinstance(value, StrEnum):
        return type(value)("other") if value in lacks else value
    if isinstance(value, dict):
        return {name: _known(each, lacks) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_known(each, lacks) for each in value])
    return value


def _misfit(record: Record, problem: Exception) -> CodecError:
    kind = type(record).__name__
    return CodecError(f"the {kind} record cannot be written: {_message(problem)}")


def read(reader: Reader, data: bytes, start: int) -> Record:
    """Return the record from ``start``; raise CodecError unless it is valid and uses all bytes."""
    buffer = BytesIO(data)
    buffer.seek(start)
    try:
        row = schemaless_reader(buffer, reader.written_as, reader.read_as)
        left = len(data) - buffer.tell()
        if left == 0:
            return reader.build(row)
    except CodecError as problem:
        raise CodecError(f"the {reader.record} record makes no sense: {problem}") from problem
    except _MISFITS as problem:
        raise CodecError(
            f"the {reader.record} record of {len(data)} bytes is broken or cut short: "
            f"{_message(problem)}"
        ) from problem
    raise CodecError(f"the {reader.record} record has {left} bytes too many at its end")


def _unknown(data: bytes) -> str:
    if not data:
        return "a record is empty; an Avro record in single-object encoding is wanted"
    if data[:2] != MARK:
        return (
            f"a record begins with {data[:2].hex(' ')} where Avro's single-object encoding begins "
            "with c3 01; check the format that the pipeline file names for the topic"
        )
    if len(data) < _PREFIX_LENGTH:
        return f"a record ends after {len(data)} of the 10 bytes that name its schema"
    return (
        f"a record was written by a schema with the unknown fingerprint {data[2:10].hex()}; "
        "bring readers to the newer release before writers"
    )


def _message(problem: BaseException) -> str:
    return (str(problem) or type(problem).__name__)[:200]
