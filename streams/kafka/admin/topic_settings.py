"""Settings of topics on the broker: how records are stamped, and how large they may be.

The broker enforces leases by the age limit of the results topic. Its own stamps on the input topic
make deadlines count from one clock.
"""

import logging
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from streams.kafka.kafka_client import asked
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import FORBIDDEN, forbidden
from streams.observers.journal import tell
from streams.topics import STAMP_SETTINGS, Stamps

log = logging.getLogger("headrace.broker")
LEVELS = {"settings.unseen": logging.WARNING}

WAIT_S = 30.0


def settings_of(
    config: KafkaConfig, topics: Collection[str], timeout_s: float = WAIT_S
) -> Mapping[str, Mapping[str, str]]:
    """Return the settings of those topics that exist and whose settings this user may see.

    Log the topics whose settings it may not see. Raise ``BrokerError`` if no broker answers.
    """
    seen, unseen = seen_settings(config, topics, timeout_s)
    if unseen:
        lacks = forbidden(config, "DescribeConfigs", "topic", ", ".join(unseen))
        text = f"cannot check topic settings: {lacks}"
        tell(log, LEVELS["settings.unseen"], "settings.unseen", text, topics=unseen)
    return seen


def seen_settings(
    config: KafkaConfig, topics: Collection[str], timeout_s: float
) -> tuple[Mapping[str, Mapping[str, str]], list[str]]:
    """Return the settings of the existing topics that this user may see, and the other topics.

    Raise ``BrokerError`` if no broker answers.
    """
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = asked(config, lambda client: client.describe_configs(resources), timeout_s)
    seen, unseen = {}, []
    for resource, entries in found.items():
        if not isinstance(entries, KafkaError):
            seen[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
        elif entries.code() in FORBIDDEN:
            unseen.append(resource.name)
    return seen, unseen


def set_stamps(config: KafkaConfig, topic: str, stamps: Stamps) -> bool:
    """Return whether the topic's records are stamped this way.

    An existing topic with other settings is altered here, if this user may do so. If the settings
    are hidden from this user, log it and return True: new topics are created this way.
    """
    wanted = STAMP_SETTINGS[stamps]
    seen = settings_of(config, (topic,), WAIT_S)
    if topic not in seen or wanted.items() <= seen[topic].items():
        return True
    changes = [
        ConfigEntry(
            name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG,
            incremental_operation=AlterConfigOpType.SET,
        )
        for name, value in wanted.items()
    ]  # fmt: skip
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    results = asked(config, lambda client: client.incremental_alter_configs([altered]), WAIT_S)
    return not isinstance(results[altered], KafkaError)
