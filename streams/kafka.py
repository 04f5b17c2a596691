"""The client library behind a few functions; its errors turned into sentences.

Facts behind the settings: docs/kafka.md.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from streams.topics import MAX_RECORD_BYTES, Topic


class BrokerError(Exception):
    """The broker cannot be used; the message says what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """How to reach the brokers. ``properties`` are librdkafka's, for every client."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def client(self) -> dict[str, Any]:
        """Settings every client shares."""
        return {
            "bootstrap.servers": self.bootstrap,
            "allow.auto.create.topics": False,
            "reconnect.backoff.max.ms": 500,
            "socket.nagle.disable": True,
            "log_level": 3,
            **self.properties,
        }


def admin(config: KafkaConfig) -> AdminClient:
    """A client for topics and offsets."""
    return AdminClient({**config.client(), "log_level": 0})


def producer(config: KafkaConfig, **more: Any) -> Producer:
    """An idempotent producer that sends at once.

    A record waits ten minutes for a broker that is away: nothing acknowledged to anybody yet
    is given up sooner, because its input offset stays uncommitted all the while.
    """
    return Producer(
        {
            **config.client(),
            "linger.ms": 0,
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": MAX_RECORD_BYTES,
            "delivery.timeout.ms": 600_000,
            "queue.buffering.max.messages": 200_000,
            **more,
        }
    )


def consumer(config: KafkaConfig, group: str, **more: Any) -> Consumer:
    """A consumer for slots assigned by hand; ``group`` only names the committed offsets."""
    return Consumer(
        {
            **config.client(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            # With the default of 500 a newly assigned slot waits half a second.
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 16_384,
            "message.max.bytes": MAX_RECORD_BYTES,
            "fetch.message.max.bytes": MAX_RECORD_BYTES,
            "fetch.max.bytes": 2 * MAX_RECORD_BYTES,
            **more,
        }
    )


def ensure_topics(config: KafkaConfig, wanted: Iterable[Topic], timeout_s: float = 30.0) -> None:
    """Make the topics that are missing.

    Raises ``BrokerError`` where no broker answers, where a topic is not allowed, and where one
    exists with fewer partitions than are needed.
    """
    client = admin(config)
    wanted = tuple(wanted)
    there = partitions(config, timeout_s)
    for topic in wanted:
        if 0 < there.get(topic.name, 0) < topic.partitions:
            raise BrokerError(
                f"topic {topic.name!r} has {there[topic.name]} partitions, {topic.partitions} are "
                f"needed; add partitions (kafka-topics --alter) or lower `slots` in the file"
            )
    missing = [
        NewTopic(t.name, num_partitions=t.partitions, config=dict(t.settings))
        for t in wanted
        if t.name not in there
    ]
    if missing:
        _make(client, missing, timeout_s)


def _make(client: AdminClient, missing: list[NewTopic], timeout_s: float) -> None:
    for name, made in client.create_topics(missing, operation_timeout=timeout_s).items():
        try:
            made.result(timeout_s)
        except KafkaException as error:
            cause = error.args[0]
            # Another role may have made it in the meantime.
            if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerError(f"topic {name!r} cannot be made: {cause.str()}") from error


def partitions(config: KafkaConfig, timeout_s: float = 10.0) -> dict[str, int]:
    """How many partitions each topic on the broker has."""
    try:
        found = admin(config).list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise BrokerError(
            f"no Kafka broker answers at {config.bootstrap} ({error.args[0].str()}); start one "
            f"with `headrace broker start` or name yours with --bootstrap"
        ) from error
    return {name: len(topic.partitions) for name, topic in found.items()}


def read_to_end(config: KafkaConfig, topic: str, timeout_s: float = 30.0) -> list[Message]:
    """Every record of a small topic, oldest first within each partition."""
    reader = consumer(config, "headrace.reader")
    try:
        count = partitions(config, timeout_s).get(topic, 0)
        return [m for p in range(count) for m in _read_partition(reader, topic, p, timeout_s)]
    finally:
        reader.close()


def _read_partition(reader: Consumer, topic: str, partition: int, timeout_s: float) -> list[Any]:
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    low, high = reader.get_watermark_offsets(place, timeout=timeout_s)
    found: list[Any] = []
    if low == high:
        return found
    reader.assign([place])
    until = time.monotonic() + timeout_s
    while reader.position([place])[0].offset < high:
        if time.monotonic() > until:
            raise BrokerError(f"topic {topic!r} could not be read within {timeout_s:g} s")
        found += [m for m in reader.consume(500, timeout=0.05) if not m.error()]
    return found


def committed(client: Consumer, topic: str, slots: Iterable[int], timeout_s: float = 30.0) -> Any:
    """The committed offsets of some slots as ``TopicPartition``, the beginning where none is."""
    places = client.committed([TopicPartition(topic, s) for s in slots], timeout=timeout_s)
    for place in places:
        if place.error is not None:
            raise BrokerError(f"offsets of {topic!r} cannot be read: {place.error.str()}")
        if place.offset < 0:
            place.offset = OFFSET_BEGINNING
    return places


OnError = Callable[[KafkaError], None]
