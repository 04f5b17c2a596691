"""Current code reads every released schema, and every schema change is released deliberately.

To change a record: edit ``schemas/avro/NAME.avsc`` (a new field needs a default), its class in
``schemas/records/``, its row in ``schemas/codec/rows.py`` (``codec/hot.py`` too for Work and
Answer) and ``docs/reference/records.md``; then release it: copy the file to the folder of the open
release under ``schemas/avro/released/`` and write the checksums anew as ``RELEASE`` says.
"""

import copy
import hashlib
import json
import typing
from io import BytesIO
from pathlib import Path
from typing import Any

import avro.schema
import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from msgspec import NODEFAULT
from msgspec.structs import fields

from schemas import enumerations, records
from schemas.codec.schema_store import CURRENT, parse
from schemas.codec.single_object import decode, read, reader_of

AVRO = Path(__file__).parents[2] / "schemas" / "avro"
RELEASED = AVRO / "released"
RELEASE = "cd schemas/avro/released && sha256sum */*.avsc > SHA256SUMS"
OLD = sorted(RELEASED.glob("*/*.avsc"))
NOW = sorted(AVRO.glob("*.avsc"))

# Releases ("2/work.avsc") that readers of the release before them cannot read.
ONE_WAY: frozenset[str] = frozenset()

Schema = dict[str, Any]


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def problems(reader: str, writer: str) -> list[str]:
    """Return why the reader cannot read the writer's records, according to Apache Avro and our own
    rules."""
    checker = ReaderWriterCompatibilityChecker()
    result = checker.get_compatibility(avro.schema.parse(reader), avro.schema.parse(writer))
    # Avro lets a union without bytes read bytes as a string. For Headrace, that changes the value.
    kept, had = branches(json.loads(reader)), branches(json.loads(writer))
    lost = [
        f"{place} has lost {', '.join(sorted(had[place] - kept[place]))}"
        for place in had
        if place in kept and not had[place] <= kept[place]
    ]
    if result.compatibility is SchemaCompatibilityType.compatible:
        return lost
    return [*sorted(result.messages), *lost]


def branches(schema: Any, place: str = "") -> dict[str, set[str]]:
    """Return the names of the branches of every union, by the path to it."""
    if isinstance(schema, list):
        names = {one["name"] if isinstance(one, dict) else one for one in schema}
        inner = [(one, f"{place}/{one['name']}") for one in schema if isinstance(one, dict)]
        return {place: names} | merged(inner)
    if not isinstance(schema, dict):
        return {}
    inner = [(field["type"], f"{place}/{field['name']}") for field in schema.get("fields", ())]
    inner += [(schema[key], f"{place}/{key}") for key in ("items", "values") if key in schema]
    return merged(inner)


def merged(inner: list[tuple[Any, str]]) -> dict[str, set[str]]:
    return {place: names for one, at in inner for place, names in branches(one, at).items()}


def releases(name: str) -> list[Path]:
    """Return the released copies of a schema, oldest first."""
    copies = [path for path in OLD if path.name == name]
    assert copies, f"{name} was never released: copy it to a folder under released/, then {RELEASE}"
    return sorted(copies, key=lambda path: int(path.parent.name))


def newest(name: str) -> Path:
    return releases(name)[-1]


# --- what was released stays ----------------------------------------------------------------------


