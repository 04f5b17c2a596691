"""Topics and users for Strimzi's operators. Pure.

Strimzi 1.x serves ``kafka.strimzi.io/v1`` only. Users have the names that `headrace acls` prints.
"""

import re
from typing import Any

from headrace.kubernetes.pods import AUTHORITY, Installation, labels, user_of
from streams.kafka.admin.acl_rights import ROLES, Right, rights
from streams.topics import SHARED, Topic, physical, topics

API = "kafka.strimzi.io/v1"
CLUSTER = "strimzi.io/cluster"
_TYPES = {"transactional-id": "transactionalId"}  # of resources, where Strimzi's name differs
_REFUSED = re.compile(r"[^a-z0-9.-]+")


def objects(of: Installation) -> list[dict[str, Any]]:
    """Return the KafkaTopics and KafkaUsers of a pipeline, and its clients' properties."""
    pipeline = of.file.pipeline
    users = [_user(of, role) for role in ROLES if rights(pipeline, role)]
    return [*(_topic(of, topic) for topic in topics(pipeline)), *users, _properties(of)]


def _made(of: Installation, kind: str, name: str, role: str, spec: Any) -> dict[str, Any]:
    made = of.made(API, kind, name, role, spec=spec)
    made["metadata"]["labels"][CLUSTER] = of.options.strimzi
    return made


def _topic(of: Installation, topic: Topic) -> dict[str, Any]:
    spec = {
        "topicName": topic.name,
        "partitions": topic.partitions,
        "config": dict(topic.settings),
    }
    made = _made(of, "KafkaTopic", _REFUSED.sub("-", topic.name.lower()), "topic", spec)
    # Every pipeline's manifests have the shared topics, under the same names.
    if topic.name in {physical(of.pipeline, logical) for logical in SHARED}:
        made["metadata"]["labels"] |= labels("headrace", "topic")
    return made


def _user(of: Installation, role: str) -> dict[str, Any]:
    pipeline = of.file.pipeline
    spec = {
        "authentication": {"type": "scram-sha-512"},
        "authorization": {"type": "simple", "acls": _acls(rights(pipeline, role))},
    }
    return _made(of, "KafkaUser", user_of(pipeline, role), role, spec)


def _acls(found: tuple[Right, ...]) -> list[dict[str, Any]]:
    operations: dict[tuple[str, str, str], list[str]] = {}
    for right in found:
        pattern = "prefix" if right.prefixed else "literal"
        of_it = operations.setdefault((right.resource, right.name, pattern), [])
        if right.operation not in of_it:
            of_it.append(right.operation)
    return [
        {
            "resource": {"type": _TYPES.get(kind, kind), "name": name, "patternType": pattern},
            "operations": of_it,
        }
        for (kind, name, pattern), of_it in operations.items()
    ]


def _properties(of: Installation) -> dict[str, Any]:
    text = (
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=${KAFKA_USER}\n"
        "sasl.password=${KAFKA_PASSWORD}\n"
        f"ssl.ca.location={AUTHORITY}/ca.crt\n"
    )
    data = {"client.properties": text}
    return of.made("v1", "ConfigMap", f"{of.pipeline}-client", "client", data=data)
