"""Topics on the broker: create the missing ones, describe them, count their partitions."""

import ctypes
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
    Uuid,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    NewTopic,
)

from streams.kafka.kafka_client import POLL_S, admin, asked
from streams.kafka.kafka_config import KafkaConfig, KafkaConfigError
from streams.kafka.kafka_errors import FORBIDDEN, BrokerError, forbidden, unreachable
from streams.topics import Topic, too_few

ANSWERS_S = 10.0  # longest wait for an answer of the broker
APPEARS_S = 30.0  # and for a topic that was just created
COPIES = 3  # replicas of every topic, given enough brokers
REFERENCES = 3  # to a topic's id: by its description, a local name and ``getrefcount``
REPLICATION = "topics.replication.factor"  # property that overrides the number of replicas


def topic_descriptions(
    config: KafkaConfig, topics: Iterable[str], timeout_s: float
) -> dict[str, Any]:
    """Return each topic's description with this user's operations, or its ``KafkaError``.

    Raise ``BrokerError`` if no broker answers.
    """
    names = TopicCollection(sorted(topics))
    return asked(
        config,
        lambda client: client.describe_topics(
            names, include_authorized_operations=True, request_timeout=timeout_s
        ),
        timeout_s,
    )


def topic_id_on(config: KafkaConfig, topic: str) -> str:
    """Return the broker's id of a topic; a recreated topic has a new one. "" if the broker has no
    ids.

    Raise ``BrokerError`` if no broker answers, or the broker cannot describe the topic, as one that
    has just started. Without the id, a recreated topic would go unnoticed.
    """
    found = topic_descriptions(config, (topic,), ANSWERS_S)[topic]
    if isinstance(found, KafkaError):
        raise BrokerError(
            f"topic {topic!r} cannot be described at present: {found.str()}; restart this role"
        )
    return str(found.topic_id or "")


class TopicLook(NamedTuple):
    """A topic as the broker describes it."""

    id: str  # a recreated topic has a new one; "" if the broker has none
    partitions: int  # 0: the broker does not know the topic


UNKNOWN_TOPIC = TopicLook("", 0)


def look_at(config: KafkaConfig, topic: str, timeout_s: float) -> Iterator[TopicLook | None]:
    """Yield the topic as it is at each step, over one connection.

    Yield ``UNKNOWN_TOPIC`` while the broker does not know the topic, None while it does not answer.
    """
    client = admin(config)
    while True:
        asked_for = client.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
        try:
            found = asked_for[topic].result()
        except KafkaException as error:
            unknown = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            yield UNKNOWN_TOPIC if unknown else None
        else:
            yield TopicLook(str(found.topic_id or ""), len(found.partitions))
            release_id(found)


class PartitionCount:
    """A topic's number of partitions, asked for every ``every_s`` without a wait for the answer."""

    def __init__(self, config: KafkaConfig, topic: str, every_s: float) -> None:
        self._config, self._topic, self._every_s = config, topic, every_s
        self._next_s = time.monotonic() + every_s
        self._client: AdminClient | None = None  # made for the first question
        self._asked: Future[Any] | None = None

    def answered(self) -> int:
        """Return the number if it was answered since the last call, else 0; ask if it is due."""
        now, asked_for = time.monotonic(), self._asked
        if asked_for is None and now >= self._next_s:
            self._next_s = now + self._every_s
            self._client = self._client or admin(self._config)
            self._asked = self._client.describe_topics(TopicCollection([self._topic]))[self._topic]
        if asked_for is None or not asked_for.done():
            return 0
        self._asked = None
        if asked_for.exception() is not None:
            return 0  # the broker is away, or does not know the topic
        found = asked_for.result()
        count = len(found.partitions)
        release_id(found)
        return count


def release_id(description: Any) -> None:
    """Drop the client's leaked reference to the id of a described topic, if there is one.

    confluent-kafka 2.16 leaks this reference: 96 bytes for each description, 8 MB a day at one
    description a second. The caller must not hold the id elsewhere.
    """
    topic_id = description.topic_id
    if type(topic_id) is Uuid and sys.getrefcount(topic_id) > REFERENCES:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(topic_id))


def may(description: Any, operation: AclOperation) -> bool:
    """Return whether a description permits an operation; one that lists none permits all."""
    return not description.authorized_operations or operation in description.authorized_operations


def ensure_topics(
    config: KafkaConfig, wanted: Iterable[Topic], timeout_s: float = 30.0
) -> tuple[Topic, ...]:
    """Create the missing topics and return them; skip those that this user may not describe.

    Raise ``BrokerError`` if no broker answers, a topic may not be created, or an existing one has
    too few partitions.
    """
    wanted = tuple(wanted)
    there = topic_descriptions(config, (topic.name for topic in wanted), timeout_s)
    made: list[Topic] = []
    missing: list[NewTopic] = []
    copies = 0
    for topic in wanted:
        found = there[topic.name]
        if not isinstance(found, KafkaError):
            _check_partitions(topic, len(found.partitions))
        elif found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            copies = copies or _copies(config, timeout_s)
            made.append(topic)
            missing.append(_new_topic(topic, copies))
        elif found.code() not in FORBIDDEN:
            raise BrokerError(f"topic {topic.name!r} cannot be used: {found.str()}")
    if missing:
        _make(config, missing, timeout_s)
        _await_known(config, [topic.topic for topic in missing], timeout_s)
    return tuple(made)


