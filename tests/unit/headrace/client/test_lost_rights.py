"""A client that follows a topic ends with the right that its user has lost."""

import pytest
from confluent_kafka import KafkaError, Message

from headrace.client.topic_clients import holds_record
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

KAFKA = KafkaConfig("b:1", {"sasl.username": "ann"})


def a_message(code: int | None) -> Message:
    error = None if code is None else KafkaError(code)
    return Message(topic="p.results", partition=0, value=b"", error=error)


def test_a_lost_right_to_the_topic_is_named() -> None:
    """The client waited for answers that could not arrive, and told nothing."""
    with pytest.raises(BrokerError, match=r"user 'ann' has no right to Read on topic 'p\.results'"):
        holds_record(KAFKA, a_message(KafkaError.TOPIC_AUTHORIZATION_FAILED))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (None, True),
        (KafkaError._TRANSPORT, False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),  # it commits nothing
    ],
)
def test_records_are_used_and_errors_that_pass_are_not(code: int | None, found: bool) -> None:
    assert holds_record(KAFKA, a_message(code)) is found
