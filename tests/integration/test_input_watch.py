"""Roles detect changes of the input topic on a real broker."""

import sys
import uuid
from functools import partial
from queue import SimpleQueue
from threading import Event

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import NewPartitions

from headrace.errors import InputRecreated, PartitionsChanged
from headrace.roles.input_topic.input_watch import restore_input, watched_input
from streams.kafka.admin.topic_admin import TopicLook, ensure_topics, release_id, topic_id_on
from streams.kafka.admin.topic_settings import settings_of
from streams.kafka.kafka_client import admin
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import HOUR_MS, Topic
from tests.builders import a_pipeline

pytestmark = pytest.mark.kafka


def test_added_partitions_end_the_role_with_a_sentence(broker: str) -> None:
    config, topic = KafkaConfig(broker), f"watched-{uuid.uuid4().hex[:8]}"
    client = admin(config)
    ensure_topics(config, [Topic(topic, 1)])
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


def test_a_deleted_input_topic_is_made_anew_and_ends_the_role(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ingress went on without it, and no query could be sent until a person made it."""
    config = KafkaConfig(broker)
    pipeline = a_pipeline({"read": []}, name=f"deleted-{uuid.uuid4().hex[:8]}", slo_s=1.0)
    topic = f"{pipeline.name}.queries"
    restore_input(config, pipeline, 20.0)
    before = TopicLook(topic_id_on(config, topic), pipeline.input_partitions)
    told: SimpleQueue[BaseException] = SimpleQueue()
    client, restore = admin(config), partial(restore_input, config, pipeline, 20.0)
    with watched_input(config, topic, before, told.put, 0.05, gone_s=0.5, restore=restore):
        client.delete_topics([topic])[topic].result(20)
        assert isinstance(told.get(timeout=30.0), InputRecreated)
    assert f"topic '{topic}' was deleted while this role read it; it was recreated" in caplog.text
    settings = settings_of(config, [topic])[topic]
    assert settings["retention.ms"] == str(HOUR_MS)


def test_the_client_keeps_a_reference_to_the_id_of_a_topic(broker: str) -> None:
    """``release_id`` can be removed once the client no longer does."""
    config, topic = KafkaConfig(broker), f"watched-{uuid.uuid4().hex[:8]}"
    ensure_topics(config, [Topic(topic, 1)])  # it waits until the broker knows the topic
    client = admin(config)
    found = client.describe_topics(TopicCollection([topic]))[topic].result(20)
    kept = sys.getrefcount(found.topic_id)
    release_id(found)
    released = sys.getrefcount(found.topic_id)
    assert (kept, released) == (3, 2)
