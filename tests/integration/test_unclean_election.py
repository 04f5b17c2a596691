"""A broker elects a replica that lacks records, in a cluster of three nodes under a running
pipeline."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from benchmarks.chaos import PROPERTIES
from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE
from headrace.broker import local_broker as local
from schemas.effects import QUERIES
from schemas.records import ANSWERED
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import admin, consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical, topics
from tests.builders import a_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WITHIN_S = 60.0
FULL, STALE, OTHER = 1, 2, 3  # nodes: the first two have the input topic
PARTITIONS = 4
KEPT, LOST = 20, 20
# These settings let a stale replica lead, and let a single replica accept records.
UNSAFE = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("three")
    with local.borrow(home, nodes=3):
        yield home


class Scene:
    """A pipeline whose input topic has replicas on two of three nodes."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        bootstrap = local.start(home, nodes=3).bootstrap
        self.rig = Rig(bootstrap, folder, {**PIPELINE, "slo": "30s"}, properties=PROPERTIES)
        self.topic = physical(self.rig.name, QUERIES)
        self.admin = admin(self.rig.kafka)
        self.admin.delete_topics([self.topic])[self.topic].result(WITHIN_S)
        topic = NewTopic(
            self.topic, PARTITIONS, replica_assignment=[[FULL, STALE]] * PARTITIONS, config=UNSAFE
        )
        self.rig.until(lambda: self._made(topic), "the input topic to be made anew")

    def _made(self, topic: NewTopic) -> bool:
        future = self.admin.create_topics([topic])[self.topic]
        return future.exception(WITHIN_S) is None  # the old topic is deleted in the background

    def pid(self, node: int) -> int:
        found = local.status(self.home)
        assert found is not None
        pid = found.nodes[node - 1]
        assert pid is not None
        return pid

    def led_by(self, node: int) -> bool:
        """Return whether a node leads every partition of the input topic."""
        return self._all(lambda each: each.leader == node)

    def alone(self, node: int) -> bool:
        """Return whether a node is the only replica in sync of every partition."""
        return self._all(lambda each: each.isrs == [node])

    def _all(self, holds: Callable[[Any], bool]) -> bool:
        # A client that knows the frozen node may wait for it, so the node is left out.
        others = KafkaConfig(self.rig.bootstrap.partition(",")[2])
        try:
            found = admin(others).list_topics(self.topic, timeout=2.0)
        except KafkaException:
            return False  # from a node that is starting
        return all(map(holds, found.topics[self.topic].partitions.values()))

    @contextmanager
    def stale_leader(self) -> Iterator[None]:
        """Freeze the node that has all records and start the other; thaw the first afterwards."""
        full = self.pid(FULL)
        with ThreadPoolExecutor(1) as beside:
            os.kill(full, signal.SIGSTOP)
            try:
                back = beside.submit(local.start, self.home, nodes=3)
                self.rig.until(lambda: self.led_by(STALE), "the stale leader", WITHIN_S)
                self.rig.renew_producer()
                yield
            finally:
                os.kill(full, signal.SIGCONT)
            back.result(WITHIN_S)

    def ask(self, name: str, count: int) -> list[str]:
        """Send queries and wait until each has an answer."""
        names = [self.rig.ask(b"%d" % n, name=f"{name}-{n}") for n in range(count)]
        self.rig.until(lambda: not self.rig.waiting, "every answer", WITHIN_S)
        return names

    def commits(self) -> int:
        """Return the sum of the offsets that ingress has committed."""
        client = consumer(self.rig.kafka, f"{self.rig.name}.ingress")
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        found = client.committed(places, WITHIN_S)
        client.close()
        return sum(max(0, each.offset) for each in found)

    def place_of(self, name: str) -> tuple[int, int]:
        """Return the partition and offset of a query on the topic."""
        origin = self.rig.answer_to(name).origin
        return origin.partition, origin.offset % 2**40


def test_topics_have_three_copies_of_which_two_confirm(home: Path) -> None:
    kafka = KafkaConfig(local.start(home, nodes=3).bootstrap)
    pipeline = a_pipeline({"read": []}, name="copied")
    names = [topic.name for topic in topics(pipeline)]
    ensure_topics(kafka, topics(pipeline))
    client = admin(kafka)
    found = client.describe_topics(TopicCollection(names), request_timeout=10.0)
    copies = {
        len(partition.replicas) for name in names for partition in found[name].result().partitions
    }
    assert copies == {3}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    settings = [future.result() for future in client.describe_configs(resources).values()]
    assert {each["min.insync.replicas"].value for each in settings} == {"2"}
    assert {each["unclean.leader.election.enable"].value for each in settings} == {"false"}


# Fewer new queries than were lost, and more.
@pytest.mark.parametrize("fresh", [8, 40])
def test_no_query_is_lost_or_doubled_by_a_leader_that_lacks_records(
    home: Path, tmp_path: Path, fresh: int
) -> None:
    scene = Scene(home, tmp_path)
    rig = scene.rig
    with closing(rig):
        rig.up()
        scene.ask("kept", KEPT)
        os.kill(scene.pid(STALE), signal.SIGKILL)
        rig.until(lambda: scene.alone(FULL), "one replica in sync", WITHIN_S)
        lost = scene.ask("lost", LOST)
        rig.until(lambda: scene.commits() == KEPT + LOST, "commits of all")
        with scene.stale_leader():
            new = scene.ask("new", fresh)
            assert {rig.answer_to(name).outcome for name in new} == {ANSWERED}
        scene.ask("later", KEPT)
        rig.pass_time(2.0)
        assert sorted(answer.id for answer in rig.answers) == sorted(rig.asked)
        places = {scene.place_of(name) for name in lost}
        assert places & {scene.place_of(name) for name in new}  # at the offsets of the lost ones
