"""Which brokers, and as whom? The option, the environment and a client properties file."""

import os
from collections.abc import Mapping
from pathlib import Path

from streams.kafka.kafka_config import KafkaConfig, KafkaConfigError, parse_properties

KAFKA_CONFIG = "HEADRACE_KAFKA_CONFIG"  # environment: a client properties file
BOOTSTRAP = "bootstrap.servers"


def kafka_config(bootstrap: str | None, env: Mapping[str, str] = os.environ) -> KafkaConfig:
    """The brokers named, with the properties of the file in ``HEADRACE_KAFKA_CONFIG``.

    ``bootstrap`` beats the file's own ``bootstrap.servers``; it is "" in what is returned where
    nobody names brokers. Raises ``KafkaConfigError``.
    """
    path = env.get(KAFKA_CONFIG)
    properties = read_kafka_properties(Path(path), env) if path else {}
    own = properties.pop(BOOTSTRAP, "")
    return KafkaConfig(bootstrap or own, properties)


def read_kafka_properties(path: Path, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The properties of a file, with every reference replaced. Raises ``KafkaConfigError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise KafkaConfigError(
            f"the Kafka properties file {path} cannot be read ({why}); "
            f"name another with --kafka-config or {KAFKA_CONFIG}"
        ) from None
    return parse_properties(
        text, str(path), env, lambda named: Path(named).read_text(encoding="utf-8")
    )
