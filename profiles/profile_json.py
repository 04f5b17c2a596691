"""A profile's file: read it, with errors that name the place, and write it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from profiles.measurements import Entry, FanOut, Latency, PathAccuracy, ProfileError
from profiles.profile_table import ProfileTable
from schemas.unique_keys import unique_keys

T = TypeVar("T")
TEXTS = ("task", "variant", "device", "operator", "weights_sha256")  # of an entry


def parsed_profile(text: str) -> ProfileTable:
    """Return the table that ``profile_text`` wrote; raise ``ProfileError`` naming the place."""
    try:
        document = json.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise ProfileError(f"this is no JSON: {error}; run `headrace profile`") from error
    _is(document, dict, "the profile")
    paths = _list(document.pop("paths", []), "paths")  # measured separately
    _exactly(document, ("pipeline", "entries", "provenance"), "the profile")
    entries = _list(document["entries"], "entries")
    _is(document["provenance"], dict, "provenance")
    return ProfileTable(
        str(document["pipeline"]),
        tuple(_entry(row, f"entries[{at}]") for at, row in enumerate(entries)),
        document["provenance"],
        tuple(_path(row, f"paths[{at}]") for at, row in enumerate(paths)),
    )


def profile_text(table: ProfileTable) -> str:
    """Return a table as text, keys in the order of the fields."""
    document: dict[str, Any] = {
        "pipeline": table.pipeline,
        "provenance": dict(table.provenance),
        "entries": [asdict(entry) for entry in table.entries],
    }
    if table.paths:
        document["paths"] = [asdict(each) for each in table.paths]
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _entry(row: Any, where: str) -> Entry:
    _exactly(row, [f.name for f in fields(Entry)], where)
    for key in TEXTS:
        _is(row[key], str, f"{where}.{key}")
    children = row["children"]
    _is(children, dict, f"{where}.children")
    latency = _list(row["latency"], f"{where}.latency")
    return _born(
        Entry,
        {
            **row,
            "children": {
                child: _fan_out(fan_out, f"{where}.children.{child}")
                for child, fan_out in children.items()
            },
            "latency": tuple(
                _latency(line, f"{where}.latency[{at}]") for at, line in enumerate(latency)
            ),
        },
        where,
    )


def _path(row: Any, where: str) -> PathAccuracy:
    _exactly(row, [f.name for f in fields(PathAccuracy)], where)
    path = _list(row["path"], f"{where}.path")
    for at, name in enumerate(path):
        _is(name, str, f"{where}.path[{at}]")
    return _born(PathAccuracy, {**row, "path": tuple(path)}, where)


def _latency(row: Any, where: str) -> Latency:
    _exactly(row, [f.name for f in fields(Latency)], where)
    return _born(Latency, row, where)


def _fan_out(row: Any, where: str) -> FanOut:
    _exactly(row, ("mean", "counts"), where)
    _is(row["counts"], dict, f"{where}.counts")
    try:
        counts = {int(count): float(share) for count, share in row["counts"].items()}
    except (OverflowError, TypeError, ValueError) as error:
        raise ProfileError(f"{where}.counts: {error}; it maps numbers to probabilities") from error
    return _born(FanOut, {"mean": row["mean"], "counts": counts}, where)


def _born(kind: Callable[..., T], values: Mapping[str, Any], where: str) -> T:
    """Return the value, or raise an error that names its place in the file."""
    try:
        return kind(**values)
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from error
    except TypeError as error:
        raise ProfileError(f"{where}: a number was wanted ({error})") from error


def _exactly(row: Any, keys: Iterable[str], where: str) -> None:
    _is(row, dict, where)
    for key in keys:
        if key not in row:
            raise ProfileError(f"{where} lacks {key!r}; run `headrace profile` again")
    for key in row:
        if key not in keys:
            raise ProfileError(f"{where} has a key {key!r} that no profile has; remove it")


def _list(value: Any, where: str) -> list[Any]:
    _is(value, list, where)
    return list(value)


def _is(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind):
        found = type(value).__name__
        raise ProfileError(f"{where} is {found}, not {kind.__name__}; run `headrace profile`")
