"""The wire contract: every current and every released schema, by fingerprint.

``avro/NAME.avsc`` is the current schema, for writers and readers; ``avro/released/N/NAME.avsc`` is
a copy as released, so that records of older writers can still be read. These are parsed when the
first such record comes: most processes never see one, and their fingerprints take 15 ms of CPU.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

MARK = b"\xc3\x01"  # of Avro's single-object encoding


@dataclass(frozen=True, slots=True)
class Schema:
    """A parsed schema, its text, and the ten-byte prefix of its single-object encoding."""

    record: str  # unqualified name, as that of the class in schemas/records/
    parsed: Any
    text: str
    prefix: bytes


def parse(text: str) -> Schema:
    """Return a schema from its JSON text; raise ValueError or fastavro's errors."""
    raw = json.loads(text)
    digest = fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO")
    parsed = fastavro.parse_schema(raw)
    name = parsed["name"].rpartition(".")[2] if isinstance(parsed, dict) else ""
    # fastavro prints the fingerprint in the encoding's little-endian order.
    return Schema(name, parsed, text, MARK + bytes.fromhex(digest))


def for_resolution(parsed: Any) -> Any:
    """Return a reader's schema that keeps unions of string and bytes as written.

    fastavro takes the first branch that the written one can be promoted to, and string and bytes
    promote to each other, so that it would return bytes as text. Where the reader's schema has
    None, fastavro returns the written branch.
    """
    if isinstance(parsed, list):
        kept = not {"string", "bytes"} <= {branch for branch in parsed if type(branch) is str}
        return [for_resolution(branch) for branch in parsed] if kept else None
    if not isinstance(parsed, dict):
        return parsed
    copy = dict(parsed)
    for key in ("items", "values"):
        if key in copy:
            copy[key] = for_resolution(copy[key])
    if "fields" in copy:
        copy["fields"] = [{**f, "type": for_resolution(f["type"])} for f in copy["fields"]]
    return copy


def symbols(parsed: Any) -> frozenset[str]:
    """Return the symbols of all enums in a parsed schema."""
    if isinstance(parsed, list):
        return frozenset().union(*map(symbols, parsed))
    if not isinstance(parsed, dict):
        return frozenset()
    inner = [field["type"] for field in parsed.get("fields", ())]
    inner += [parsed[key] for key in ("items", "values", "type") if key in parsed]
    return frozenset(parsed.get("symbols", ())) | symbols(inner)


def _load(folder: Traversable) -> list[Schema]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".avsc"))
    return [parse((folder / name).read_text("utf-8")) for name in names]


_AVRO = files("schemas") / "avro"

CURRENT: dict[str, Schema] = {schema.record: schema for schema in _load(_AVRO)}


@cache
def released() -> dict[int, list[Schema]]:
    """Return by release number the schemas that the release changed; the oldest first."""
    folders = (folder for folder in (_AVRO / "released").iterdir() if folder.is_dir())
    by_number = sorted(folders, key=lambda folder: int(folder.name))
    return {int(folder.name): _load(folder) for folder in by_number}


@cache
def schemas_by_prefix() -> dict[bytes, Schema]:
    """Return every schema by its prefix, released ones first."""
    schemas = [
        *(old for release in released().values() for old in release),
        *CURRENT.values(),  # last, so that they take precedence
    ]
    return {schema.prefix: schema for schema in schemas}


def as_of(release: int) -> dict[str, Schema]:
    """Return the schema of every record as a release wrote it; raise ``ValueError`` if unknown."""
    if release not in released():
        raise ValueError(f"there is no release {release}; released are {[*released()]}")
    changes = [schemas for number, schemas in released().items() if number <= release]
    return {schema.record: schema for schemas in changes for schema in schemas}
