"""Preflight: create missing topics and check a role's rights before it starts."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation

from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from streams.kafka.admin.acl_rights import (
    CREATE,
    DESCRIBE_CONFIGS,
    GROUP,
    TOPIC,
    WRITE,
    Right,
    rights,
)
from streams.kafka.admin.topic_admin import ensure_topics, may, topic_descriptions
from streams.kafka.admin.topic_settings import settings_of
from streams.kafka.kafka_client import asked, consumer, reach
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import FORBIDDEN, BrokerError, forbidden
from streams.kafka.topic_contents import await_leaders
from streams.topics import MAX_RECORD_BYTES, MOST_BYTES, Topic, physical, topics

WAIT_S = 30.0
GROUPS_WITHIN_S = 5.0
LED_WITHIN_S = 120.0


def prepare(
    config: KafkaConfig, pipeline: Pipeline, *roles: str, timeout_s: float = WAIT_S
) -> None:
    """Create the missing topics of these roles and check the roles' rights.

    Return once the new partitions have leaders: a busy broker takes most of a minute for 229, and
    longer while the roles start at the same time.

    Raise ``BrokerError`` if no broker answers or it refuses the user; if a topic cannot be created,
    or has too few partitions or too small records; or if the user lacks a right (named in the
    message).
    """
    reach(config, timeout_s)
    needed = tuple(dict.fromkeys(r for role in roles for r in rights(pipeline, role)))
    named = {right.name for right in needed if right.resource == TOPIC}
    made = ensure_topics(config, (t for t in topics(pipeline) if t.name in named), timeout_s)
    _await_leaders(config, made, max(timeout_s, LED_WITHIN_S))
    _check(config, TOPIC, needed, topic_descriptions(config, named, timeout_s))
    _check_sizes(config, needed, timeout_s)
    groups = sorted({r.name for r in needed if r.resource == GROUP and not r.prefixed})
    # Skip it without users: there are no rights, and the first answer on groups takes a second.
    if groups and config.protocol != "PLAINTEXT":
        _check(config, GROUP, needed, _groups(config, groups, timeout_s))


def prepare_input(config: KafkaConfig, pipeline: Pipeline) -> None:
    """Create the input topic on a broker of its own, if it is missing.

    Raise ``BrokerError`` if no broker answers, or the topic cannot be created.
    """
    reach(config, WAIT_S)
    name = physical(pipeline.name, QUERIES)
    made = ensure_topics(config, (t for t in topics(pipeline) if t.name == name), WAIT_S)
    _await_leaders(config, made, max(WAIT_S, LED_WITHIN_S))


def _check_sizes(config: KafkaConfig, needed: Iterable[Right], timeout_s: float) -> None:
    """Raise ``BrokerError`` if a topic does not take the largest record that a role may write."""
    by_operation = {
        operation: {right.name for right in needed if right.operation == operation}
        for operation in (WRITE, DESCRIBE_CONFIGS)
    }
    written = sorted(set.intersection(*by_operation.values()))
    if not written:
        return
    for topic, found in settings_of(config, written, timeout_s).items():
        most = int(found.get(MOST_BYTES, MAX_RECORD_BYTES))
        if most < MAX_RECORD_BYTES:
            raise BrokerError(
                f"topic {topic!r} takes records of up to {most} bytes, and this role "
                f"may write some of {MAX_RECORD_BYTES}; run `kafka-configs --alter --topic {topic} "
                f"--add-config {MOST_BYTES}={MAX_RECORD_BYTES}`"
            )


def _await_leaders(config: KafkaConfig, made: Iterable[Topic], timeout_s: float) -> None:
    """Wait until new topics are led; skip those whose offsets this user may not ask for."""
    with closing(consumer(config, "headrace.reader")) as reader:
        for topic in made:
            places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
            try:
                await_leaders(reader, places, timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in FORBIDDEN:
                    raise BrokerError(f"{topic.name!r}: {error.args[0].str()}") from error


def _groups(config: KafkaConfig, names: list[str], timeout_s: float) -> dict[str, Any]:
    """Return the broker's descriptions of groups, with retries.

    A broker never answers a request that arrives while it creates its own topic of groups.
    """
    for _ in range(int(timeout_s / GROUPS_WITHIN_S) - 1):
        try:
            return _asked_once(config, names)
        except BrokerError:
            continue
    return _asked_once(config, names)


def _asked_once(config: KafkaConfig, names: list[str]) -> dict[str, Any]:
    return asked(
        config,
        lambda client: client.describe_consumer_groups(
            names, include_authorized_operations=True, request_timeout=GROUPS_WITHIN_S
        ),
        GROUPS_WITHIN_S + 1,
    )


def _check(
    config: KafkaConfig, resource: str, needed: Iterable[Right], found: Mapping[str, Any]
) -> None:
    for right in needed:
        if right.operation == DESCRIBE_CONFIGS:
            continue  # ACLs printed by a release before this right remain valid
        if right.resource == resource and not right.prefixed:
            description = found[right.name]
            if isinstance(description, KafkaError):
                # The right to Create, unlike the others, does not imply the one to Describe.
                denied = description.code() in FORBIDDEN and right.operation != CREATE
            else:
                denied = not may(description, AclOperation[right.operation.upper()])
            if denied:
                raise BrokerError(forbidden(config, right.operation, resource, right.name))
