"""Queries of different sizes are dispatched to different devices, on a real Kafka."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from benchmarks.received_answers import in_time
from benchmarks.rig import Rig
from headrace.client.formats import answers_in, read_answer
from headrace.client.newest_records import newest_first
from headrace.client.topic_clients import Asker
from headrace.cluster.run_state import read_state
from headrace.config.pipeline_file import read_pipeline_file
from headrace.roles.input_topic.recent_sizes import recent_sizes
from schemas.effects import RESULTS, waiting_topic
from schemas.records import Query
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical, topics
from tests.inner_files import TWO_TASKS, a_two_task_file
from tests.integration.brought_up import at_home, brought_up, rig_brought_up, roles_of
from tests.integration.rigs import check_one_answer_each
from tests.selection_world import TWO_MODEL_FILE, a_two_model_file
from tests.typed_files import RANK, a_typed_file

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TEXT = (
    RANK.replace("comm: 0ms\n", "")
    .replace("slo: 100ms", "slo: 2s")
    .replace("  budget: 1.2", "  budget: 1.2\n  start: {gpu: 1, slow: 2}")
)
RATE = 15.0
WITHIN_S = 90.0  # a busy machine takes 6 s to restart a role


def served_through_a_kill(rig: Rig, role: str) -> None:
    """Kill a role under load, which ``up`` restarts; check that it serves well again and that each
    query has one answer."""
    rig.offer(RATE)
    rig.until(lambda: any(map(in_time, rig.answers)), "an answer in time")
    at_s = time.time()
    os.kill(roles_of(rig)[role].pid, signal.SIGKILL)
    rig.until(lambda: rig.answers.well_since(at_s), "good answers only", WITHIN_S)
    check_one_answer_each(rig)


def test_queries_are_dispatched_and_none_is_lost_when_ingress_is_killed(
    tmp_path: Path, broker: str
) -> None:
    with rig_brought_up(broker, tmp_path, a_typed_file(tmp_path, TEXT)) as rig:
        served_through_a_kill(rig, "ingress-0")


def test_batches_of_a_central_queue_are_dispatched_and_none_is_lost_when_ingress_is_killed(
    tmp_path: Path, broker: str
) -> None:
    text = TWO_MODEL_FILE.replace(
        "slo: 100ms\ncomm: 0ms", "slo: 200ms\nresults: avro\npolicy: ramsis-central"
    )
    path = a_two_model_file(tmp_path, text.replace("name: small", "name: central"))
    payload = tmp_path / "payload"
    payload.write_bytes(b"x")
    env = at_home(tmp_path, broker)
    with brought_up(path, env):
        row, err = loaded_while_killed(path, payload, env)
    assert row["lost"] == 0, err
    assert row["answered"] > 0.4 * row["queries"]
    (newest, *_) = newest_first(KafkaConfig(broker), physical("central", RESULTS))
    answers = answers_in(filter(None, [message.value() for message in newest]), read_answer)
    hops = [hop for answer in answers for path in answer.paths for hop in path]
    assert {hop.variant for hop in hops} == {"quick", "right"}
    assert max(hop.batch for hop in hops) > 1


def loaded_while_killed(
    path: Path, payload: Path, env: dict[str, str]
) -> tuple[dict[str, float], str]:
    """Return the result of ``headrace load``; ingress is killed at the beginning of the load.

    A slow machine takes 6 s to restart the role. In that time no query is answered in time.
    """
    load = subprocess.Popen(
        [
            sys.executable, "-m", "headrace", "load", str(path), "--rate", "120", "--seconds",
            "16", "--input", str(payload), "--json",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert load.stderr is not None
    load.stderr.readline()  # the first progress line
    state = read_state(Path(env["HEADRACE_HOME"]) / "run" / "central")
    assert state is not None
    os.kill(next(each for each in state.roles if each.name == "ingress-0").pid, signal.SIGKILL)
    out, err = load.communicate(timeout=120)
    return json.loads(out), err


def waiting(rig: Rig) -> int:
    """Return the number of records on the waiting topic that no dispatcher has committed."""
    topic, group = physical(rig.name, waiting_topic("read")), f"{rig.name}.dispatchers"
    reader = consumer(rig.kafka, group)
    try:
        place = TopicPartition(topic, 0)
        (committed,) = reader.committed([place], timeout=10)
        return reader.get_watermark_offsets(place, timeout=10)[1] - max(committed.offset, 0)
    finally:
        reader.close()


def test_the_sizes_of_the_last_queries_are_read_back(tmp_path: Path, broker: str) -> None:
    pipeline = read_pipeline_file(
        a_typed_file(tmp_path, TEXT.replace("name: rank", "name: sizes-read-back"))
    ).pipeline
    kafka = KafkaConfig(broker)
    ensure_topics(kafka, topics(pipeline))
    with Asker(kafka, pipeline) as asker:
        for size in range(1, 41):
            asker.ask(Query(payload=b"x", size=size))
        asker.flush()
    assert sorted(recent_sizes(kafka, pipeline, 100)) == list(range(1, 41))
    newest = recent_sizes(kafka, pipeline, 10)
    assert len(newest) == 10
    assert set(newest) <= set(range(1, 41))


def test_no_item_is_lost_or_doubled_when_the_dispatcher_of_an_inner_task_is_killed(
    tmp_path: Path, broker: str
) -> None:
    file = a_two_task_file(tmp_path, TWO_TASKS.replace("slo: 250ms", "slo: 3s"))
    with rig_brought_up(broker, tmp_path, file) as rig:
        served_through_a_kill(rig, "dispatcher-read-0")
    assert waiting(rig) == 0
