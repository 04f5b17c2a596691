"""Print the ACLs that a pipeline's roles need, as ``kafka-acls`` commands."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from schemas.pipeline import Pipeline
from streams.kafka.admin.acl_rights import ROLES, Right, rights

# Shell variables: the user who may grant rights is seldom the author of the pipeline file.
_BOOTSTRAP, _ADMIN = '"$BOOTSTRAP"', '"$ADMIN_PROPERTIES"'
_HEAD = (
    "# Set BOOTSTRAP (host:port) and ADMIN_PROPERTIES (a Java client properties file of a user",
    "# who may alter ACLs), then run these commands; see docs/how-to/security.md.",
)


def principals(pipeline: Pipeline, prefix: str | None) -> dict[str, str]:
    """Return the principal of each role that the pipeline has; the default prefix is its name."""
    prefix = f"{pipeline.name}-" if prefix is None else prefix
    return {role: f"User:{prefix}{role}" for role in ROLES if rights(pipeline, role)}


def acl_rows(pipeline: Pipeline, named: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one row per right, in Kafka's ACL terms."""
    return [
        {
            "role": role,
            "principal": principal,
            "operation": right.operation,
            "resource": right.resource,
            "name": right.name,
            "pattern": "prefixed" if right.prefixed else "literal",
        }
        for role, principal in named.items()
        for right in rights(pipeline, role)
    ]


def acl_lines(pipeline: Pipeline, named: Mapping[str, str]) -> list[str]:
    """Return the shell commands that grant each role its rights, a comment before each role."""
    lines = list(_HEAD)
    for role, principal in named.items():
        lines += ["", f"# {role}"]
        lines += [
            f"kafka-acls --bootstrap-server {_BOOTSTRAP} --command-config {_ADMIN} --add "
            f"--allow-principal {shlex.quote(principal)} {what}"
            for what in _whats(rights(pipeline, role))
        ]
    return lines


def _whats(found: Iterable[Right]) -> list[str]:
    """Return the arguments after the principal; resources with the same operations share a line."""
    operations: dict[tuple[str, str, bool], list[str]] = {}
    for right in found:
        place = (right.resource, right.name, right.prefixed)
        operations.setdefault(place, []).append(right.operation)
    alike: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for (resource, name, prefixed), of_it in operations.items():
        key = (resource, prefixed, tuple(dict.fromkeys(of_it)))
        alike.setdefault(key, []).append(name)
    return [_what(*key, names) for key, names in alike.items()]


def _what(resource: str, prefixed: bool, operations: tuple[str, ...], names: list[str]) -> str:
    words = [f"--operation {operation}" for operation in operations]
    words += [f"--{resource} {shlex.quote(name)}" for name in names]
    words += ["--resource-pattern-type prefixed"] if prefixed else []
    return " ".join(words)
