"""Slots move between the workers of one process under load, on a real broker."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition

from schemas.codec.single_object import decode, encode
from schemas.effects import Node
from schemas.records import Answer, Lease, Query, Settings
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport
from streams.live.executors import EmulatedExecutor
from streams.live.live_driver import Live
from streams.topics import topics
from tests.builders import a_lease, a_pipeline, a_plan
from tests.small_world import small_model, small_nodes

pytestmark = pytest.mark.kafka

SLO_S = 8.0
QUERIES = 120
PIPELINE = a_pipeline({"locate": ["read"], "read": []}, name="moving", slo_s=SLO_S)
LEASES = (
    [a_lease("w0", "locate"), a_lease("w1", slots=(0, 2)), a_lease("w2", slots=(1,))],
    [a_lease("w0", "locate"), a_lease("w1", slots=(1,)), a_lease("w2", slots=(0, 2))],
    [a_lease("w1", "locate"), a_lease("w0", slots=(1,)), a_lease("w2", slots=(0, 2))],
)


@contextmanager
def running(config: KafkaConfig, nodes: dict[str, Node]) -> Iterator[None]:
    """Run the nodes in one driver per kind; the workers share a driver."""
    drivers = []
    for kind in ("i", "w", "e"):
        mine = {name: node for name, node in nodes.items() if name.startswith(kind)}
        live = Live(PIPELINE, mine, KafkaTransport(config, f"{PIPELINE.name}.{kind}"))
        for name in mine if kind == "w" else ():
            live.attach(name, emulated(live, name))
        drivers.append((live, threading.Thread(target=live.run)))
    for _, thread in drivers:
        thread.start()
    try:
        yield
    finally:
        for live, thread in drivers:
            live.stop()
            thread.join(30)


def emulated(live: Live, name: str) -> EmulatedExecutor:
    return EmulatedExecutor(
        lambda variant: small_model(1, name, variant),
        lambda variant: 0.05,
        live.post_at(name),
        time.time,
    )


def test_every_query_is_answered_while_slots_move_between_workers_of_one_process(
    broker: str,
) -> None:
    config = KafkaConfig(broker)
    ensure_topics(config, topics(PIPELINE))
    writer = producer(config)

    def publish(epoch: int, leases: list[Lease]) -> None:
        settings = Settings(policy="static", slo_s=SLO_S)
        plan = a_plan(leases, epoch, pipeline="moving", settings=settings)
        writer.produce("headrace.plans", encode(plan), key="moving", partition=0)
        writer.flush()

    with running(config, small_nodes(PIPELINE)):
        publish(1, LEASES[0])
        for number in range(QUERIES):
            query = Query(payload=f"scan {number}", id=f"q{number}")
            writer.produce("moving.queries", encode(query), partition=number % 4)
            writer.poll(0)
            time.sleep(0.01)  # a steady load on a real broker, about 100 a second
            if number % 10 == 9:
                publish(2 + number // 10, LEASES[number // 10 % 3])
        writer.flush()
        answers = read_answers(config)
    assert sorted(answer.id for answer in answers) == sorted(f"q{n}" for n in range(QUERIES))
    assert [a for a in answers if a.reason.startswith("not complete")] == []


def read_answers(config: KafkaConfig) -> list[Answer]:
    reader = consumer(config, "moving.test")
    reader.assign([TopicPartition("moving.results", slot, 0) for slot in range(4)])
    answers: list[Answer] = []
    ends_s = time.monotonic() + SLO_S + 5
    try:
        while len(answers) < QUERIES and time.monotonic() < ends_s:
            found = [decode(m.value()) for m in reader.consume(100, 0.2) if m.error() is None]
            answers += [record for record in found if isinstance(record, Answer)]
    finally:
        reader.close()
    return answers
