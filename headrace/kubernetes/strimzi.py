"""Topics and users for Strimzi's operators. Pure.

Strimzi 1.x serves ``kafka.strimzi.io/v1`` only. Users have the names that `headrace acls` prints.
"""

import re
from typing import Any

from headrace.kubernetes.pods import AUTHORITY, KubernetesOptions, metadata, user_of
from schemas.pipeline import Pipeline
from streams.kafka.admin.acl_rights import ROLES, Right, rights
from streams.topics import SHARED, Topic, physical, topics

API = "kafka.strimzi.io/v1"
CLUSTER = "strimzi.io/cluster"
_TYPES = {"transactional-id": "transactionalId"}  # of resources, where Strimzi's name differs
_REFUSED = re.compile(r"[^a-z0-9.-]+")


def objects(pipeline: Pipeline, options: KubernetesOptions) -> list[dict[str, Any]]:
    """Return the KafkaTopics and KafkaUsers of a pipeline, and its clients' properties."""
    users = [_user(pipeline, role, options) for role in ROLES if rights(pipeline, role)]
    return [
        *(_topic(pipeline, topic, options) for topic in topics(pipeline)), *users,
        _properties(pipeline, options),
    ]  # fmt: skip


def _topic(pipeline: Pipeline, topic: Topic, options: KubernetesOptions) -> dict[str, Any]:
    # Every pipeline's manifests have the shared topics, under the same names.
    shared = topic.name in {physical(pipeline.name, logical) for logical in SHARED}
    owner = "headrace" if shared else pipeline.name
    made = metadata(_REFUSED.sub("-", topic.name.lower()), "topic", owner, options)
    made["labels"][CLUSTER] = options.strimzi
    spec = {
        "topicName": topic.name,
        "partitions": topic.partitions,
        "config": dict(topic.settings),
    }
    return {"apiVersion": API, "kind": "KafkaTopic", "metadata": made, "spec": spec}


def _user(pipeline: Pipeline, role: str, options: KubernetesOptions) -> dict[str, Any]:
    made = metadata(user_of(pipeline, role), role, pipeline.name, options)
    made["labels"][CLUSTER] = options.strimzi
    spec = {
        "authentication": {"type": "scram-sha-512"},
        "authorization": {"type": "simple", "acls": _acls(rights(pipeline, role))},
    }
    return {"apiVersion": API, "kind": "KafkaUser", "metadata": made, "spec": spec}


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


def _properties(pipeline: Pipeline, options: KubernetesOptions) -> dict[str, Any]:
    text = (
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=${KAFKA_USER}\n"
        "sasl.password=${KAFKA_PASSWORD}\n"
        f"ssl.ca.location={AUTHORITY}/ca.crt\n"
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(f"{pipeline.name}-client", "client", pipeline.name, options),
        "data": {"client.properties": text},
    }
