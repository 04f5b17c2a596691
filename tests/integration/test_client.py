"""Clients of a running pipeline: ``headrace.Client``, and the examples in ``examples/clients``."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from headrace import Client, ClientClosed, NoAnswer
from headrace.client import topic_clients
from headrace.client.topic_clients import Tail, new_id
from schemas.records import Answer
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import admin, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import Topic
from tests.integration.brought_up import brought_up

ROOT = Path(__file__).parents[2]
WORDS = ROOT / "examples" / "words" / "pipeline.yaml"
EXAMPLES = ROOT / "examples" / "clients"
AMPLE_S = 20.0  # a deadline that a busy machine can meet

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def words(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the words pipeline; yield the broker's address."""
    home = str(tmp_path_factory.mktemp("words"))
    env = {**os.environ, "HEADRACE_HOME": home, "HEADRACE_BOOTSTRAP": broker}
    with brought_up(WORDS, env):
        yield broker


@pytest.fixture
def client(words: str) -> Iterator[Client]:
    with Client(words, "words") as opened:
        yield opened


def test_a_query_is_answered(client: Client) -> None:
    began = time.time()
    answer = client.ask(b"hello world", deadline=AMPLE_S, id=(name := new_id("test")))
    assert (answer.id, answer.outcome, answer.result) == (name, "answered", ["HELLO", "WORLD"])
    assert answer.deadline_s - AMPLE_S == pytest.approx(began, abs=1.0)


def test_many_in_flight_each_get_their_own_answer(client: Client) -> None:
    futures = [client.submit(f"w{n}".encode(), deadline=AMPLE_S) for n in range(1_000)]
    results = [future.result().result for future in futures]
    assert results == [[f"W{n}"] for n in range(1_000)]


def test_an_event_loop_asks_many_at_once_and_is_not_blocked(client: Client) -> None:
    async def asked() -> tuple[list[Answer], int]:
        turns = 0

        async def counting() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        other = asyncio.create_task(counting())
        texts = (f"w{n}".encode() for n in range(200))
        answers = await asyncio.gather(*(client.ask_async(t, deadline=AMPLE_S) for t in texts))
        other.cancel()
        return answers, turns

    answers, turns = asyncio.run(asked())
    assert [answer.result for answer in answers] == [[f"W{n}"] for n in range(200)]
    assert turns > 1


def test_two_clients_do_not_get_each_others_answers(words: str, client: Client) -> None:
    with Client(words, "words") as other:
        asked = [
            (text, asking.submit(text, deadline=AMPLE_S))
            for n in range(100)
            for asking, text in ((client, f"a{n}".encode()), (other, f"b{n}".encode()))
        ]
        assert [f.result().result for _, f in asked] == [[t.decode().upper()] for t, _ in asked]


def test_a_refusal_is_an_answer_too(client: Client) -> None:
    answer = client.ask(b"hello", slo_class="gold")
    assert (answer.outcome, "SLO class 'gold' is unknown" in answer.reason) == ("refused", True)


@pytest.fixture
def silent(broker: str) -> str:
    """Create the topics of a pipeline that has no processes."""
    name = new_id("silent")
    topics = (Topic(f"{name}.{each}", 2) for each in ("queries", "results"))
    ensure_topics(KafkaConfig(broker), topics)
    return name


def test_a_timeout_says_what_to_check(broker: str, silent: str) -> None:
    with Client(broker, silent) as client, pytest.raises(NoAnswer, match=r"within 0\.2 s; check"):
        client.ask(b"hello", id="q", timeout=0.2)


def test_answers_in_partitions_that_are_added_are_read(
    broker: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_clients, "COUNT_S", 0.1)
    kafka, topic = KafkaConfig(broker), f"{silent}.results"
    with closing(Tail(kafka, topic)) as tail, closing(producer(kafka)) as sender:
        altering = admin(kafka)
        altering.create_partitions([NewPartitions(topic, 3)])[topic].result(AMPLE_S)
        for partition in range(3):
            sender.produce(topic, str(partition).encode(), partition=partition)
        found: list[bytes] = []
        until = time.monotonic() + AMPLE_S
        while len(found) < 3 and time.monotonic() < until:
            found += tail.take(0.1)
        assert sorted(found) == [b"0", b"1", b"2"]


def test_closing_ends_pending_queries_and_refuses_new_ones(broker: str, silent: str) -> None:
    client = Client(broker, silent)
    futures: list[Future[Answer]] = [client.submit(b"hello") for _ in range(10)]
    client.close()
    client.close()
    assert not wait(futures, timeout=0).not_done
    for future in futures:
        with pytest.raises(ClientClosed, match="open another one"):
            future.result()
    with pytest.raises(ClientClosed):
        client.ask(b"hello")


def test_a_raw_topic_takes_bytes_and_nothing_else(broker: str, silent: str) -> None:
    with Client(broker, silent) as client, pytest.raises(TypeError, match="takes bytes; encode it"):
        client.ask("hello")


def test_an_id_that_ingress_refuses_is_refused_at_once(client: Client) -> None:
    with pytest.raises(ValueError, match="without control characters"):
        client.ask(b"text", id="\x01")


def test_opening_a_client_of_an_unknown_pipeline_fails(broker: str) -> None:
    with pytest.raises(BrokerError, match=r"'nobody\.results' is not on the broker; run `headrace"):
        Client(broker, "nobody")


def test_opening_a_client_without_a_broker_fails() -> None:
    with pytest.raises(BrokerError, match="no Kafka broker answers"):
        Client("127.0.0.1:1", "words")


# ---------------------------------------------------------------------- examples/clients


def printed(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["plain.py", "faust_app.py"])
def test_the_examples_in_python_get_their_answer(name: str, words: str) -> None:
    out = printed(sys.executable, EXAMPLES / name, words, "hello world")
    assert out == "answered ['HELLO', 'WORLD']\n"


def test_the_example_of_the_client_gets_all_its_answers(words: str) -> None:
    out = printed(sys.executable, EXAMPLES / "ask.py", words, "hello world")
    assert out == "answered ['HELLO', 'WORLD']\n100 answered\n[['H'], ['W']]\n"


def test_the_example_in_kcat_gets_its_answer(words: str) -> None:
    assert shutil.which("kcat"), "kcat is not installed; run `make kcat`, which says how to get it"
    out = printed("sh", EXAMPLES / "kcat.sh", words, "hello world")
    assert '"outcome":"answered"' in out
    assert '"result":["HELLO","WORLD"]' in out


def test_every_example_is_run_here() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert there == {"ask.py", "faust_app.py", "kcat.sh", "plain.py"}
