"""Defaults of a client: the brokers of this machine and their only pipeline."""

import os
from collections.abc import Mapping

from headrace.broker.connect import kafka_config
from headrace.broker.local_broker import status
from headrace.errors import Unsuccessful
from schemas.effects import QUERIES
from streams.kafka.admin.topic_admin import partitions
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

BOOTSTRAP = "HEADRACE_BOOTSTRAP"


def client_brokers(
    bootstrap: str | None, properties: Mapping[str, str], env: Mapping[str, str] = os.environ
) -> KafkaConfig:
    """Return the brokers named; else those of HEADRACE_BOOTSTRAP, of the file in
    HEADRACE_KAFKA_CONFIG, or the running local broker.

    Raises ``BrokerError`` if none is named and no local broker runs.
    """
    config = kafka_config(bootstrap or env.get(BOOTSTRAP), env)
    if config.bootstrap:
        return KafkaConfig(config.bootstrap, {**config.properties, **properties})
    running = status()
    if running is None:
        raise BrokerError(
            f"no brokers are named and no local broker runs; name them, set {BOOTSTRAP}, or "
            "`headrace up FILE`"
        )
    return KafkaConfig(running.bootstrap, dict(properties))


def only_pipeline(kafka: KafkaConfig) -> str:
    """Return the name of the only pipeline that has an input topic on the broker.

    Raises ``Unsuccessful`` if there is none, or several.
    """
    return pipeline_among(partitions(kafka))


def pipeline_among(topics: Mapping[str, int]) -> str:
    """Return the name of the only pipeline that has an input topic among ``topics``."""
    suffix = f".{QUERIES}"
    names = sorted(name.removesuffix(suffix) for name in topics if name.endswith(suffix))
    if len(names) == 1:
        return names[0]
    if not names:
        raise Unsuccessful("no pipeline has topics on the broker; `headrace up FILE` makes them")
    raise Unsuccessful(f"several pipelines are on the broker; name one of {', '.join(names)}")
