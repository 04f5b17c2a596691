"""Roles detect partitions that are added to the input topic, on a real broker."""

import sys
import uuid
from threading import Event

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import NewPartitions, NewTopic

from headrace.errors import PartitionsChanged
from headrace.roles.input_topic.input_watch import watched_input
from streams.kafka.admin.topic_admin import TopicLook, release_id, topic_id_on
from streams.kafka.kafka_client import admin
from streams.kafka.kafka_config import KafkaConfig

pytestmark = pytest.mark.kafka


def test_added_partitions_end_the_role_with_a_sentence(broker: str) -> None:
    config, topic = KafkaConfig(broker), f"watched-{uuid.uuid4().hex[:8]}"
    client = admin(config)
    client.create_topics([NewTopic(topic, 1)])[topic].result(20)
    heard, told = Event(), []

    def fail(error: BaseException) -> None:
        told.append(error)
        heard.set()

    seen = TopicLook(topic_id_on(config, topic), 1)
    with watched_input(config, topic, seen, fail, every_s=0.05):
        client.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
        assert heard.wait(20)
    assert [type(error) for error in told] == [PartitionsChanged]
    assert "has 3 partitions and had 1" in str(told[0])


def test_the_client_keeps_a_reference_to_the_id_of_a_topic(broker: str) -> None:
    """``release_id`` can be removed once the client no longer does."""
    client = admin(KafkaConfig(broker))
    topic = f"watched-{uuid.uuid4().hex[:8]}"
    client.create_topics([NewTopic(topic, 1)])[topic].result(20)
    found = client.describe_topics(TopicCollection([topic]))[topic].result(20)
    kept = sys.getrefcount(found.topic_id)
    release_id(found)
    released = sys.getrefcount(found.topic_id)
    assert (kept, released) == (3, 2)
