"""A log loses its end while its reader is down, as after a power failure of the brokers' hosts."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from headrace.broker import local_broker as local
from headrace.roles.input_topic.input_commits import input_start
from schemas.effects import OUTPUTS, QUERIES
from schemas.pipeline import Pipeline
from streams.kafka.egress_recovery import commit_now, commits
from streams.kafka.kafka_client import admin, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport
from streams.topics import physical
from tests.builders import a_pipeline

pytestmark = pytest.mark.kafka

WITHIN_S = 60.0
OLD, KEPT = 30, 20  # records before the failure, and those that survive it


def write(broker: str, topic: str, names: list[str]) -> None:
    writer = producer(KafkaConfig(broker))
    for name in names:
        writer.produce(topic, name.encode(), partition=0)
        assert writer.flush(WITHIN_S) == 0  # one batch per record, to cut between two


def read(
    broker: str, topic: str, count: int, group: str = "reader", known: bool = False
) -> list[str]:
    """Read records from the commit onwards, and commit after them.

    If the topic is ``known``, the client already reads another slot of it.
    """
    transport = KafkaTransport(KafkaConfig(broker), group, validates=True)
    if known:
        number = transport.assign([(topic, 1)], [], commits=True)
        while transport.assigned < number:
            transport.fetch(0.01)
            transport.end_turn(time.time())
    transport.assign([(topic, 0)], [], commits=True)
    found: list[str] = []
    until_s = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until_s:
        for each in transport.fetch(0.1):
            found.append((each.value or b"").decode())
            transport.done((topic, 0), each.offset + 1, "")
        transport.end_turn(time.time())
    transport.close()
    return found


def cut(log: Path, offset: int) -> None:
    """Cut a segment before the batch that begins at an offset."""
    data, at = log.read_bytes(), 0
    while int.from_bytes(data[at : at + 8]) < offset:
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
    with log.open("r+b") as file:
        file.truncate(at)


def lose_the_ends(home: Path, topics: Iterable[str]) -> str:
    """Kill the broker, cut its logs after ``KEPT`` records, and return the address of the next
    broker."""
    broker = local.status(home)
    assert broker is not None
    os.kill(broker.pid, signal.SIGKILL)
    while local.status(home) is not None:
        time.sleep(0.05)  # the kernel's pace
    for topic in topics:
        (log,) = home.glob(f"**/{topic}-0/{0:020}.log")
        cut(log, KEPT)
    return local.start(home).bootstrap


def read_of_all(broker: str, topic: str) -> None:
    """Fill a topic, and read and commit all of it."""
    old = [f"old-{n}" for n in range(OLD)]
    write(broker, topic, old)
    assert read(broker, topic, OLD) == old


def read_before_the_cut(kafka: KafkaConfig, pipeline: Pipeline) -> None:
    """Fill a pipeline's input; its ingress commits before the cut, its egress all queries."""
    topic, outputs = physical(pipeline.name, QUERIES), physical(pipeline.name, OUTPUTS)
    group = f"{pipeline.name}.ingress"
    write(kafka.bootstrap, topic, [f"old-{n}" for n in range(OLD)])
    done = KEPT - 5
    assert len(read(kafka.bootstrap, topic, done, group)) >= done
    (place,) = commits(kafka, group, topic, [0])
    place.offset = done
    commit_now(kafka, group, [place])
    egress = TopicPartition(outputs, 0, 0, f"0:{OLD}")  # it has closed every query
    commit_now(kafka, f"{pipeline.name}.egress", [egress])


PIPELINE = a_pipeline(name="cut")
# With fewer new records than lost ones the commit is beyond the log's end; with more, within it.
FRESH = (5, 15)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a broker whose logs have lost their ends after they were read."""
    home = tmp_path_factory.mktemp("truncated")
    with local.borrow(home) as broker:
        kafka = KafkaConfig(broker.bootstrap)
        queries, outputs = physical(PIPELINE.name, QUERIES), physical(PIPELINE.name, OUTPUTS)
        topics = [f"cut-{fresh}-{known}" for fresh in FRESH for known in (False, True)]
        names = [queries, outputs, *topics]
        client = admin(kafka)
        for made in client.create_topics([NewTopic(name, 2) for name in names]).values():
            made.result(WITHIN_S)
        for topic in topics:
            read_of_all(broker.bootstrap, topic)
        read_before_the_cut(kafka, PIPELINE)
        yield lose_the_ends(home, [queries, *topics])


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("fresh", FRESH)
def test_a_reader_goes_on_with_the_first_record_behind_the_cut(
    bootstrap: str, fresh: int, known: bool
) -> None:
    topic, new = f"cut-{fresh}-{known}", [f"new-{n}" for n in range(fresh)]
    write(bootstrap, topic, new)
    assert read(bootstrap, topic, fresh, known=known) == new


def test_an_ingress_whose_commit_lies_before_the_cut_goes_on_behind_it(bootstrap: str) -> None:
    topic, group = physical(PIPELINE.name, QUERIES), f"{PIPELINE.name}.ingress"
    new = [f"new-{n}" for n in range(5)]
    write(bootstrap, topic, new)
    start = input_start(KafkaConfig(bootstrap), PIPELINE, group, [0], "")
    assert start.upto == {0: OLD}
    assert read(bootstrap, topic, len(new), group) == new
