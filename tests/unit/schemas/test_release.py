"""The release that nodes declare is the newest one released."""

from msgspec.structs import fields

from schemas.codec.schema_store import CURRENT, as_of, released
from schemas.records import Plan, Report
from schemas.release import RELEASE, UNDECLARED


def test_the_release_is_the_newest_folder() -> None:
    assert max(released()) == RELEASE
    assert {n: s.prefix for n, s in as_of(RELEASE).items()} == {
        n: s.prefix for n, s in CURRENT.items()
    }


def test_nodes_before_the_declaration_read_neither_of_its_fields() -> None:
    old = as_of(UNDECLARED)
    for kind, name in ((Plan, "release"), (Report, "file")):
        assert name in {field.name for field in fields(kind)}
        assert name not in {each["name"] for each in old[kind.__name__].parsed["fields"]}
