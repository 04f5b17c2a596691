"""The control app counts queries and detects records of another control app, on a real broker."""

import time
import uuid
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from schemas.effects import COMMAND_RESULTS, PLANS, QUERIES, REPORTS
from schemas.pipeline import Pipeline
from streams.control_app import topic_ends
from streams.control_app.election import CHARGED, Election
from streams.control_app.topic_ends import InputTopic
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import admin, consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical, topics
from tests.control_world import a_pipeline

pytestmark = pytest.mark.kafka


def written(writer: Producer, topic: str, key: str) -> int:
    """Write a record; return its offset."""
    offsets: list[int] = []
    writer.produce(
        physical("", topic), b"x", key, 0, on_delivery=lambda _, m: offsets.append(m.offset())
    )
    assert writer.flush(20) == 0
    return offsets[0]


@pytest.fixture
def pipeline(broker: str) -> Pipeline:
    named = replace(a_pipeline(), name=f"others-{uuid.uuid4().hex[:8]}")
    ensure_topics(KafkaConfig(broker), topics(named))
    writer = producer(KafkaConfig(broker))
    for topic in (PLANS, COMMAND_RESULTS, REPORTS):
        written(writer, topic, "first")  # waits for the topic's leader
    return named


def test_own_records_and_records_of_other_pipelines_are_not_another_apps(
    broker: str, pipeline: Pipeline
) -> None:
    kafka = KafkaConfig(broker)
    reader, writer = InputTopic(kafka, pipeline, time.monotonic), producer(kafka)
    since = {topic: reader.shared_ends()[topic] for topic in (PLANS, COMMAND_RESULTS)}
    own = {
        (PLANS, written(writer, PLANS, f"{pipeline.name}/1")),
        (COMMAND_RESULTS, written(writer, COMMAND_RESULTS, f"{pipeline.name}/c")),
    }
    written(writer, PLANS, "another-pipeline/1")
    since, others = reader.written_by_others(since, own)
    assert not others
    assert reader.written_by_others(since, ()) == (since, False)


@pytest.mark.parametrize("topic", [PLANS, COMMAND_RESULTS])
def test_a_foreign_record_of_this_pipeline_is_another_apps(
    broker: str, pipeline: Pipeline, topic: str
) -> None:
    kafka = KafkaConfig(broker)
    reader, writer = InputTopic(kafka, pipeline, time.monotonic), producer(kafka)
    since = {each: reader.shared_ends()[each] for each in (PLANS, COMMAND_RESULTS)}
    own = {(topic, written(writer, topic, f"{pipeline.name}/1"))}
    written(writer, topic, f"{pipeline.name}/2")
    since, others = reader.written_by_others(since, own)
    assert others
    assert reader.written_by_others(since, ()) == (since, False)


def test_of_two_apps_the_one_outside_the_group_is_replaced(broker: str, pipeline: Pipeline) -> None:
    kafka, name = KafkaConfig(broker), pipeline.name
    first, second = Election(kafka, name, "first"), Election(kafka, name, "second")
    assert not first.replaced()  # no app is in charge
    reader = consumer(kafka, first.group, **{"client.id": "first"})
    assigned: list[list[TopicPartition]] = []
    try:
        reader.subscribe(
            [physical(name, logical) for logical in CHARGED],
            on_assign=lambda _, places: assigned.append(places),
        )
        until_s = time.monotonic() + 40.0
        while not assigned:
            assert time.monotonic() < until_s, "the group assigned nothing within 40 s"
            reader.poll(0.1)
        assert (first.replaced(), second.replaced()) == (False, True)
    finally:
        reader.close()


def test_queries_in_partitions_that_are_added_are_counted(
    broker: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ends, "LOOK_S", 0.0)
    kafka, topic = KafkaConfig(broker), physical(pipeline.name, QUERIES)
    reader, altering = InputTopic(kafka, pipeline, time.monotonic), admin(kafka)
    assert reader.ends() == dict.fromkeys(range(4), 0)
    altering.create_partitions([NewPartitions(topic, 5)])[topic].result(30.0)
    until_s = time.monotonic() + 30.0
    while reader.ends() != dict.fromkeys(range(5), 0):
        assert time.monotonic() < until_s, "the added partition was not counted within 30 s"
