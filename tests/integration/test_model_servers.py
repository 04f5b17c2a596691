"""Pipelines on real Kafka use a model server as their operator.

The server is real: a Headrace gateway of another pipeline.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace import Client
from headrace.client.give_command import give
from headrace.config.pipeline_file import read_pipeline_file
from streams.kafka.kafka_config import KafkaConfig
from tests.integration.brought_up import brought_up
from tests.integration.gateways import ROOT, Running, a_gateway

HOOKS = """
import json


def words(output):
    return json.loads(output)
"""

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def env(broker: str, folder: Path) -> dict[str, str]:
    return {**os.environ, "HEADRACE_HOME": str(folder), "HEADRACE_BOOTSTRAP": broker}


@pytest.fixture(scope="module")
def server(env: dict[str, str], folder: Path) -> Iterator[tuple[Path, Running]]:
    """Run a pipeline of two stages behind a gateway, which is the model server."""
    words = yaml.safe_load((ROOT / "examples/words/pipeline.yaml").read_text())
    (folder / "words.py").write_text((ROOT / "examples/words/words.py").read_text())
    (folder / "hooks.py").write_text(HOOKS)
    file = folder / "behind.yaml"
    file.write_text(yaml.safe_dump({**words, "name": "behind", "slo": "20s"}))
    with brought_up(file, env), a_gateway(file, env) as running:
        yield file, running


@pytest.fixture(scope="module")
def asking(
    server: tuple[Path, Running], env: dict[str, str], folder: Path, broker: str
) -> Iterator[Client]:
    """Yield a client of a pipeline whose only operator queries that server."""
    operator = {
        "operator": "headrace.model_servers.open_inference:OpenInference",
        "arguments": {"server": server[1].grpc, "model": "behind", "after": "hooks:words"},
        "batch": 8,
    }
    row: dict[str, Any] = {
        "name": "before", "slo": "20s", "results": "json",
        "tasks": {"ask": {"variants": {"remote": operator}}},
        "cluster": {"devices": {"cpu": 1}},
    }  # fmt: skip
    file = folder / "before.yaml"
    file.write_text(yaml.safe_dump(row))
    with brought_up(file, env), Client(broker, "before") as client:
        yield client


def test_queries_are_answered_by_the_server_with_several_in_flight(asking: Client) -> None:
    pending = [asking.submit(f"hello {n}".encode()) for n in range(40)]
    answers = [each.result() for each in pending]
    assert [answer.result for answer in answers] == [[["HELLO", str(n)]] for n in range(40)]
    assert max(hop.batch for answer in answers for path in answer.paths for hop in path) > 1


def test_a_server_that_refuses_fails_the_query_with_its_words_and_serves_again(
    asking: Client, server: tuple[Path, Running], broker: str
) -> None:
    file, kafka = read_pipeline_file(server[0]), KafkaConfig(broker)
    assert give(file, kafka, "pause", {}).ok
    try:
        answer = asking.ask(b"x")
        while answer.outcome == "answered":  # the gateway learns of the pause from the next plan
            answer = asking.ask(b"x")
        assert (answer.outcome, "UNAVAILABLE: pipeline behind is paused" in answer.reason) == (
            "failed", True,
        ), answer  # fmt: skip
    finally:
        assert give(file, kafka, "resume", {}).ok
    while (answer := asking.ask(b"again")).outcome != "answered":
        pass
    assert answer.result == [["AGAIN"]]


def test_a_server_that_stands_still_costs_a_query_its_deadline_and_nothing_more(
    asking: Client, server: tuple[Path, Running]
) -> None:
    process = server[1].process
    assert process is not None
    process.send_signal(19)  # SIGSTOP
    try:
        late = [asking.submit(f"late {n}".encode(), deadline=0.8) for n in range(5)]
        answers = [each.result() for each in late]
    finally:
        process.send_signal(18)  # SIGCONT
    assert {answer.outcome for answer in answers} == {"dropped"}, answers
    assert any("had no answer within" in answer.reason for answer in answers), answers
    assert json.dumps(asking.ask(b"in time").result) == '[["IN", "TIME"]]'
