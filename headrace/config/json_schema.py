"""The JSON Schema of the pipeline file, for editors that complete and check YAML.

Derived from the sections that read the file, so that both agree. Checks between keys (tasks form
a tree, names exist, replicas fit) are in ``headrace validate`` only.
"""

from typing import Any

from control.policies import known_kinds, spec_of
from headrace.config.policy_sections import section_of
from headrace.config.sections import OF_ONLY_VARIANT, FileSection

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the schema as a JSON value."""
    schema = FileSection.model_json_schema()
    schema["properties"]["policies"]["additionalProperties"] = _policy(schema["$defs"])
    _let_stand_alone(schema["$defs"]["TaskSection"], schema["$defs"]["VariantSection"])
    of_class = schema["properties"]["slo_classes"]
    alone = schema["$defs"]["SloClassSection"]["properties"]["slo"]
    of_class["additionalProperties"] = {"anyOf": [alone, of_class["additionalProperties"]]}
    return {"$schema": DIALECT, **schema, "title": "Headrace pipeline file"}


def _let_stand_alone(task: dict[str, Any], variant: dict[str, Any]) -> None:
    """Let a task have the keys of its only variant in place of ``variants``."""
    task["properties"] |= {key: variant["properties"][key] for key in sorted(OF_ONLY_VARIANT)}
    task["required"].remove("variants")
    task["anyOf"] = [{"required": ["variants"]}, {"required": ["operator"]}]


def _policy(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a policy: a kind, and the options of each kind."""
    kinds = known_kinds()
    branches = []
    for kind in kinds:
        section = section_of(spec_of(kind)).model_json_schema()
        definitions |= section.pop("$defs", {})
        section["properties"] = {**section["properties"], "kind": {"const": kind}}
        branches.append(
            {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": section}
        )
    return {"type": "object", "properties": {"kind": {"enum": list(kinds)}}, "allOf": branches}
