"""A user runs ``init``, ``doctor``, ``explain`` and ``dead-letters`` on a real broker."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace import Client
from headrace.client.topic_clients import new_id
from streams.kafka.admin.topic_admin import ensure_topics, partitions
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import Topic
from tests.integration.brought_up import brought_up

ROOT = Path(__file__).parents[2]
REVIEW = b"The food was not bad. The view was great. The room was awful."

pytestmark = pytest.mark.kafka


class Terminal:
    """Run commands on one pipeline file."""

    def __init__(self, file: Path, broker: str, home: Path) -> None:
        self.file, self.broker = file, broker
        self.name = file.parent.name
        self.env = {**os.environ, "HEADRACE_HOME": str(home), "HEADRACE_BOOTSTRAP": broker}

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *arguments],
            input=stdin, capture_output=True, text=True, env=self.env, cwd=ROOT, timeout=120,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def json(self, *arguments: str, stdin: str = "") -> object:
        code, out, err = self.run(*arguments, "--json", stdin=stdin)
        assert code == 0, err
        return json.loads(out)


@pytest.fixture(scope="module")
def starter(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Run the pipeline that ``init`` wrote."""
    folder = tmp_path_factory.mktemp("init") / new_id("reviews")
    terminal = Terminal(folder / "pipeline.yaml", broker, tmp_path_factory.mktemp("home"))
    assert terminal.run("init", str(folder))[0] == 0
    with brought_up(terminal.file, terminal.env):
        yield terminal


def test_the_starter_answers_a_query_and_a_load(starter: Terminal) -> None:
    file = str(starter.file)
    assert starter.run("validate", file)[0] == 0
    answer = starter.json("send", file, "-", "--deadline", "20s", stdin=REVIEW.decode())
    assert (answer["outcome"], answer["result"]) == ("answered", "good")  # type: ignore[index]
    load = starter.json("load", file, "--rate", "20", "--seconds", "2", "--deadline", "20s")
    assert load["answered"] == load["queries"] > 0  # type: ignore[index]
    assert load["accuracy"] == 1.0  # type: ignore[index]


def test_report_covers_queries_that_have_ended(starter: Terminal, tmp_path: Path) -> None:
    file, page = str(starter.file), tmp_path / "report.html"
    sent = starter.json("load", file, "--rate", "20", "--seconds", "1", "--deadline", "20s")
    told = starter.json("report", file, "--last", "300s", "--html", str(page))
    assert told["answered"] == told["queries"] >= sent["queries"] > 0  # type: ignore[index]
    assert [each["policy"] for each in told["policies"]] == ["accurate"]  # type: ignore[index]
    assert page.read_text().count("<svg") == 5
    code, out, _ = starter.run("report", file, "--last", "300s")
    assert (code, f"queries of {starter.name}" in out) == (0, True)


def test_a_query_is_explained_by_id_and_by_place(starter: Terminal) -> None:
    with Client(starter.broker, starter.name) as client:
        answer = client.ask(REVIEW, id="explained", deadline=20.0)
    place = f"{answer.origin.partition}-{answer.origin.offset}"
    by_id = starter.json("explain", str(starter.file), "explained")
    assert by_id == starter.json("explain", str(starter.file), place)
    stages = [(s["task"], s["variant"], s["branches"]) for s in by_id["stages"]]  # type: ignore[index]
    assert stages == [("split", "sentences", 3), ("judge", "phrases", 3)]
    code, out, _ = starter.run("explain", str(starter.file), "explained")
    assert (code, out.splitlines()[2]) == (0, 'result: "good"')
    batch = r"judge/phrases on cpu-\d, plan \d+, a batch of 3 \(idle\), for 3 branches\n"
    assert re.search(batch, out)


def test_the_newest_answer_of_an_id_is_the_one_explained(starter: Terminal) -> None:
    with Client(starter.broker, starter.name) as client:
        for text in (b"The food was awful.", b"The food was great."):
            client.ask(text, id="twice", deadline=20.0)
    told = starter.json("explain", str(starter.file), "twice")
    assert told["answer"]["result"] == "good"  # type: ignore[index]


def test_without_an_id_the_newest_answer_of_an_outcome_is_explained(starter: Terminal) -> None:
    with Client(starter.broker, starter.name) as client:
        client.ask(b"The food was great.", id="nearly-last", deadline=20.0)
        client.ask(b"The food was great.", id="last", slo_class="gold")
    for options, name in ((), "last"), (("--last", "answered"), "nearly-last"):
        told = starter.json("explain", str(starter.file), *options)
        assert told["answer"]["id"] == name  # type: ignore[index]


