"""The errors with which a control app ends."""

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from streams.control_app.app import explained
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

KAFKA = KafkaConfig("b:1")


@pytest.mark.parametrize(
    ("error", "right"),
    [
        (TopicAuthorizationFailedError("headrace.plans"), "topic 'headrace.plans'"),
        (TopicAuthorizationFailedError({"b", "a"}), "topic 'a, b'"),
        (GroupAuthorizationFailedError("p.control"), "group 'p.control'"),
    ],
)
def test_a_right_that_the_consumer_has_lost_is_named(error: KafkaError, right: str) -> None:
    found = explained(KAFKA, error)
    assert isinstance(found, BrokerError)
    assert f"has no right to Read on {right}; `headrace acls" in str(found)


@pytest.mark.parametrize("error", [KafkaConnectionError("away"), TopicAuthorizationFailedError()])
def test_other_errors_stay_as_they_are(error: KafkaError) -> None:
    assert explained(KAFKA, error) is error
