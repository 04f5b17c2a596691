"""A broker elects a replica that lacks records, of three nodes under a running pipeline."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE
from headrace.broker import local_broker as local
from schemas.effects import QUERIES
from streams.kafka.kafka_client import admin, consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_admin import ensure_topics
from streams.topics import physical, topics
from tests.builders import a_pipeline
from tests.integration.rigs import check_one_answer_each

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WITHIN_S = 60.0
FULL, STALE, OTHER = 1, 2, 3  # nodes: the first two have the input topic
KEPT, LOST = 10, 10
# What lets a stale replica lead, and one replica take records.
UNSAFE = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("three")
    with local.borrow(home, nodes=3):
        yield home


class Scene:
    """A pipeline whose input topic lies on two of three nodes."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.rig = Rig(local.start(home, nodes=3).bootstrap, folder, {**PIPELINE, "slo": "30s"})
        self.topic = physical(self.rig.name, QUERIES)
        self.admin = admin(self.rig.kafka)
        self.admin.delete_topics([self.topic])[self.topic].result(WITHIN_S)
        topic = NewTopic(self.topic, replica_assignment=[[FULL, STALE]], config=UNSAFE)
        self.rig.until(lambda: self._made(topic), "the input topic to be made anew")

    def _made(self, topic: NewTopic) -> bool:
        future = self.admin.create_topics([topic])[self.topic]
        return future.exception(WITHIN_S) is None  # the old one goes in its time

    def pid(self, node: int) -> int:
        found = local.status(self.home)
        assert found is not None
        pid = found.nodes[node - 1]
        assert pid is not None
        return pid

    def partition(self) -> tuple[int, list[int]]:
        """The leader of the input topic and its replicas in sync."""
        asked = self.admin.describe_topics(TopicCollection([self.topic]), request_timeout=10.0)
        (found,) = asked[self.topic].result(WITHIN_S).partitions
        return found.leader.id if found.leader else -1, [each.id for each in found.isr]

    def ask(self, name: str, count: int) -> list[str]:
        """Ask queries and wait until each has an answer."""
        names = [self.rig.ask(b"%d" % n, name=f"{name}-{n}") for n in range(count)]
        self.rig.until(lambda: not self.rig.waiting, "every answer", WITHIN_S)
        return names

    def committed(self, offset: int) -> None:
        """Wait until ingress has committed an offset."""
        client = consumer(self.rig.kafka, f"{self.rig.name}.ingress")
        place = TopicPartition(self.topic, 0)
        self.rig.until(
            lambda: client.committed([place], WITHIN_S)[0].offset == offset, f"a commit of {offset}"
        )
        client.close()


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
@pytest.mark.parametrize("fresh", [5, 15])
def test_no_query_is_lost_or_doubled_by_a_leader_that_lacks_records(
    home: Path, tmp_path: Path, fresh: int
) -> None:
    scene = Scene(home, tmp_path)
    with closing(scene.rig), ThreadPoolExecutor(1) as beside:
        rig = scene.rig
        rig.up()
        scene.ask("kept", KEPT)
        os.kill(scene.pid(STALE), signal.SIGKILL)
        rig.until(lambda: scene.partition() == (FULL, [FULL]), "one replica in sync", WITHIN_S)
        scene.ask("lost", LOST)
        scene.committed(KEPT + LOST)
        full = scene.pid(FULL)
        os.kill(full, signal.SIGSTOP)
        try:
            back = beside.submit(local.start, home, nodes=3)
            rig.until(lambda: scene.partition()[0] == STALE, "the stale leader", WITHIN_S)
            new = scene.ask("new", fresh)
            assert {rig.answer_to(name).outcome for name in new} == {"answered"}
        finally:
            os.kill(full, signal.SIGCONT)
        back.result(WITHIN_S)
        scene.ask("later", KEPT)
        rig.pass_time(2.0)
        check_one_answer_each(rig)
        offsets = [rig.answer_to(name).origin.offset % 2**40 for name in new]
        assert offsets == list(range(KEPT, KEPT + fresh))  # where the lost ones lay
