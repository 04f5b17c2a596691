"""Pipelines on Kafka in which a real model server is the operator of a task."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace import Client
from schemas.records import Answer
from tests.integration.brought_up import brought_up
from tests.interop.servers import STARTS_WITHIN_S, a_transformers, a_triton, end, free_ports

HOOKS = """
def words(output):
    return output.split()


class Length:
    def load(self, device):
        pass

    def predict(self, batch):
        return [{"word": word.decode(), "length": len(word)} for word in batch]
"""
AT_ONCE = 8  # concurrent requests of a worker
WAIT_S = 120.0

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@contextmanager
def a_pipeline(name: str, tasks: dict[str, Any], folder: Path, broker: str) -> Iterator[Client]:
    """Run a pipeline with those tasks; yield a client of it."""
    (folder / "hooks.py").write_text(HOOKS)
    file = folder / f"{name}.yaml"
    row = {
        "name": name, "slo": f"{WAIT_S:g}s", "results": "json", "tasks": tasks,
        "cluster": {"devices": {"cpu": len(tasks)}},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(row))
    env = {**os.environ, "HEADRACE_HOME": str(folder), "HEADRACE_BOOTSTRAP": broker}
    with brought_up(file, env), Client(broker, name) as client:
        yield client


def asking(operator: str, **arguments: Any) -> dict[str, Any]:
    """Return the variants of a task whose operator queries a server."""
    arguments["ready_within_s"] = STARTS_WITHIN_S
    named = f"headrace.model_servers.{operator}"
    return {"server": {"operator": named, "arguments": arguments, "batch": AT_ONCE}}


def lengths(answer: Answer) -> dict[str, int]:
    """Return the words of an answer with their lengths."""
    return {leaf["word"]: leaf["length"] for leaf in answer.result}


# -------------------------------------------------------- Triton, then a task of Headrace


@pytest.fixture(scope="module")
def ports() -> list[int]:
    return free_ports(3)


@pytest.fixture(scope="module")
def servers(ports: list[int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Run Triton; if a test kills it, the test starts another one on the same ports."""
    with ExitStack() as stack:
        yield [stack.enter_context(a_triton(tmp_path_factory.mktemp("triton"), ports)), stack]


@pytest.fixture(scope="module")
def shouting(
    servers: list[Any], ports: list[int], tmp_path_factory: pytest.TempPathFactory, broker: str
) -> Iterator[Client]:
    """Yield a client of a pipeline in which Triton upper-cases texts and a Headrace task measures
    the words."""
    shout = asking(
        "open_inference:OpenInference", server=f"127.0.0.1:{ports[1]}", model="shouting",
        batch_axis=True, after="hooks:words",
    )  # fmt: skip
    tasks = {
        "shout": {"children": ["measure"], "variants": shout},
        "measure": {"variants": {"plain": {"operator": "hooks:Length"}}},
    }
    with a_pipeline("shouting", tasks, tmp_path_factory.mktemp("shouting"), broker) as client:
        yield client


def test_triton_answers_in_the_middle_of_a_pipeline(shouting: Client) -> None:
    pending = [shouting.submit(f"hello number{n}".encode()) for n in range(40)]
    answers = [each.result() for each in pending]
    assert {answer.outcome for answer in answers} == {"answered"}
    assert [lengths(answer) for answer in answers] == [
        {"HELLO": 5, f"NUMBER{n}": len(f"NUMBER{n}")} for n in range(40)
    ]


def test_a_query_is_dropped_where_triton_takes_longer_than_its_deadline(shouting: Client) -> None:
    answer = shouting.ask(b"sleep", deadline=0.5)  # Triton takes 1 s
    assert (answer.outcome, answer.task) == ("dropped", "shout"), answer
    assert lengths(shouting.ask(b"in time")) == {"IN": 2, "TIME": 4}


def test_every_query_ends_after_triton_is_killed_and_a_restarted_triton_is_used_again(
    shouting: Client, servers: list[Any], ports: list[int], tmp_path: Path
) -> None:
    killed, stack = servers
    pending = [shouting.submit(b"sleep", timeout=WAIT_S) for _ in range(4 * AT_ONCE)]
    first = pending[0].result()  # of the first requests; the next are in flight
    end(killed, signal.SIGKILL)
    answers = [first, *(each.result() for each in pending[1:])]
    assert {answer.outcome for answer in answers} == {"answered", "failed"}, answers
    failed = [answer for answer in answers if answer.outcome == "failed"]
    assert all("UNAVAILABLE" in answer.reason for answer in failed), failed
    stack.enter_context(a_triton(tmp_path, ports))
    while (answer := shouting.ask(b"back again")).outcome != "answered":
        pass
    assert lengths(answer) == {"BACK": 4, "AGAIN": 5}


# ---------------------------------------------------------------------- transformers serve


def test_transformers_answers_in_a_pipeline_and_its_death_fails_the_queries_in_flight(
    tmp_path: Path, broker: str
) -> None:
    (port,) = free_ports(1)
    with a_transformers(tmp_path, port) as (process, model):
        url = f"http://127.0.0.1:{port}/v1"
        write = asking("openai:OpenAi", url=url, model=model, max_tokens=100)
        tasks = {"write": {"variants": write}}
        with a_pipeline("writing", tasks, tmp_path, broker) as client:
            (text,) = client.ask(b"hello", timeout=WAIT_S).result
            assert isinstance(text, str)
            late = client.ask(b"a long story", deadline=0.1)
            assert (late.outcome, late.task) == ("dropped", "write"), late
            stories = [f"story {n}".encode() for n in range(8 * AT_ONCE)]
            pending = [client.submit(story, timeout=WAIT_S) for story in stories]
            first = pending[0].result()
            end(process, signal.SIGKILL)
            answers = [first, *(each.result() for each in pending[1:])]
    assert {answer.outcome for answer in answers} == {"answered", "failed"}, answers
