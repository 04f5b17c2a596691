"""The wire contract: every schema in force and every one ever released, by fingerprint.

``avro/NAME.avsc`` is what we write and what readers are given, ``avro/released/N/NAME.avsc`` a
copy of it as released, so that records of older writers can still be read.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

MARK = b"\xc3\x01"  # of Avro's single-object encoding


@dataclass(frozen=True, slots=True)
class Schema:
    """A parsed schema, its text, and the ten bytes that single-object encoding begins with."""

    record: str  # unqualified name, as of the class in schemas/records.py
    parsed: Any
    text: str
    prefix: bytes


def parse(text: str) -> Schema:
    """A schema from its JSON text; raises ValueError or fastavro's errors where it is none."""
    raw = json.loads(text)
    digest = fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO")
    parsed = fastavro.parse_schema(raw)
    name = parsed["name"].rpartition(".")[2] if isinstance(parsed, dict) else ""
    # fastavro prints the fingerprint in the little-endian order that the encoding asks for.
    return Schema(name, parsed, text, MARK + bytes.fromhex(digest))


def for_resolution(parsed: Any) -> Any:
    """A reader's schema that leaves unions of string and bytes as they were written.

    fastavro takes the first branch that the written one can be promoted to, and string and bytes
    promote to each other, so that it would hand back bytes as text. Where the reader has no
    opinion it hands back what was written.
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


def _load(folder: Traversable) -> list[Schema]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".avsc"))
    return [parse((folder / name).read_text("utf-8")) for name in names]


_AVRO = files("schemas") / "avro"

CURRENT: dict[str, Schema] = {schema.record: schema for schema in _load(_AVRO)}
# What each release changed, by its number, the oldest first.
RELEASED: dict[int, list[Schema]] = {
    int(folder.name): _load(folder)
    for folder in sorted(
        (folder for folder in (_AVRO / "released").iterdir() if folder.is_dir()),
        key=lambda folder: int(folder.name),
    )
}
KNOWN: dict[bytes, Schema] = {
    schema.prefix: schema
    for schema in [
        *(old for release in RELEASED.values() for old in release),
        *CURRENT.values(),  # last, so that they win
    ]
}


def as_of(release: int) -> dict[str, Schema]:
    """The schema of every record as that release wrote it; raises ``ValueError`` naming the
    releases there are."""
    if release not in RELEASED:
        raise ValueError(f"there is no release {release}; released are {[*RELEASED]}")
    changes = [schemas for number, schemas in RELEASED.items() if number <= release]
    return {schema.record: schema for schemas in changes for schema in schemas}
