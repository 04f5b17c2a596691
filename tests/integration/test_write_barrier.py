"""A write barrier makes every earlier record readable and leaves no record on the topic."""

import os
import signal
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.broker import local_broker as local
from headrace.client.newest_records import newest_first
from schemas.effects import RESULTS
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import admin, consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.leases.write_barrier import _barrier, pass_barrier
from streams.kafka.topic_contents import read_to_end, watermarks
from streams.topics import physical, topics
from tests.builders import a_pipeline

pytestmark = pytest.mark.kafka


def results_topic(kafka: KafkaConfig) -> str:
    pipeline = a_pipeline({"read": []}, name=f"barrier-{uuid.uuid4().hex[:8]}")
    ensure_topics(kafka, topics(pipeline))
    return physical(pipeline.name, RESULTS)


def write(kafka: KafkaConfig, topic: str, value: bytes, partition: int = 0) -> None:
    client = producer(kafka)
    client.produce(topic, value, partition=partition)
    assert client.flush(30) == 0


def ends(kafka: KafkaConfig, topic: str) -> list[int]:
    reader: Consumer = consumer(kafka, "test")
    try:
        return [watermarks(reader, TopicPartition(topic, partition))[1] for partition in range(4)]
    finally:
        reader.close()


def test_a_barrier_adds_no_record_and_readers_reach_the_end_after_it(broker: str) -> None:
    kafka = KafkaConfig(broker)
    topic = results_topic(kafka)
    write(kafka, topic, b"first")
    _barrier(kafka, topic, topic, 4)
    assert ends(kafka, topic) == [2, 1, 1, 1]  # a marker in each partition
    assert [m.value() for m in read_to_end(kafka, topic)] == [b"first"]
    write(kafka, topic, b"second")
    _barrier(kafka, topic, topic, 4)
    assert [m.value() for m in read_to_end(kafka, topic)] == [b"first", b"second"]
    stretch = next(iter(newest_first(kafka, topic)))
    assert {m.value() for m in stretch} == {b"first", b"second"}


def test_a_topic_with_one_copy_needs_no_barrier(broker: str) -> None:
    kafka = KafkaConfig(broker)
    topic = results_topic(kafka)
    write(kafka, topic, b"first")
    pass_barrier(kafka, topic, topic)
    assert ends(kafka, topic) == [1, 0, 0, 0]


@pytest.mark.slow
def test_records_hidden_by_a_frozen_replica_can_be_read_after_a_barrier(tmp_path: Path) -> None:
    running = local.start(tmp_path / "broker", nodes=3)
    frozen = None
    try:
        kafka = KafkaConfig(running.bootstrap)
        topic = results_topic(kafka)
        for partition in range(4):
            write(kafka, topic, b"first", partition)
        placed = admin(kafka).list_topics(topic).topics[topic].partitions[3]
        follower = next(node for node in placed.replicas if node != placed.leader)
        frozen = running.nodes[follower - 1]
        assert frozen is not None
        os.kill(frozen, signal.SIGSTOP)
        client = producer(kafka)
        client.produce(topic, b"hidden", partition=3, timestamp=int(time.time() * 1e3))
        client.poll(0.3)
        pass_barrier(kafka, topic, topic)
        assert [m.value() for m in read_to_end(kafka, topic)] == 4 * [b"first"] + [b"hidden"]
        assert client.flush(30) == 0
    finally:
        if frozen is not None:
            os.kill(frozen, signal.SIGCONT)
        local.stop(tmp_path / "broker")
