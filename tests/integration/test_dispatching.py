"""Queries of unlike size on unlike devices, over a real Kafka."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.client.topic_clients import Asker
from headrace.cluster.run_state import read_state
from headrace.cluster.supervisor import environment
from headrace.config.pipeline_file import read_pipeline_file
from headrace.roles.recent_sizes import recent_sizes
from schemas.records import Query
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_admin import ensure_topics
from streams.topics import topics
from tests.integration.brought_up import brought_up
from tests.typed_files import RANK, a_typed_file

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TEXT = (
    RANK.replace("comm: 0ms\n", "")
    .replace("slo: 100ms", "slo: 2s")
    .replace("  budget: 1.2", "  budget: 1.2\n  start: {gpu: 1, slow: 2}")
)


def test_queries_are_dispatched_and_none_is_lost_when_ingress_is_killed(
    tmp_path: Path, broker: str
) -> None:
    path = a_typed_file(tmp_path, TEXT)
    payload = tmp_path / "payload"
    payload.write_bytes(b"x")
    env = environment(os.environ, None) | {
        "HEADRACE_HOME": str(tmp_path), "HEADRACE_BOOTSTRAP": broker,
    }  # fmt: skip
    with brought_up(path, env):
        load = subprocess.Popen(
            [
                sys.executable, "-m", "headrace", "load", str(path), "--rate", "15", "--seconds",
                "8", "--input", str(payload), "--json",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        assert load.stderr is not None
        load.stderr.readline()  # the first word of what was sent
        state = read_state(tmp_path / "run" / "rank")
        assert state is not None
        ingress = next(role for role in state.roles if role.name == "ingress-0")
        os.kill(ingress.pid, signal.SIGKILL)
        out, err = load.communicate(timeout=120)
    row = json.loads(out)
    assert row["lost"] == 0, err
    assert row["answered"] > 0.5 * row["queries"]


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