def _copies(config: KafkaConfig, timeout_s: float) -> int:
    """Return the replication factor of new topics: the property's, else 3 given 3 brokers, else
    1."""
    said = config.properties.get(REPLICATION)
    if said is not None:
        if not said.isdigit() or not int(said):
            raise KafkaConfigError(f"{REPLICATION} is {said!r}; write a number of brokers, as in 3")
        return int(said)
    return COPIES if len(brokers_up(config, timeout_s)) >= COPIES else 1


def brokers_up(config: KafkaConfig, timeout_s: float) -> list[str]:
    """Return the ids of the cluster's brokers, none if this user may not see them."""
    cluster = asked(
        config,
        lambda client: {"": client.describe_cluster(request_timeout=timeout_s)},
        timeout_s,
    )[""]
    return [] if isinstance(cluster, KafkaError) else [node.id_string for node in cluster.nodes]


def _new_topic(topic: Topic, copies: int) -> NewTopic:
    """Return the topic to create.

    With three replicas, two must have a record before it is acknowledged, and an out-of-sync
    replica never becomes the leader: acknowledged records survive the loss of any one broker. With
    fewer, the brokers' own ``min.insync.replicas`` might be one that the topic never has.
    """
    settings = {**topic.settings, "min.insync.replicas": str(max(1, copies - 1))}
    if copies >= COPIES:
        settings["unclean.leader.election.enable"] = "false"
    return NewTopic(topic.name, topic.partitions, replication_factor=copies, config=settings)


def _check_partitions(topic: Topic, there: int) -> None:
    if there < topic.partitions:
        raise BrokerError("; ".join(too_few(topic, there)))


def _make(config: KafkaConfig, missing: list[NewTopic], timeout_s: float) -> None:
    def create(client: AdminClient) -> Mapping[str, "Future[Any]"]:
        made: Mapping[str, Future[Any]] = client.create_topics(missing, operation_timeout=timeout_s)
        return made

    for name, made in asked(config, create, timeout_s).items():
        # Another role may have created it in the meantime.
        if not isinstance(made, KafkaError) or made.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            continue
        if made.code() in FORBIDDEN:
            raise BrokerError(
                f"topic {name!r} is missing, and {forbidden(config, 'Create', 'topic', name)}; "
                "or let the pipeline's operator make the topics with `headrace up FILE`"
            )
        raise BrokerError(f"topic {name!r} cannot be made: {made.str()}")


def _await_known(config: KafkaConfig, names: list[str], timeout_s: float) -> None:
    """Wait until the brokers know topics that were just made, which takes them a moment."""
    until = time.monotonic() + timeout_s
    while unknown := [
        name
        for name, found in topic_descriptions(config, names, timeout_s).items()
        if isinstance(found, KafkaError) and found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    ]:
        if time.monotonic() > until:
            raise BrokerError(f"no broker knows topic {min(unknown)!r}, made {timeout_s:g} s ago")
        time.sleep(POLL_S)


def partitions(config: KafkaConfig, timeout_s: float = ANSWERS_S) -> dict[str, int]:
    """Return the number of partitions of each topic that this user may describe.

    Raise ``BrokerError`` if no broker answers.
    """
    try:
        found = admin(config).list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise BrokerError(unreachable(config, error.args[0])) from error
    return {name: len(topic.partitions) for name, topic in found.items()}


def partitions_of(config: KafkaConfig, topic: str) -> int:
    """Return a topic's number of partitions; wait for a topic that was just created.

    Raise ``BrokerError`` if the topic does not appear within ``APPEARS_S``.
    """
    until = time.monotonic() + APPEARS_S
    while (count := partitions(config).get(topic)) is None:
        if time.monotonic() > until:
            raise BrokerError(f"topic {topic!r} is not on the broker; run `headrace up FILE` first")
        time.sleep(POLL_S)
    return count


def readable_partitions(config: KafkaConfig, topic: str, timeout_s: float = ANSWERS_S) -> int:
    """Return a topic's number of partitions, 0 if it does not exist.

    Raise ``BrokerError`` if this user may not read it or no broker answers.
    """
    found = topic_descriptions(config, (topic,), timeout_s)[topic]
    if not isinstance(found, KafkaError):
        if not may(found, AclOperation.READ):
            raise BrokerError(forbidden(config, "Read", "topic", topic))
        return len(found.partitions)
    if found.code() in FORBIDDEN:
        raise BrokerError(forbidden(config, "Read", "topic", topic))
    if found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return 0
    raise BrokerError(f"topic {topic!r} cannot be read: {found.str()}")
