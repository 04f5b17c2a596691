"""The errors with which a control app ends."""

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)

from streams.codecs.size_gate import RecordTooLarge
from streams.control_app.app import explained, refused_write
from streams.control_app.control_writer import WriteRefused
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


def test_a_plan_that_its_topic_does_not_take_leaves_the_former_one_in_force() -> None:
    """It ended the control app at every start, with a trace of the client library."""
    found = refused_write(KAFKA, MessageSizeTooLargeError(), "headrace.plans")
    assert isinstance(found, RecordTooLarge)
    assert "on topic 'headrace.plans'" in str(found)
    assert "raise the topic's max.message.bytes" in str(found)


def test_a_lost_right_to_write_is_named() -> None:
    found = refused_write(KAFKA, TopicAuthorizationFailedError("headrace.plans"), "headrace.plans")
    assert isinstance(found, WriteRefused)
    assert "has no right to Write on topic 'headrace.plans'; `headrace acls" in str(found)


@pytest.mark.parametrize("error", [NotEnoughReplicasError(), KafkaConnectionError("away")])
def test_a_write_that_may_succeed_later_keeps_its_error(error: KafkaError) -> None:
    assert refused_write(KAFKA, error, "headrace.plans") is error
