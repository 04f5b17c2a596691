"""The transport of an edge reads its input under other partition numbers and another group."""

import time
import uuid

import pytest
from confluent_kafka.admin import NewTopic

from streams.kafka.edge_transport import EdgeInput, EdgeTransport
from streams.kafka.egress_recovery import commits
from streams.kafka.kafka_client import admin, producer
from streams.kafka.kafka_config import KafkaConfig

pytestmark = pytest.mark.kafka

FIRST = 4096
WITHIN_S = 60.0


def test_the_edge_input_has_its_own_partition_numbers_and_commits(broker: str) -> None:
    kafka, name = KafkaConfig(broker), uuid.uuid4().hex
    inputs, work = f"{name}.queries", f"{name}.work"
    client = admin(kafka)
    for made in client.create_topics([NewTopic(inputs, 2, 1), NewTopic(work, 1, 1)]).values():
        made.result()
    writer = producer(kafka)
    for number in range(4):
        writer.produce(inputs, b"query", partition=number % 2)
    writer.produce(work, b"work", partition=0)
    assert writer.flush(WITHIN_S) == 0

    source = EdgeInput(kafka, inputs, f"{name}.ingress", FIRST)
    transport = EdgeTransport(kafka, f"{name}.workers", source)
    numbers = {inputs: transport.assign([(inputs, FIRST), (inputs, FIRST + 1)], [], commits=True)}
    numbers[work] = transport.assign([(work, 0)], [], commits=True)
    found: list[tuple[str, int, int]] = []
    until_s = time.monotonic() + WITHIN_S
    while len(found) < 5 and time.monotonic() < until_s:
        for each in transport.fetch(0.1):
            assert transport.assigned >= numbers[each.topic]
            found.append((each.topic, each.slot, each.offset))
            transport.done((each.topic, each.slot), each.offset + 1, "note")
        transport.end_turn(time.time())
    transport.close()

    expected = [(inputs, FIRST + p, offset) for p in (0, 1) for offset in (0, 1)]
    assert sorted(found) == sorted([*expected, (work, 0, 0)])
    places = commits(kafka, f"{name}.ingress", inputs, (0, 1))
    assert [(each.partition, each.offset, each.metadata) for each in places] == [
        (0, 2, "note"), (1, 2, "note"),
    ]  # fmt: skip
    assert [each.offset for each in commits(kafka, f"{name}.workers", work, (0,))] == [1]
