"""The input topic is deleted and recreated under running roles, on a real broker."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
from confluent_kafka import TopicPartition

from benchmarks.squares import PIPELINE as SQUARES
from headrace.errors import InputRecreated
from headrace.roles.input_topic.input_commits import commits_end, input_start
from headrace.roles.input_topic.input_watch import check_input, watched_input
from operators.ingress.ingress import Ingress
from operators.input_place import GENERATION, InputPlaces
from schemas.codec.single_object import decode, encode
from schemas.effects import Node
from schemas.records import Answer, Query, Settings
from streams.kafka.admin.topic_admin import TopicLook, ensure_topics, topic_id_on
from streams.kafka.kafka_client import admin, consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport
from streams.live.live_driver import Live
from streams.live.slot_readers import InputLog
from streams.topics import topics
from tests.builders import a_lease, a_pipeline, a_plan
from tests.integration.supervised import supervised
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
    """Delete topics and wait until the broker has deleted them."""
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


@contextmanager
def ingress(config: KafkaConfig) -> Iterator["Future[None]"]:
    """Run an ingress that starts as the role does, without the watch; yield the future of its
    end."""
    group, mine = "moving.ingress", (0, 1, 2)
    seen = TopicLook(topic_id_on(config, INPUT), 3)
    start = input_start(config, PIPELINE, group, mine, seen.id)
    places = InputPlaces(start.upto, seen.id, start.regressed)
    node = Ingress("ingress", PIPELINE, mine, incarnation=0.0, places=places)
    log = InputLog(start.offsets, partial(check_input, config, INPUT, seen))
    transport = KafkaTransport(config, group, validates=True)
    live = Live(PIPELINE, {"ingress": node}, transport, input_log=log)

    def run() -> None:
        with commits_end(config, group, INPUT, places):
            live.run()

    with ThreadPoolExecutor(1) as pool:
        life = pool.submit(run)
        try:
            yield life
        finally:
            live.stop()


def serving(config: KafkaConfig) -> dict[str, Node]:
    """Publish a plan; return the nodes that serve it, except ingress."""
    leases = [a_lease("w0", "locate"), a_lease("w1", slots=(0, 1, 2))]
    plan = a_plan(leases, 1, pipeline="moving", settings=Settings(policy="static", slo_s=SLO_S))
    writer = producer(config)
    writer.produce("headrace.plans", encode(plan), key="moving", partition=0)
    writer.flush()
    nodes = small_nodes(PIPELINE)
    del nodes["ingress"]
    return nodes


def make_anew(config: KafkaConfig) -> None:
    forget(config, [INPUT])
    ensure_topics(config, topics(PIPELINE))


def test_queries_of_a_topic_that_was_made_anew_are_answered_each_once(config: KafkaConfig) -> None:
    old, new, last = ([f"{name}-{n}" for n in range(10)] for name in ("old", "new", "last"))
    with running(config, serving(config)):
        with ingress(config) as life:
            ask(config, old)
            assert sorted(a.id for a in answers(config, len(old))) == sorted(old)
            make_anew(config)
            ask(config, new)
            assert isinstance(life.exception(WITHIN_S), InputRecreated)
        with ingress(config):
            ask(config, last)
            found = answers(config, len(old) + len(new) + len(last))
    assert sorted(answer.id for answer in found) == sorted(old + new + last)
    assert {a.origin.offset // GENERATION for a in found if a.id not in old} == {1}


def test_a_new_ingress_detects_by_the_commits_of_egress_that_its_topic_was_made_anew(
    config: KafkaConfig,
) -> None:
    client = consumer(config, "moving.egress")
    client.commit(
        offsets=[TopicPartition("moving.outputs", 0, 7, metadata="0:1000,1:3")], asynchronous=False
    )
    client.close()
    start = input_start(config, PIPELINE, "moving.anew", (0, 1, 2), "id-1")
    assert (start.upto, start.regressed) == ({0: GENERATION, 1: GENERATION}, 2)
    again = input_start(config, PIPELINE, "moving.anew", (0, 1, 2), "id-1")
    assert (again.upto, again.regressed) == ({0: GENERATION, 1: GENERATION, 2: 0}, 0)


def test_a_topic_that_was_made_anew_has_another_id_and_ends_the_running_role(
    config: KafkaConfig,
) -> None:
    before = topic_id_on(config, INPUT)
    forget(config, [INPUT])
    ensure_topics(config, topics(PIPELINE))
    after = topic_id_on(config, INPUT)
    assert before
    assert after not in ("", before)
    told: SimpleQueue[BaseException] = SimpleQueue()
    with watched_input(config, INPUT, TopicLook(before, 3), told.put, every_s=0.05):
        assert isinstance(told.get(timeout=WITHIN_S), InputRecreated)


@pytest.mark.slow
def test_a_supervised_ingress_begins_anew_and_answers_each_query_of_the_new_topic_once(
    broker: str, tmp_path: Path
) -> None:
    cluster = {"devices": {"cpu": 3}, "ingress": 1, "egress": 1}
    with supervised(broker, tmp_path, {**SQUARES, "slo": "30s", "cluster": cluster}, 20.0) as run:
        rig = run.rig
        rig.offer(0)
        rig.settle()
        forget(rig.kafka, [f"{rig.name}.queries"])
        ensure_topics(rig.kafka, topics(rig.file.pipeline))
        rig.renew_producer()
        rig.offer(100)
        rig.until(lambda: "was recreated" in run.role_log("ingress-0"), "ingress to end")
        rig.pass_time(5)
        rig.offer(0)
        rig.settle()
        assert rig.answers.twice() == []
        assert {answer.id for answer in rig.answers} == set(rig.asked)
