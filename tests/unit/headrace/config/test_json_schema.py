"""The JSON Schema of the pipeline file matches the file's sections."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from control.policies import known_kinds
from headrace.config.json_schema import json_schema
from headrace.config.sections import FileSection

ROOT = Path(__file__).parents[4]
FILES = sorted([*ROOT.glob("examples/**/pipeline.yaml"), *ROOT.glob("tests/pipelines/*/*.yaml")])
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int, "number": (int, float),
}  # fmt: skip


class Checker:
    """A checker for the part of JSON Schema that ours uses; an unknown keyword fails the test."""

    SILENT = frozenset(
        ["$schema", "$defs", "title", "description", "default", "examples", "pattern"]
    )

    def __init__(self) -> None:
        self.schema = json_schema()

    def wrong(self, value: Any, schema: Any = None) -> list[str]:
        schema = self.schema if schema is None else schema
        if schema is True:
            return []
        found: list[str] = []
        for keyword, wanted in schema.items():
            if keyword not in self.SILENT and keyword not in ("then", "properties"):
                found += getattr(self, f"_{keyword.lstrip('$')}")(value, wanted, schema)
        for name, each in schema.get("properties", {}).items():
            if isinstance(value, dict) and name in value:
                found += self.wrong(value[name], each)
        return found

    def _ref(self, value: Any, wanted: str, schema: Any) -> list[str]:
        return self.wrong(value, self.schema["$defs"][wanted.rpartition("/")[2]])

    def _type(self, value: Any, wanted: str, schema: Any) -> list[str]:
        right = isinstance(value, TYPES[wanted])
        right = right and not (wanted in ("integer", "number") and isinstance(value, bool))
        return [] if right else [f"{value!r} is no {wanted}"]

    def _enum(self, value: Any, wanted: list[Any], schema: Any) -> list[str]:
        return [] if value in wanted else [f"{value!r} is none of {wanted}"]

    def _const(self, value: Any, wanted: Any, schema: Any) -> list[str]:
        return [] if value == wanted else [f"{value!r} is not {wanted!r}"]

    def _required(self, value: Any, wanted: list[str], schema: Any) -> list[str]:
        return [f"{name} is missing" for name in wanted if name not in value]

    def _additionalProperties(self, value: Any, wanted: Any, schema: Any) -> list[str]:
        others = [n for n in value if n not in schema.get("properties", {})]
        if wanted is False:
            return [f"{name} is no key" for name in others]
        return [each for name in others for each in self.wrong(value[name], wanted)]

    def _items(self, value: Any, wanted: Any, schema: Any) -> list[str]:
        return [each for item in value for each in self.wrong(item, wanted)]

    def _anyOf(self, value: Any, wanted: list[Any], schema: Any) -> list[str]:
        found = [self._safely(value, each) for each in wanted]
        return [] if any(not each for each in found) else found[0]

    def _allOf(self, value: Any, wanted: list[Any], schema: Any) -> list[str]:
        return [each for part in wanted for each in self.wrong(value, part)]

    def _if(self, value: Any, wanted: Any, schema: Any) -> list[str]:
        return [] if self.wrong(value, wanted) else self.wrong(value, schema["then"])

    def _safely(self, value: Any, schema: Any) -> list[str]:
        kind = schema.get("type")
        return (
            self._type(value, kind, schema)
            if kind and self._type(value, kind, schema)
            else (self.wrong(value, schema))
        )

    def _minimum(self, value: Any, wanted: float, schema: Any) -> list[str]:
        return [] if value >= wanted else [f"{value} is below {wanted}"]

    def _maximum(self, value: Any, wanted: float, schema: Any) -> list[str]:
        return [] if value <= wanted else [f"{value} is above {wanted}"]

    def _minProperties(self, value: Any, wanted: int, schema: Any) -> list[str]:
        return [] if len(value) >= wanted else ["too few entries"]

    def _exclusiveMinimum(self, value: Any, wanted: float, schema: Any) -> list[str]:
        return [] if value > wanted else [f"{value} is not above {wanted}"]

    _minItems = _minProperties


def checked(document: Any) -> list[str]:
    return Checker().wrong(document)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_files_that_are_right_pass(path: Path) -> None:
    assert checked(yaml.safe_load(path.read_text())) == []


def test_what_is_wrong_is_found() -> None:
    document = yaml.safe_load(FILES[0].read_text())
    document["slo"] = 300
    document["egres"] = 1
    document["policies"] = {"mine": {"kind": "loki", "no_option_of_it": 1}, "x": {"kind": "lok"}}
    found = "; ".join(checked(document))
    for mistake in ("300 is no string", "egres is no key", "no_option_of_it is no key", "'lok' is"):
        assert mistake in found


def test_a_task_has_variants_or_the_keys_of_its_only_one() -> None:
    document = yaml.safe_load(FILES[0].read_text())
    document["tasks"] = {"split": {"operator": "words:Split", "batch": 8, "children": []}}
    assert checked(document) == []
    document["tasks"] = {"split": {"batch": 8}}
    assert checked(document) == ["variants is missing"]


def test_schema_has_every_key_and_every_policy_kind() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == set(FileSection.model_fields)
    policy = schema["properties"]["policies"]["additionalProperties"]
    assert policy["properties"]["kind"]["enum"] == list(known_kinds())
