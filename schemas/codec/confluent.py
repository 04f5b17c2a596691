"""Codec for records in Confluent's framing, for sites that run a schema registry.

``00``, the registry's id of the writer's schema (four bytes, big-endian), the record in Avro's
binary encoding. The caller passes the registry as two functions.
"""

from collections.abc import Callable

from fastavro.schema import SchemaParseException, UnknownType

from schemas.codec.schema_bounds import check_bounded
from schemas.codec.schema_store import CURRENT, MARK, parse
from schemas.codec.single_object import Reader, prefix_of, read, reader_of, write
from schemas.codec.values import CodecError
from schemas.records import Record

_PREFIX_LENGTH = 5
_NOT_AVRO = (
    AttributeError, LookupError, MemoryError, RecursionError, SchemaParseException, TypeError,
    UnknownType, ValueError,
)  # fmt: skip


class ConfluentCodec:
    """``encode`` and ``decode`` with schema ids in place of fingerprints; looks each id up once.

    ``id_of`` registers a schema's JSON text and returns its id. ``schema_of`` returns the text of
    an id and raises LookupError if there is none, or CodecError. Their other errors (a registry
    that does not answer) propagate, because they do not concern the bytes.
    """

    def __init__(self, id_of: Callable[[str], int], schema_of: Callable[[int], str]) -> None:
        self._id_of = id_of
        self._schema_of = schema_of
        self._prefixes: dict[str, bytes] = {}
        self._readers: dict[bytes, Reader] = {}

    def encode(self, record: Record) -> bytes:
        """Return a record as Avro in Confluent's framing; raise CodecError as ``encode`` does."""
        name = type(record).__name__
        prefix = self._prefixes.get(name)
        if prefix is None:
            prefix_of(record)  # raises for in-process records
            prefix = b"\0" + self._id_of(CURRENT[name].text).to_bytes(4, "big")
            self._prefixes[name] = prefix
        return write(record, prefix)

    def decode(self, data: bytes) -> Record:
        """Return the record, written by any schema of that name; raise CodecError."""
        prefix = data[:_PREFIX_LENGTH]
        reader = self._readers.get(prefix)
        if reader is None:
            reader = self._readers[prefix] = self._reader(prefix)
        return read(reader, data, _PREFIX_LENGTH)

    def _reader(self, prefix: bytes) -> Reader:
        if len(prefix) < _PREFIX_LENGTH or prefix[0] != 0:
            found = "Avro's single-object encoding" if prefix[:2] == MARK else prefix.hex(" ")
            raise CodecError(
                "a record of Confluent's framing begins with 00 and a schema id of four bytes, "
                f"this one with {found or 'nothing'}; check the format in the pipeline file"
            )
        number = int.from_bytes(prefix[1:], "big")
        try:
            text = self._schema_of(number)
        except LookupError:
            raise CodecError(f"the registry has no schema with the id {number}") from None
        try:
            schema = parse(text)
            check_bounded(schema.parsed)
            return reader_of(schema)
        except CodecError:
            raise
        except _NOT_AVRO as problem:
            raise CodecError(f"schema {number} of the registry is not Avro: {problem}") from problem
