"""The copies of partitions, and whether a partition takes records with those that are in sync."""

from collections.abc import Collection
from typing import NamedTuple

from confluent_kafka import KafkaError

from streams.kafka.admin.topic_admin import topic_descriptions
from streams.kafka.admin.topic_settings import seen_settings
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import Place

IN_SYNC = "min.insync.replicas"  # topic property


class Copies(NamedTuple):
    """A partition's copies: how many are in sync, how many must be, and whether one leads."""

    topic: str
    partition: int
    copies: int
    in_sync: int
    needed: int
    led: bool

    @property
    def missing(self) -> bool:
        """Whether the partition takes no record until more copies are in sync."""
        return not self.led or self.in_sync < self.needed


def copies_of(config: KafkaConfig, places: Collection[Place], timeout_s: float) -> list[Copies]:
    """Return the copies of partitions; partition -1 stands for all of a topic.

    Topics that this user may not describe are left out. If it may not see their settings, all
    copies but one must be in sync, as ``ensure_topics`` makes them. Raise ``BrokerError`` if no
    broker answers.
    """
    topics = {topic for topic, _ in places}
    found = topic_descriptions(config, topics, timeout_s)
    settings, _ = seen_settings(config, topics, timeout_s)
    return [
        Copies(
            topic,
            each.id,
            len(each.replicas),
            len(each.isr),
            _needed(settings.get(topic, {}).get(IN_SYNC), len(each.replicas)),
            each.leader is not None,
        )
        for topic, description in found.items()
        if not isinstance(description, KafkaError)
        for each in description.partitions
        if not {(topic, each.id), (topic, -1)}.isdisjoint(places)
    ]


def _needed(setting: str | None, copies: int) -> int:
    """Return how many copies must be in sync; brokers ask for no more than a partition has."""
    return max(1, copies - 1) if setting is None else min(int(setting), copies)