def test_released_schemas_are_as_they_were_released() -> None:
    sums = {named(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in OLD}
    listed = dict(
        reversed(line.split("  ", 1)) for line in (RELEASED / "SHA256SUMS").read_text().splitlines()
    )
    assert sums == listed, (
        "a released schema was edited, removed or added: undo an edit; after a release: " + RELEASE
    )


@pytest.mark.parametrize("path", OLD, ids=named)
def test_what_a_released_schema_wrote_can_be_read(path: Path) -> None:
    assert problems(reader=(AVRO / path.name).read_text(), writer=path.read_text()) == []


@pytest.mark.parametrize("path", NOW, ids=named)
def test_each_release_can_read_what_the_next_one_writes(path: Path) -> None:
    # External consumers upgrade independently. ONE_WAY lists the unavoidable exceptions.
    *earlier, last = [*releases(path.name), path]
    later = [*earlier[1:], last]
    for older, newer in zip(earlier, later, strict=True):
        if named(newer) not in ONE_WAY:
            assert problems(reader=older.read_text(), writer=newer.read_text()) == []


@pytest.mark.parametrize("path", NOW, ids=named)
def test_a_changed_schema_is_released(path: Path) -> None:
    released = newest(path.name)
    assert undocumented(json.loads(path.read_text())) == undocumented(
        json.loads(released.read_text())
    ), (
        f"{path.name} differs from {named(released)}: copy it to released/"
        f"{int(released.parent.name) + 1}/ and run: {RELEASE}"
    )


def undocumented(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: undocumented(value) for key, value in schema.items() if key != "doc"}
    return [undocumented(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("path", OLD, ids=named)
def test_bytes_of_a_released_schema_are_decoded(path: Path) -> None:
    schema = parse(path.read_text())
    body = BytesIO(schema.prefix)
    body.seek(0, 2)
    row = {f["name"]: sample(f["type"]) for f in schema.parsed["fields"] if "default" not in f}
    fastavro.schemaless_writer(body, schema.parsed, row)
    assert type(decode(body.getvalue())).__name__ == schema.record


def test_a_hop_of_the_first_release_has_no_batch_release_reason() -> None:
    schema = parse((RELEASED / "1" / "work.avsc").read_text())
    hop = {
        "task": "locate", "variant": "v", "worker": "w", "epoch": 3, "received_s": 1.0,
        "started_s": 2.0, "finished_s": 3.0, "batch": 4,
    }  # fmt: skip
    row = {
        "query_id": "q", "origin": {"partition": 0, "offset": 1}, "task": "read",
        "created_s": 0.0, "deadline_s": 4.0, "epoch": 3, "items": [{"path": [hop]}],
    }  # fmt: skip
    body = BytesIO()
    body.write(schema.prefix)
    fastavro.schemaless_writer(body, schema.parsed, row)
    work = decode(body.getvalue())
    assert isinstance(work, records.Work)
    assert work.items[0].path == (records.Hop(**hop, released=""),)


def sample(kind: Any) -> Any:
    """Return the minimal value of a type."""
    if isinstance(kind, list):
        return sample(kind[0])
    if isinstance(kind, dict) and kind["type"] == "record":
        return {f["name"]: sample(f["type"]) for f in kind["fields"] if "default" not in f}
    if isinstance(kind, dict) and kind["type"] == "enum":
        return kind["symbols"][0]
    if isinstance(kind, dict):
        return {"array": [], "map": {}}[kind["type"]]
    return {"null": None, "boolean": False, "long": 0, "double": 0.0, "string": "", "bytes": b""}[
        kind
    ]


# --- the checks detect what they should -----------------------------------------------------------


def field_of(schema: Schema, name: str) -> Schema:
    found: Schema = next(field for field in schema["fields"] if field["name"] == name)
    return found


def without_default(schema: Schema) -> None:
    schema["fields"].append({"name": "tenant", "type": "string"})


def with_other_type(schema: Schema) -> None:
    field_of(schema, "task")["type"] = "long"


def without_a_branch(schema: Schema) -> None:
    field_of(field_of(schema, "items")["type"]["items"], "value")["type"].remove("bytes")


def with_other_name(schema: Schema) -> None:
    field_of(schema, "query_id")["name"] = "query"


@pytest.mark.parametrize(
    "change", [without_default, with_other_type, without_a_branch, with_other_name]
)
def test_an_incompatible_change_is_found(change: typing.Callable[[Schema], None]) -> None:
    changed = json.loads((AVRO / "work.avsc").read_text())
    change(changed)
    assert problems(reader=json.dumps(changed), writer=newest("work.avsc").read_text())


def test_a_new_field_with_a_default_is_compatible_and_still_has_to_be_released() -> None:
    old = json.loads(newest("work.avsc").read_text())
    new = copy.deepcopy(old)
    new["fields"].append({"name": "tenant", "type": "string", "default": ""})
    assert problems(reader=json.dumps(new), writer=json.dumps(old)) == []
    assert problems(reader=json.dumps(old), writer=json.dumps(new)) == []
    assert undocumented(new) != undocumented(old)


# --- one vocabulary -------------------------------------------------------------------------------

WHERE = (
    "bring schemas/avro, codec/rows.py, codec/hot.py and docs/reference/records.md in line "
    "with schemas/records"
)
# Names that exist in Avro only: branches of a value, and a pair.
AVRO_ONLY = {"Tensor", "Json", "List", "Map", "Header"}


def definitions(schema: Any) -> list[Schema]:
    """Return the records and enums that a schema defines, outer before inner."""
    if isinstance(schema, list):
        return [found for one in schema for found in definitions(one)]
    if not isinstance(schema, dict):
        return []
    inner = [
        *(found for field in schema.get("fields", ()) for found in definitions(field["type"])),
        *definitions(schema.get("items")),
        *definitions(schema.get("values")),
    ]
    return [schema, *inner] if schema["type"] in ("record", "enum") else inner


NAMED = [found for path in NOW for found in definitions(json.loads(path.read_text()))]
DEFINED = [found for found in NAMED if found["type"] == "record"]
ENUMS = [found for found in NAMED if found["type"] == "enum"]


@pytest.mark.parametrize(
    "schema",
    [schema for schema in DEFINED if schema["name"] not in AVRO_ONLY],
    ids=lambda schema: str(schema["name"]),
)
def test_a_schema_has_the_fields_and_defaults_of_its_class(schema: Schema) -> None:
    kind = getattr(records, schema["name"])
    assert [f["name"] for f in schema["fields"]] == [f.name for f in fields(kind)], WHERE
    defaults = {f["name"]: f["default"] for f in schema["fields"] if "default" in f}
    for field in fields(kind):
        default = default_of(field)
        if default is not NODEFAULT:
            assert defaults[field.name] == default, f"{schema['name']}.{field.name}: {WHERE}"


def default_of(field: Any) -> Any:
    value = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    return list(value) if isinstance(value, tuple) else value


def test_a_type_that_stands_in_several_schemas_is_the_same_in_each() -> None:
    first: dict[str, Schema] = {}
    for schema in NAMED:
        assert first.setdefault(schema["name"], schema) == schema


@pytest.mark.parametrize("schema", ENUMS, ids=lambda schema: str(schema["name"]))
def test_an_enum_has_the_symbols_of_its_class(schema: Schema) -> None:
    # The order must match, because the binary encoding is the index.
    kind = getattr(enumerations, schema["name"])
    assert schema["symbols"] == [member.value for member in kind]
    assert schema["default"] == kind.OTHER, "what readers take an unknown symbol for"


def test_a_symbol_of_a_later_release_is_read_as_other() -> None:
    later = json.loads((AVRO / "notice.avsc").read_text())
    code = next(each for each in definitions(later) if each["type"] == "enum")
    code["symbols"].append("sunspots")
    schema = parse(json.dumps(later))
    noticed = {"query_id": "q", "offset": 1, "created_s": 1.0, "deadline_s": 2.0,
               "refused": "sunspots", "reason_code": "sunspots"}  # fmt: skip
    body = BytesIO()
    fastavro.schemaless_writer(
        body, schema.parsed, {"partition": 0, "upto": 2, "queries": [noticed]}
    )
    back = read(reader_of(schema), body.getvalue(), 0)
    assert isinstance(back, records.Notice)
    assert back.queries[0].reason_code is enumerations.ReasonCode.OTHER


def test_apache_avro_agrees_on_every_fingerprint() -> None:
    apache = {
        name: avro.schema.parse(schema.text).fingerprint("CRC-64-AVRO")
        for name, schema in CURRENT.items()
    }
    assert apache == {name: schema.prefix[2:] for name, schema in CURRENT.items()}


def test_every_schema_stands_in_the_headrace_namespace_and_is_documented() -> None:
    for path in NOW:
        assert json.loads(path.read_text())["namespace"] == "headrace"
    for schema in DEFINED:
        assert schema["doc"], schema["name"]
        assert all(field["doc"] for field in schema["fields"]), schema["name"]
