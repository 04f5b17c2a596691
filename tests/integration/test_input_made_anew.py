"""The input topic is deleted and made anew under running roles, on a real broker."""

import time
from collections.abc import Sequence
from queue import SimpleQueue

import pytest
from confluent_kafka import TopicPartition

from headrace.errors import InputMadeAnew
from headrace.roles.input_watch import watch_input
from headrace.roles.wiring import input_start
from operators.input_place import GENERATION
from schemas.codec.single_object import decode, encode
from schemas.records import Answer, Query, Settings
from streams.kafka.kafka_client import admin, consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_admin import TopicLook, ensure_topics, topic_id_on
from streams.topics import topics
from tests.builders import a_lease, a_pipeline, a_plan
from tests.integration.test_moving_slots import running
from tests.small_world import small_nodes

pytestmark = pytest.mark.kafka

SLO_S = 8.0
PIPELINE = a_pipeline({"locate": ["read"], "read": []}, name="moving", slo_s=SLO_S)
INPUT = "moving.queries"
WITHIN_S = 30.0


@pytest.fixture
def config(broker: str) -> KafkaConfig:
    config = KafkaConfig(broker)
    forget(config, [topic.name for topic in topics(PIPELINE) if topic.name.startswith("moving.")])
    ensure_topics(config, topics(PIPELINE))
    return config


def forget(config: KafkaConfig, names: Sequence[str]) -> None:
    """Delete topics, and wait until the broker has."""
    client = admin(config)
    for future in client.delete_topics(list(names)).values():
        if future.exception(WITHIN_S) is None:
            future.result()
    until_s = time.monotonic() + WITHIN_S
    while set(names) & set(client.list_topics(timeout=5).topics):
        assert time.monotonic() < until_s
        time.sleep(0.1)  # the broker's pace


def ask(config: KafkaConfig, names: Sequence[str]) -> None:
    writer = producer(config)
    for name in names:
        writer.produce(INPUT, encode(Query(payload="scan", id=name)), partition=0)
    assert writer.flush(WITHIN_S) == 0


def answers(config: KafkaConfig, count: int) -> list[Answer]:
    reader = consumer(config, "moving.test")
    reader.assign([TopicPartition("moving.results", slot, 0) for slot in range(4)])
    found: list[Answer] = []
    until_s = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until_s:
        records = [decode(m.value()) for m in reader.consume(100, 0.2) if m.error() is None]
        found += [record for record in records if isinstance(record, Answer)]
    reader.close()
    return found


def test_queries_of_a_topic_that_was_made_anew_are_answered_each_once(config: KafkaConfig) -> None:
    old, new = [f"old-{n}" for n in range(20)], [f"new-{n}" for n in range(10)]
    leases = [a_lease("w0", "locate"), a_lease("w1", slots=(0, 1, 2))]
    plan = a_plan(leases, 1, pipeline="moving", settings=Settings(policy="static", slo_s=SLO_S))
    writer = producer(config)
    with running(config, small_nodes(PIPELINE)):
        writer.produce("headrace.plans", encode(plan), key="moving", partition=0)
        writer.flush()
        ask(config, old)
        assert sorted(a.id for a in answers(config, len(old))) == sorted(old)
        forget(config, [INPUT])
        ensure_topics(config, topics(PIPELINE))
        ask(config, new)
        found = answers(config, len(old) + len(new))
    assert sorted(answer.id for answer in found) == sorted(old + new)
    assert {a.origin.offset // GENERATION for a in found if a.id in new} == {1}


def test_a_new_ingress_knows_by_egress_that_its_topic_was_made_anew(config: KafkaConfig) -> None:
    client = consumer(config, "moving.egress")
    client.commit(
        offsets=[TopicPartition("moving.outputs", 0, 7, metadata="0:1000,1:3")], asynchronous=False
    )
    client.close()
    start = input_start(config, PIPELINE, "moving.anew", (0, 1, 2), "id-1")
    assert (start.upto, start.regressed) == ({0: GENERATION, 1: GENERATION}, 2)
    again = input_start(config, PIPELINE, "moving.anew", (0, 1, 2), "id-1")
    assert (again.upto, again.regressed) == ({0: GENERATION, 1: GENERATION, 2: 0}, 0)


def test_a_topic_that_was_made_anew_has_another_id_and_the_running_role_is_told(
    config: KafkaConfig,
) -> None:
    before = topic_id_on(config, INPUT)
    forget(config, [INPUT])
    ensure_topics(config, topics(PIPELINE))
    after = topic_id_on(config, INPUT)
    assert before
    assert after not in ("", before)
    told: SimpleQueue[BaseException] = SimpleQueue()
    watch_input(config, INPUT, TopicLook(before, 3), told.put, every_s=0.05)
    assert isinstance(told.get(timeout=WITHIN_S), InputMadeAnew)
