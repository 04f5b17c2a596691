"""Egress reads its state back from a real broker at start-up."""

import itertools
import time

import pytest
from confluent_kafka import TopicPartition

from schemas.codec.single_object import decode, encode
from schemas.effects import OUTPUTS, RESULTS
from schemas.records import Answer, Notice, Noticed
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.egress_recovery import (
    CLOCK_SKEW_S,
    Committed,
    answered_since,
    answers_from_s,
    committed_notes,
)
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import committed
from streams.topics import Topic, physical, topics
from tests.builders import a_pipeline, an_answer

pytestmark = pytest.mark.kafka

GROUP = "recovery.egress"
BASE_S = float(int(time.time()) - 60)  # within the retention of the topics
numbers = itertools.count()


def origins(value: bytes) -> list[tuple[int, int]]:
    record = decode(value)
    assert isinstance(record, Answer)
    return [(record.origin.partition, record.origin.offset)]


@pytest.fixture
def name(broker: str) -> str:
    pipeline = a_pipeline({"read": []}, name=f"recovery-{next(numbers)}", egress_partitions=2)
    # Without the topics' settings, so that the tests can choose time stamps.
    ensure_topics(KafkaConfig(broker), [Topic(t.name, t.partitions) for t in topics(pipeline)])
    return pipeline.name


def write(broker: str, topic: str, slot: int, value: bytes, at_s: float) -> None:
    client = producer(KafkaConfig(broker))
    client.produce(topic, value, partition=slot, timestamp=int(at_s * 1e3))
    assert client.flush(10.0) == 0


def commit(
    broker: str, topic: str, slot: int, offset: int, note: str, leader_epoch: int = -1
) -> None:
    client = consumer(KafkaConfig(broker), GROUP)
    place = TopicPartition(topic, slot, offset, metadata=note, leader_epoch=leader_epoch)
    client.commit(offsets=[place], asynchronous=False)
    client.close()


def test_a_slot_is_read_from_its_commit_or_from_its_beginning(broker: str, name: str) -> None:
    outputs = physical(name, OUTPUTS)
    for at_s in (BASE_S, BASE_S + 1, BASE_S + 2):
        write(broker, outputs, 0, b"x", at_s)
    write(broker, outputs, 1, b"x", BASE_S + 3)
    commit(broker, outputs, 0, 1, "0:7,2:9")
    assert committed_notes(KafkaConfig(broker), GROUP, outputs, (0, 1)) == (
        Committed(0, 1, "0:7,2:9", BASE_S + 1),
        Committed(1, 0, "", BASE_S + 3),
    )
    commit(broker, outputs, 0, 3, "0:8,2:9")
    commit(broker, outputs, 1, 1, "1:1")
    assert committed_notes(KafkaConfig(broker), GROUP, outputs, (0, 1)) == (
        Committed(0, 3, "0:8,2:9", None),
        Committed(1, 1, "1:1", None),
    )


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(broker: str, name: str) -> None:
    kafka, outputs = KafkaConfig(broker), physical(name, OUTPUTS)
    for at_s in (BASE_S, BASE_S + 1):
        write(broker, outputs, 0, b"x", at_s)
    commit(broker, outputs, 0, 10, "0:7", leader_epoch=0)
    found = committed_notes(kafka, GROUP, outputs, (0,))
    assert found == (Committed(0, 0, "0:7", BASE_S),)
    reader = consumer(kafka, GROUP)
    reader.assign(committed(reader, outputs, (0,)))  # as a role does
    (first,) = reader.consume(1, timeout=20.0)
    assert first.offset() == 0
    reader.close()


def test_an_answer_that_bears_an_earlier_time_than_its_record_is_found(
    broker: str, name: str
) -> None:
    outputs, results = physical(name, OUTPUTS), physical(name, RESULTS)
    ahead_s = CLOCK_SKEW_S - 1  # how far the clock of ingress is ahead of that of egress
    write(broker, outputs, 0, b"x", BASE_S + ahead_s)
    for offset, at_s in ((1, BASE_S - CLOCK_SKEW_S), (2, BASE_S), (3, BASE_S + 9)):
        write(broker, results, 0, encode(an_answer(offset)), at_s)
    kafka = KafkaConfig(broker)
    places = committed_notes(kafka, GROUP, outputs, (0, 1))
    found = answered_since(kafka, results, answers_from_s(places), origins)
    assert found == {(0, 2), (0, 3)}


def test_an_answer_from_before_its_notice_is_found(broker: str, name: str) -> None:
    outputs, results = physical(name, OUTPUTS), physical(name, RESULTS)
    made_s, noticed_s = BASE_S - 30, BASE_S  # ingress was away during this time
    noticed = Noticed(query_id="q1", offset=1, created_s=made_s, deadline_s=made_s + 1)
    notice = Notice(partition=0, upto=2, queries=(noticed,))
    write(broker, outputs, 0, encode(notice), noticed_s)
    write(broker, results, 0, encode(an_answer(1)), made_s + 0.01)
    kafka = KafkaConfig(broker)
    places = committed_notes(kafka, GROUP, outputs, (0, 1))
    assert places[0] == Committed(0, 0, "", made_s)
    assert answered_since(kafka, results, answers_from_s(places), origins) == {(0, 1)}


def test_without_records_to_read_again_no_answers_are_read(broker: str, name: str) -> None:
    kafka = KafkaConfig(broker)
    places = committed_notes(kafka, GROUP, physical(name, OUTPUTS), (0, 1))
    assert answers_from_s(places) is None
    assert answered_since(kafka, physical(name, RESULTS), None, origins) == frozenset()
