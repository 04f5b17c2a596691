"""Write the parts of docs/reference that follow from the code: `make reference` runs this script.

A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; the explanations
around it are written by hand. ``tests/contract/test_generated_reference.py`` holds the committed
pages to what this writes.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from control.policies import POLICIES
from control.policies.option_fields import COMMON, Option, OptionType
from control.policies.spec import PolicySpec
from headrace.cli.main import headrace
from headrace.config.json_schema import json_schema
from operators.drop_reasons import CLASSES
from schemas.pipeline import Labels, Pipeline, Policy, Task, Variant
from streams.kafka.admin.acl_rights import READ, ROLES, WRITE, rights
from streams.observers.metric_table import METRICS, PREFIX
from streams.topics import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SHARED,
    TABLE,
    TopicRule,
    physical,
)

FOLDER = Path(__file__).parent / "reference"
AVRO = Path(__file__).parents[1] / "schemas" / "avro"
REQUIRED = "required"
_PART = re.compile(r"<!-- generated: ([\w -]+) -->\n.*?<!-- end -->", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with its generated parts replaced; raise ``KeyError`` for an unknown one."""
    return _PART.sub(lambda part: _part(part[1]), text)


def _part(name: str) -> str:
    kind, _, subject = name.partition(" ")
    body = PARTS[kind](subject).strip()
    return f"<!-- generated: {name} -->\n{body}\n<!-- end -->"


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return rows as a Markdown table."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# ---------------------------------------------------------------------- records


