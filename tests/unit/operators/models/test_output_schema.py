"""Outputs of a leaf task that must match a schema."""

import json
from pathlib import Path
from typing import Any

import pytest

from operators.models.loading import load_operator
from operators.models.model_errors import BadSchema
from operators.models.output_schema import Checked, schema_check
from schemas.pipeline import Variant

AVRO = {
    "type": "record",
    "name": "Postcode",
    "fields": [{"name": "digits", "type": "string"}, {"name": "sure", "type": "double"}],
}
JSON = {
    "type": "object",
    "required": ["digits"],
    "properties": {"digits": {"type": "string", "pattern": "^[0-9]+$"}},
}
GOOD = {"digits": "75001", "sure": 0.9}


def written(folder: Path, schema: object, name: str = "result.avsc") -> Path:
    path = folder / name
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return path


class Echo:
    def load(self, device: str) -> None:
        """Load nothing."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return batch

    def warm_up(self) -> list[Any]:
        return [GOOD]


def test_an_output_that_does_not_fit_fails_alone(tmp_path: Path) -> None:
    checked = Checked(Echo(), schema_check(written(tmp_path, AVRO)))
    raised = KeyError("own")
    fits, wrong, own = checked.predict([GOOD, {"digits": 75001, "sure": 0.9}, raised])
    assert (fits, own) == (GOOD, raised)
    assert isinstance(wrong, ValueError)
    assert "the output does not fit its schema" in str(wrong)
    assert "Postcode.digits is 75001, wanted is string" in str(wrong)
    assert checked.warm_up() == [GOOD]


def test_json_schema_is_checked_where_its_library_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("jsonschema", reason="the extra `schema` is not installed")
    check = schema_check(written(tmp_path, JSON, "result.json"))
    assert check(GOOD) == ""
    assert check({"digits": "7500x"}) == "$.digits: '7500x' does not match '^[0-9]+$'"
    assert check([]) == "$: [] is not of type 'object'"
    with pytest.raises(BadSchema, match=r"is no \.json schema: 'objekt' is not valid"):
        schema_check(written(tmp_path, {"type": "objekt"}, "result.json"))


def test_a_file_that_is_no_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSchema, match=r"ends in \.avsc or \.json"):
        schema_check(tmp_path / "result.xsd")
    with pytest.raises(BadSchema, match="cannot be read: No such file"):
        schema_check(tmp_path / "none.avsc")
    with pytest.raises(BadSchema, match=r"is no \.avsc schema"):
        schema_check(written(tmp_path, "{"))
    with pytest.raises(BadSchema, match=r"is no \.avsc schema"):
        schema_check(written(tmp_path, {"type": "rekord"}))


def test_a_variant_with_a_schema_loads_as_a_checked_operator(tmp_path: Path) -> None:
    operator = "tests.unit.operators.models.test_output_schema:Echo"
    path = str(written(tmp_path, AVRO))
    made = load_operator(Variant(task="t", name="v", operator=operator, output_schema=path))
    assert isinstance(made, Checked)
    with pytest.raises(BadSchema, match=r"t/v: .* cannot be read"):
        load_operator(Variant(task="t", name="v", operator=operator, output_schema="none.avsc"))
