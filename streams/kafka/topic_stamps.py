"""Settings of a topic's time stamps on the broker: their source, and their greatest age.

By the age limit of the results topic the broker enforces leases; by its own stamps on the input
topic deadlines count from one clock.
"""

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
from streams.topics import STAMP_SETTINGS, Stamps

WAIT_S = 30.0


def set_stamps(config: KafkaConfig, topic: str, stamps: Stamps, timeout_s: float = WAIT_S) -> bool:
    """Return whether the topic's records are stamped so.

    A topic that was created otherwise gets the settings here, where this user may alter them. One
    whose settings this user may not see counts as set: a new one is created so.
    """
    wanted = STAMP_SETTINGS[stamps]
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = asked(config, lambda client: client.describe_configs([resource]), timeout_s)[resource]
    if isinstance(found, KafkaError):
        return True
    if all(name in found and found[name].value == value for name, value in wanted.items()):
        return True
    changes = [
        ConfigEntry(
            name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG,
            incremental_operation=AlterConfigOpType.SET,
        )
        for name, value in wanted.items()
    ]  # fmt: skip
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    results = asked(config, lambda client: client.incremental_alter_configs([altered]), timeout_s)
    return not isinstance(results[altered], KafkaError)
