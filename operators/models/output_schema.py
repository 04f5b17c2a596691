"""The schema of a leaf task's outputs: Avro (``.avsc``), or JSON Schema (``.json``).

An output that does not fit fails its own item before anything is sent. The error names the place
and the expected form, and consumers only get results of the agreed form.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from operators.calls.operator_outputs import listed
from operators.models.libraries import library
from operators.models.model_errors import BadSchema

Check = Callable[[Any], str]  # the error of an output, "" if it fits
MOST_SHOWN = 200  # most characters of a value in an error


class Checked:
    """An operator of a leaf task whose outputs are checked against a schema."""

    def __init__(self, operator: Any, check: Check) -> None:
        self._operator = operator
        self._check = check
        if hasattr(operator, "warm_up"):
            self.warm_up = operator.warm_up

    def load(self, device: str) -> None:
        """Load the operator."""
        self._operator.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Return the operator's outputs; a misfit becomes an exception with the reason."""
        return [self._fitting(output) for output in listed(self._operator.predict(batch))]

    def _fitting(self, output: Any) -> Any:
        if isinstance(output, Exception):
            return output
        wrong = self._check(output)
        return ValueError(f"the output does not fit its schema: {wrong}") if wrong else output


def schema_check(path: Path) -> Check:
    """Return the check of a schema file, by its ending; raise ``BadSchema`` for an unusable one."""
    if path.suffix not in _KINDS:
        raise BadSchema(f"{path} is no schema; name a file that ends in {' or '.join(_KINDS)}")
    try:
        text = path.read_text("utf-8")
        return _KINDS[path.suffix](json.loads(text))
    except OSError as error:
        raise BadSchema(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise BadSchema(f"{path} is no {path.suffix} schema: {error}") from error


def _avro(schema: Any) -> Check:
    parsed = fastavro.parse_schema(schema)

    def wrong(output: Any) -> str:
        try:
            validate(output, parsed)
        except ValidationError as error:
            return "; ".join(
                f"{each.field or 'it'} is {_brief(repr(each.datum))}, wanted is {each.schema}"
                for each in error.errors
            )
        return ""

    return wrong


def _json(schema: Any) -> Check:
    jsonschema = library("jsonschema")
    kind = jsonschema.validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(error.message) from error
    validator = kind(schema)

    def wrong(output: Any) -> str:
        error = jsonschema.exceptions.best_match(validator.iter_errors(output))
        return "" if error is None else f"{error.json_path}: {_brief(error.message)}"

    return wrong


def _brief(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


_KINDS: dict[str, Callable[[Any], Check]] = {".avsc": _avro, ".json": _json}
