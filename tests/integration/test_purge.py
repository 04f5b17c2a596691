"""`headrace down --purge` on a real broker deletes all data of one pipeline and none of others."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.rig import Rig
from headrace.cli.main import headrace
from headrace.cluster.purge import Purged, purge
from headrace.errors import Unsuccessful
from headrace.status.watch import Watch
from schemas.effects import COMMAND_RESULTS, PLANS
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.control_app.control_records import retained_records
from streams.kafka.admin.acl_rights import own_groups
from streams.kafka.admin.topic_admin import partitions
from streams.kafka.kafka_client import asked
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import read_to_end
from streams.topics import own_topics, physical

pytestmark = pytest.mark.kafka

PIPELINE = {
    "slo": "2s",
    "egress_partitions": 1,
    "tasks": {"square": {"slots": 1, "variants": {"v": {"operator": "benchmarks.squares:Square"}}}},
    "cluster": {"devices": {"cpu": 1}},
}


@pytest.fixture
def two(broker: str, tmp_path: Path) -> Iterator[tuple[Rig, Rig]]:
    """Run two pipelines that have answered a query and executed a command."""
    rigs = Rig(broker, tmp_path, PIPELINE), Rig(broker, tmp_path, PIPELINE)
    try:
        for rig in rigs:
            rig.start(*rig.roles)
        for rig in rigs:
            rig.until(rig.serves, "every role to serve")
            rig.ask(b"3")
            rig.settle()
            assert rig.command("replan").ok
        yield rigs
    finally:
        for rig in rigs:
            rig.close()


def remembered(kafka: KafkaConfig, pipeline: Pipeline, topic: str) -> int:
    """Return the number of keys of a shared topic that still have a record of the pipeline."""
    name = physical(pipeline.name, topic)
    newest = {message.key(): message.value() for message in read_to_end(kafka, name)}
    mine = f"{pipeline.name}/".encode()
    return sum(1 for key, value in newest.items() if value and key and key.startswith(mine))


def groups(kafka: KafkaConfig) -> set[str]:
    found = asked(kafka, lambda client: {"": client.list_consumer_groups()}, 20.0)[""]
    return {group.group_id for group in found.valid}


def await_deletion(kafka: KafkaConfig, topics: set[str]) -> None:
    until_s = time.monotonic() + 20
    while topics & partitions(kafka).keys():
        assert time.monotonic() < until_s


def assert_forgotten(kafka: KafkaConfig, pipeline: Pipeline) -> None:
    """Assert that readers find nothing of the pipeline, even before the broker compacts."""
    plans = [e.record for e in retained_records(kafka, pipeline) if isinstance(e.record, Plan)]
    assert pipeline.name not in [plan.pipeline for plan in plans]
    with closing(Watch(kafka, pipeline)) as watch:
        watch.feed(0.5)
        assert watch.snapshot(with_lag=False).epoch is None


def test_a_purge_deletes_the_data_of_its_pipeline_only(two: tuple[Rig, Rig]) -> None:
    gone, stays = two
    kafka, pipeline = gone.kafka, gone.file.pipeline
    with pytest.raises(Unsuccessful, match=r"still runs somewhere \(cpu-0, egress-0, ingress-0"):
        purge(kafka, pipeline)
    for name in list(gone.roles):
        gone.stop(name)
    had = {*own_topics(pipeline)}
    assert had < partitions(kafka).keys()
    line = ["down", str(gone.file.path), "--bootstrap", gone.bootstrap, "--purge", "--json"]
    result = CliRunner().invoke(headrace, line, catch_exceptions=False)
    said = json.loads(result.stdout)
    assert (result.exit_code, said["was_up"]) == (0, False)
    assert {*said["purged"]["topics"]} == had
    assert said["purged"]["records"] >= 2
    await_deletion(kafka, had)
    assert [remembered(kafka, pipeline, topic) for topic in (PLANS, COMMAND_RESULTS)] == [0, 0]
    assert not {*own_groups(pipeline)} & groups(kafka)
    assert purge(kafka, pipeline) == Purged((), (), 0)
    assert_forgotten(kafka, pipeline)
    assert remembered(kafka, stays.file.pipeline, PLANS) > 0
    stays.answer_to(stays.ask(b"4"))
    assert stays.command("replan").ok
