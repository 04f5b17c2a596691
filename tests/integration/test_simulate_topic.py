"""``headrace simulate --from-topic`` replays the arrivals of a real topic under another policy."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from benchmarks.small_cluster import a_cluster
from headrace.cli.main import run
from headrace.client.topic_clients import new_id
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import Topic

pytestmark = pytest.mark.kafka

START_MS = 1_780_000_000_000


def test_recorded_arrivals_are_replayed_under_any_policy(
    broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, file = new_id("queries"), a_cluster(tmp_path)
    # The stamps lie in the past; without this setting the broker's retention deletes the records.
    ensure_topics(KafkaConfig(broker), [Topic(topic, 4, {"retention.ms": "-1"})])
    producer = Producer({"bootstrap.servers": broker})
    for number in range(200):
        stamp = START_MS + 20 * number
        producer.produce(topic, b"x", partition=number % 4, timestamp=stamp)
    producer.flush()
    times = tmp_path / "arrivals.txt"
    times.write_text("".join(f"{20 * number}\n" for number in range(200)))

    def figures(*arrivals: str) -> list[dict[str, object]]:
        command = ["simulate", str(file), *arrivals, "--policy", "fast", "--json"]
        assert run(command) == 0
        rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
        return [{k: v for k, v in row.items() if "cpu" not in k} for row in rows]

    recorded = figures("--from-topic", topic, "--bootstrap", broker)
    assert recorded == figures("--arrivals", str(times))
    assert recorded[0]["queries"] == 200


def test_a_missing_topic_is_reported(
    broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_cluster(tmp_path)
    gone = ["--from-topic", new_id("gone"), "--bootstrap", broker]
    assert run(["simulate", str(file), *gone]) == 2
    assert "name the input topic, PIPELINE.queries" in capsys.readouterr().err