def test_an_unknown_id_is_reported_in_one_sentence(starter: Terminal) -> None:
    code, out, err = starter.run("explain", str(starter.file), "nobody")
    assert (code, out) == (1, "")
    assert "headrace: no answer to 'nobody' is among the" in err


def test_doctor_finds_nothing_wrong_with_what_init_wrote(starter: Terminal) -> None:
    before = partitions(KafkaConfig(starter.broker))
    told = starter.json("doctor", str(starter.file))
    states = {finding["what"]: finding["state"] for finding in told["findings"]}  # type: ignore[index]
    assert told["ok"] is True  # type: ignore[index]
    broker_side = ("pipeline file", "broker", "clock", "topics", "permissions")
    assert [states[what] for what in broker_side] == ["ok"] * 5
    assert partitions(KafkaConfig(starter.broker)).keys() == before.keys()


def test_doctor_tells_topics_with_too_few_partitions(starter: Terminal, tmp_path: Path) -> None:
    name = new_id("narrow")
    assert starter.run("init", str(tmp_path / name))[0] == 0
    ensure_topics(KafkaConfig(starter.broker), (Topic(f"{name}.queries", 1),))
    code, out, _ = starter.run("doctor", str(tmp_path / name / "pipeline.yaml"), "--json")
    findings = {finding["what"]: finding for finding in json.loads(out)["findings"]}
    narrow = findings["topic"]
    assert (code, narrow["state"]) == (1, "wrong")
    assert narrow["found"] == f"topic '{name}.queries' has 1 partition, 4 are needed"
    assert findings["topics"]["state"] == "warn"


def test_a_dead_letter_is_listed_shown_and_replayed(starter: Terminal, tmp_path: Path) -> None:
    file, name = str(starter.file), new_id("bad")
    headers = [("headrace-id", name.encode()), ("headrace-deadline-ms", b"soon")]
    producer = Producer({"bootstrap.servers": starter.broker})
    with Client(starter.broker, starter.name) as client:
        producer.produce(f"{starter.name}.queries", b"\xffabc", headers=headers)
        producer.flush()
        # An answer to a later query shows that the letter has been written.
        while not (letters := starter.json("dead-letters", "list", file, "--last", "1")):
            client.ask(REVIEW, deadline=20.0)
    (letter,) = letters  # type: ignore[misc]
    assert (letter["topic"], letter["bytes"], letter["headers"]["headrace-id"]) == (
        "queries", 4, name,
    )  # fmt: skip

    saved = tmp_path / "letter.bin"
    code, out, _ = starter.run("dead-letters", "show", file, letter["letter"], "--out", str(saved))
    assert (code, saved.read_bytes()) == (0, b"\xffabc")
    assert "  0000  ff 61 62 63 " in out

    code, out, err = starter.run("dead-letters", "replay", file, letter["letter"])
    assert (code, out) == (1, "")
    assert "nothing was replayed" in err
    (replayed,) = starter.json("dead-letters", "replay", file, letter["letter"], "--yes")  # type: ignore[misc]
    assert replayed == {
        "letter": letter["letter"], "topic": f"{starter.name}.queries", "query": name,
    }  # fmt: skip
    assert len(_letters_of(starter, name, at_least=2)) == 2  # it is still invalid


def _letters_of(terminal: Terminal, name: str, at_least: int) -> list[object]:
    with Client(terminal.broker, terminal.name) as client:
        for _ in range(50):
            every = terminal.json("dead-letters", "list", str(terminal.file))
            found = [e for e in every if e["headers"].get("headrace-id") == name]  # type: ignore[attr-defined]
            if len(found) >= at_least:
                return found
            client.ask(REVIEW, deadline=20.0)
    raise AssertionError(f"{at_least} letters of {name} were wanted")


def test_a_missing_letter_is_reported_in_one_sentence(starter: Terminal) -> None:
    code, out, err = starter.run("dead-letters", "show", str(starter.file), "0-999")
    assert (code, out) == (1, "")
    assert err.startswith("headrace: no letter 0-999 is on ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_get_their_script(shell: str, starter: Terminal) -> None:
    code, out, _ = starter.run("completion", shell)
    assert code == 0
    assert f"_HEADRACE_COMPLETE={shell}_complete" in out
