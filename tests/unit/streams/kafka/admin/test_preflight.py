"""The rights that a role lacks, by what the broker tells of its topics."""

import pytest
from confluent_kafka import KafkaError

from streams.kafka.admin.acl_rights import CREATE, DESCRIBE, READ, TOPIC, Right
from streams.kafka.admin.preflight import _check
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

HIDDEN = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("needed", "lacks"), [((CREATE, DESCRIBE), DESCRIBE), ((READ, CREATE, DESCRIBE), READ)]
)
def test_a_topic_that_is_hidden_names_the_right_that_would_show_it(
    needed: tuple[str, ...], lacks: str
) -> None:
    """An operator who may create a topic, but not describe it, was told that Create was missing."""
    rights = [Right(operation, TOPIC, "p.work") for operation in needed]
    with pytest.raises(BrokerError, match=f"no right to {lacks} on topic 'p.work'"):
        _check(KafkaConfig("b:1"), TOPIC, rights, {"p.work": HIDDEN})