def definitions(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the definitions of records in an Avro schema."""
    if isinstance(schema, list):
        for each in schema:
            yield from definitions(each)
    if isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema
        nested = [field["type"] for field in schema.get("fields", ())]
        for each in (*nested, *(schema[key] for key in ("items", "values") if key in schema)):
            yield from definitions(each)


def avro_type(kind: Any) -> str:
    """Return an Avro type as the page writes it: X? may be null, [X] is an array, {X} a map."""
    if isinstance(kind, list):
        names = [avro_type(one) for one in kind]
        if len(names) == 2:
            return f"{names[1]}?"
        return "Value" if "List" in names else "Element"
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] in ("record", "enum"):
        return str(kind["name"])
    if kind["type"] == "array":
        return f"[{avro_type(kind['items'])}]"
    return f"{{{avro_type(kind['values'])}}}"


def fields_of(record: str) -> str:
    """Return the table of a record's fields, from its schema."""
    schemas = [json.loads(path.read_text()) for path in sorted(AVRO.glob("*.avsc"))]
    known = {each["name"]: each for schema in schemas for each in definitions(schema)}
    return table(
        ("field", "type", "default", "meaning"),
        (
            (
                f"`{field['name']}`",
                f"`{avro_type(field['type'])}`",
                f"`{json.dumps(field['default'])}`" if "default" in field else REQUIRED,
                field["doc"],
            )
            for field in known[record]["fields"]
        ),
    )


# ---------------------------------------------------------------------- topics

_UNITS = ((DAY_MS, "day"), (HOUR_MS, "h"), (MINUTE_MS, "min"))
_ROOT, _CHILD = (
    Task(
        name=name,
        variants=(Variant(task=name, name="v", operator="m:C"),),
        children=children,
        dispatch=dispatch,
    )
    for name, children, dispatch in (("first", ("second",), ""), ("second", (), "kairos"))
)
_PIPELINE = Pipeline(
    name="p",
    slo_s=1.0,
    tasks=(_ROOT, _CHILD),
    policies=(Policy(name="static"),),
    policy="static",
    sessions=True,  # with the topics of profilers
    labels=Labels(),
)


def topics(_: str) -> str:
    """Return the table of topics, with the roles that may write and read each."""
    heads = ("topic", "partitions", "cleanup.policy", "kept", "segment.ms", "written by", "read by")
    return table(heads, (_topic(rule) for rule in TABLE))


def _topic(rule: TopicRule) -> tuple[str, ...]:
    settings = rule.settings
    return (
        f"`headrace.{rule.logical}`" if rule.logical in SHARED else f"`<p>.{rule.logical}`",
        str(rule.partitions) if isinstance(rule.partitions, int) else f"`{rule.partitions}`",
        settings["cleanup.policy"],
        _duration(rule.kept_ms) if rule.kept_ms is not None else "for ever",
        _duration(int(settings["segment.ms"])),
        ", ".join(_who(rule.logical, WRITE)),
        ", ".join(_who(rule.logical, READ)),
    )


def _duration(milliseconds: int) -> str:
    unit, name = next(each for each in _UNITS if milliseconds >= each[0])
    count = milliseconds / unit
    return f"{count:g} {name}{'s' if name == 'day' and count != 1 else ''}"


def _who(logical: str, operation: str) -> list[str]:
    tasks = (_ROOT.name, _CHILD.name)
    names = [logical.replace("<task>", task) for task in tasks]
    wanted = {physical(_PIPELINE.name, name) for name in names}
    return [
        role
        for role in ROLES
        if any(r.operation == operation and r.name in wanted for r in rights(_PIPELINE, role))
    ]


# ---------------------------------------------------------------------- metrics


def metrics(_: str) -> str:
    """Return the table of metrics."""
    return table(
        ("metric", "type", "labels", "role", ""),
        (
            (f"`{PREFIX}{m.name}`", m.kind, ", ".join(m.labels), role, m.help)
            for role, those in METRICS.items()
            for m in those
        ),
    )


def reasons(_: str) -> str:
    """Return the table of classes of reasons."""
    return table(("reason", ""), ((f"`{name}`", text) for name, text in CLASSES.items()))


# ---------------------------------------------------------------------- policies

_TYPES: Mapping[OptionType, str] = {
    OptionType.POSITIVE: "number above 0",
    OptionType.AMOUNT: "number, 0 or more",
    OptionType.WHOLE: "whole number, 1 or more",
    OptionType.SHARE: "above 0, at most 1",
    OptionType.CONFIDENCE: "above 0.5, below 1",
    OptionType.FRACTION: "0 to 1",
    OptionType.PART: "0 or more, below 1",
    OptionType.COUNT: "whole number, 0 or more",
    OptionType.SECONDS: "duration",
    OptionType.SECONDS_OR_AUTO: "duration or `auto`",
    OptionType.SWITCH: "`true`, `false`",
    OptionType.TEXT: "text",
    OptionType.RATES: "list of numbers above 0",
    OptionType.WHOLE_BY_VARIANT: "whole number by `task/variant`",
    OptionType.COUNT_BY_VARIANT: "whole number by `task/variant`",
    OptionType.SHARE_BY_VARIANT: "above 0, at most 1, by `task/variant`",
    OptionType.WHOLE_BY_NAME: "whole number by name",
    OptionType.AMOUNT_BY_NAME: "number by name",
}
_RULES = ("estimator", "routing", "dropping", "batching", "latency", "rate")


def policies(_: str) -> str:
    """Return the table of policies: what each does, and its rules."""
    return table(
        ("policy", "what it does", *_RULES),
        (
            (f"`{spec.name}`", spec.summary, *(_in_force(spec, name) for name in _RULES))
            for spec in POLICIES.values()
        ),
    )


def _in_force(spec: PolicySpec, name: str) -> str:
    (option,) = (each for each in COMMON if each.name == name)
    return f"`{option.of(spec.usual)}`"


def common_options(_: str) -> str:
    """Return the table of the options that every policy has; defaults are those of ``static``."""
    usual = POLICIES["static"].usual
    return table(
        ("option", "value", "default", "meaning"),
        ((f"`{o.name}`", _value_type(o), _default(o, o.of(usual)), o.meaning) for o in COMMON),
    )


def own_options(_: str) -> str:
    """Return the table of the options that only some policies have, with the default of each."""
    rows: dict[str, tuple[Option, dict[str, list[str]]]] = {}
    for spec in POLICIES.values():
        for option in spec.options:
            default = _default(option, option.of(spec.usual))
            rows.setdefault(option.name, (option, {}))[1].setdefault(default, []).append(spec.name)
    return table(
        ("option", "value", "default, of policies", "meaning"),
        (
            (
                f"`{name}`",
                _value_type(option),
                "; ".join(f"{default}: {', '.join(kinds)}" for default, kinds in by.items()),
                option.meaning,
            )
            for name, (option, by) in rows.items()
        ),
    )


def deviations(_: str) -> str:
    """Return the differences of policies from the papers that they are named after."""
    return "\n\n".join(
        "\n".join([f"`{spec.name}`:", "", *(f"* {each}" for each in spec.deviations)])
        for spec in POLICIES.values()
        if spec.deviations
    )


def _value_type(option: Option) -> str:
    if option.type is OptionType.CHOICE:
        return ", ".join(f"`{each}`" for each in option.permitted())
    return _TYPES[option.type]


def _default(option: Option, value: Any) -> str:
    if value in (None, (), {}):
        return "-"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if option.type in (OptionType.SECONDS, OptionType.SECONDS_OR_AUTO):
        return f"`{value:g}s`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


# ---------------------------------------------------------------------- commands


def commands(_: str) -> str:
    """Return the help of every command."""
    return "\n\n".join(
        f"## {path}\n\n```text\n{_help(path, command)}\n```"
        for path, command in _commands(headrace, "headrace")
    )


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _help(path: str, command: click.Command) -> str:
    settings = headrace.context_settings
    with click.Context(command, info_name=path, terminal_width=100, **settings) as context:
        return command.get_help(context)


# ---------------------------------------------------------------------- keys of the pipeline file


def keys(_: str) -> str:
    """Return every key of a pipeline file but those of policies, with type and default."""
    schema = json_schema()
    schema["properties"].pop("policies")
    return table(("key", "value", "default"), _keys(schema, schema["$defs"], ""))


def _keys(
    section: Mapping[str, Any], known: Mapping[str, Any], path: str
) -> Iterator[tuple[str, ...]]:
    needed = section.get("required", ())
    for name, kind in section["properties"].items():
        here = f"{path}{name}"
        default = kind.get("default")
        shown = f"`{json.dumps(default)}`" if default not in (None, {}, []) else "-"
        yield f"`{here}`", _json_type(kind, known), REQUIRED if name in needed else shown
        for inner, step in _inside(kind, known):
            yield from _keys(inner, known, f"{here}{step}.")


def _inside(
    kind: Mapping[str, Any], known: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the sections below a key, with what stands between it and their keys."""
    if "$ref" in kind:
        yield known[kind["$ref"].rpartition("/")[2]], ""
    for each in (*kind.get("anyOf", ()), *kind.get("allOf", ())):
        yield from _inside(each, known)
    below = kind.get("additionalProperties")
    if isinstance(below, dict):
        for section, step in _inside(below, known):
            yield section, f".<name>{step}"


def _json_type(kind: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    if "$ref" in kind:
        return "keys"
    if "anyOf" in kind:
        found = (_json_type(e, known) for e in kind["anyOf"] if e.get("type") != "null")
        return " or ".join(dict.fromkeys(found))
    if "enum" in kind or "const" in kind:
        return ", ".join(f"`{each}`" for each in kind.get("enum", [kind.get("const")]))
    if kind.get("examples"):
        return f"such as `{kind['examples'][0]}`"
    if kind.get("type") == "array":
        return f"list of {_json_type(kind.get('items', {}), known)}"
    below = kind.get("additionalProperties")
    if isinstance(below, dict):
        return f"{_json_type(below, known)} by name"
    return _JSON_TYPES.get(kind.get("type", ""), "anything")


_JSON_TYPES = {
    "string": "text", "integer": "whole number", "number": "number", "boolean": "`true`, `false`",
    "object": "keys and values", "array": "list",
}  # fmt: skip

# ---------------------------------------------------------------------- the parts by name

PARTS: Mapping[str, Callable[[str], str]] = {
    "fields": fields_of,
    "topics": topics,
    "metrics": metrics,
    "reasons": reasons,
    "policies": policies,
    "common-options": common_options,
    "own-options": own_options,
    "deviations": deviations,
    "commands": commands,
    "keys": keys,
}


def main() -> None:
    """Write the pages whose generated parts differ."""
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
