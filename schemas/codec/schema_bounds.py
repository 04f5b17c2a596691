"""Bounds of a foreign writer's schema: a record's bytes must bound the work of decoding it.

A producer chooses its own schema. With an array of nulls, whose items take no bytes, a record of
ten bytes makes a decoder loop for hours. With a recursive schema, a record of megabytes nests
millions of levels deep. No schema of Headrace has either.
"""

from typing import Any

from schemas.codec.values import CodecError

_NAMED = ("record", "error", "fixed", "enum")


def check_bounded(parsed: Any) -> None:
    """Raise ``CodecError`` for a parsed schema that is recursive, or has an array whose items take
    no bytes."""
    _least_bytes(parsed, {}, ())


def _least_bytes(schema: Any, known: dict[str, int], inside: tuple[str, ...]) -> int:
    """Return the least number of bytes of a value; ``known`` has those of named types."""
    if isinstance(schema, list):
        for branch in schema:
            _least_bytes(branch, known, inside)
        return 1  # the number of the branch
    if isinstance(schema, str):
        if schema in inside:
            raise CodecError(f"type {schema!r} of the schema contains itself; flatten it")
        return known.get(schema, 0 if schema == "null" else 1)
    kind = schema["type"]
    if kind in _NAMED:
        return _least_bytes_named(schema, known, inside)
    if kind in ("array", "map"):
        _check_items(schema, known, inside)
        return 1
    return _least_bytes(kind, known, inside)  # a primitive type with attributes


def _check_items(schema: dict[str, Any], known: dict[str, int], inside: tuple[str, ...]) -> None:
    in_map = schema["type"] == "map"  # a map's keys take bytes
    least = _least_bytes(schema["values" if in_map else "items"], known, inside)
    if not least and not in_map:
        raise CodecError(
            "the schema has an array whose items take no bytes, so that a few bytes could hold "
            "millions of them; give the items a field with a value"
        )


def _least_bytes_named(
    schema: dict[str, Any], known: dict[str, int], inside: tuple[str, ...]
) -> int:
    name, kind = str(schema["name"]), schema["type"]
    if kind == "fixed":
        least = int(schema["size"])
    elif kind == "enum":
        least = 1
    else:
        fields = (field["type"] for field in schema["fields"])
        least = sum(_least_bytes(each, known, (*inside, name)) for each in fields)
    known[name] = least
    return least
