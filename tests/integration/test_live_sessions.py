"""Sessions on a real broker: two have their own plans, a device is killed, one session closes."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.knob_operators import a_workload, an_operator
from headrace.cli.main import run
from headrace.client.formats import answer_reader, answers_in
from headrace.client.topic_clients import Asker, Tail
from headrace.cluster.run_state import read_state
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.processes import run_directory
from schemas.codec.single_object import decode
from schemas.effects import PROFILE_RESULTS, RESULTS
from schemas.records import Answer, ProfileResult, Query
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import read_to_end
from streams.topics import physical

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

MODULE = (
    "import time\n"
    + an_operator("Scan", "scale", '[value.decode() + f"@{self._scale:g}"]')
    + an_operator("Read", "votes", 'time.sleep(0.01) or value + f"x{self._votes}"')
    + a_workload("Words", 'while True: yield b"a", "x3"', "result[0].endswith(truth)")
)
YAML = """\
name: sessions-{number}
workload: session_words:Words
slo: {{latency: 10s, accuracy: 0.9}}
input: raw
results: json
policy: compass
policies:
  compass: {{kind: compass, deadline: 120s, spend: 0}}
tasks:
  scan:
    children: [read]
    tiers: [handheld]
    knobs: {{scale: [1, 0.5]}}
    variants: {{scan: {{operator: "session_words:Scan", arguments: {{scale: $scale}}}}}}
  read:
    tiers: [cloud]
    knobs: {{votes: [1, 3]}}
    variants: {{read: {{operator: "session_words:Read", arguments: {{votes: $votes}}}}}}
cluster:
  tiers:
    handheld: {{speed: 0.5, per: session, count: 2}}
    cloud: {{speed: 1, count: 2, price: 0.2}}
  links:
    handheld>cloud: {{rate: 8Mbps, delay: 10ms}}
"""


def a_plan(folder: Path, name: str, scale: float, votes: int) -> str:
    """Return the path of a query plan that uses a whole cloud device."""
    path = folder / f"{name}.json"
    stages = [["scan", "handheld"], ["read", "cloud"]]
    config = {"scan.scale": scale, "read.votes": votes}
    path.write_text(json.dumps({"stages": stages, "config": config, "shares": {"read": 0.5}}))
    return str(path)


class Sessions:
    """A running pipeline, and the answers of its sessions."""

    def __init__(self, file: PipelineFile, broker: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.file, self.broker, self._capsys = file, broker, capsys
        self.answers: list[Answer] = []
        self._asked = 0

    def headrace(self, *arguments: str) -> tuple[int, Any]:
        code = run(["session", *arguments, "--bootstrap", self.broker, "--json"])
        out = self._capsys.readouterr().out
        return code, json.loads(out) if out else None

    def ask(self, seconds: float, *sessions: str) -> list[Answer]:
        """Send twenty queries a second to each session; return all of their answers."""
        kafka, pipeline = KafkaConfig(self.broker), self.file.pipeline
        found: dict[str, Answer] = {}
        with (
            closing(Tail(kafka, physical(pipeline.name, RESULTS))) as tail,
            Asker(kafka, pipeline) as asker,
        ):
            ids = []
            for _ in range(int(seconds * 20)):
                for session in sessions:
                    self._asked += 1
                    ids.append(f"{session}-{self._asked}")
                    asker.ask(Query(payload=b"a", id=ids[-1], session=session))
                for answer in answers_in(tail.take(0.05), answer_reader(pipeline)):
                    found[answer.id] = answer
            until = time.monotonic() + 20.0
            while len(found) < len(ids) and time.monotonic() < until:
                for answer in answers_in(tail.take(0.1), answer_reader(pipeline)):
                    found[answer.id] = answer
        assert sorted(found) == sorted(ids)
        return list(found.values())

    def served(self, *sessions: str) -> list[Answer]:
        """Return ``answered``, and check that each session follows its plan."""
        answers = self.answered(*sessions)
        by_their_plans(answers)
        return answers

    def answered(self, *sessions: str) -> list[Answer]:
        """Send queries until a whole second of them is answered; return their answers.

        On a busy machine a worker may briefly count as lost.
        """
        until = time.monotonic() + 60.0
        while True:
            answers = self.ask(1.0, *sessions)
            if {each.outcome for each in answers} == {"answered"}:
                return answers
            assert time.monotonic() < until, {(x.outcome, x.reason) for x in answers}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + 60.0
        while not holds():
            assert time.monotonic() < until, f"waited in vain until {what}"

    def state(self, session: str) -> str:
        _, rows = self.headrace("list", str(self.file.path))
        return next((row["state"] for row in rows if row["session"] == session), "")


@contextmanager
def planned(broker: str, folder: Path) -> Iterator[PipelineFile]:
    """Run the pipeline with a name of its own."""
    (folder / "session_words.py").write_text(MODULE)
    path = folder / "planned.yaml"
    path.write_text(YAML.format(number=uuid.uuid4().hex[:8]))
    up = [sys.executable, "-m", "headrace", "up", str(path), "--bootstrap", broker, "--detach"]
    try:
        subprocess.run(up, check=True, timeout=120)
        yield read_pipeline_file(path)
    finally:
        down = [sys.executable, "-m", "headrace", "down", str(path)]
        subprocess.run(down, check=False, timeout=60)


@pytest.fixture(scope="module")
def running(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelineFile]:
    with planned(broker, tmp_path_factory.mktemp("sessions")) as file:
        yield file


@pytest.fixture
def sessions(running: PipelineFile, broker: str, capsys: pytest.CaptureFixture[str]) -> Sessions:
    """Return the sessions of a pipeline that tests share, each with sessions of other names."""
    return Sessions(running, broker, capsys)


@pytest.fixture
def fresh(broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Sessions]:
    """Run a pipeline of which nothing is profiled yet."""
    with planned(broker, tmp_path) as file:
        yield Sessions(file, broker, capsys)


def kill(sessions: Sessions, role: str) -> None:
    """Kill the process of a role, which `up` restarts."""
    state = read_state(run_directory(sessions.file.pipeline.name))
    assert state is not None
    (process,) = [each for each in state.roles if each.name == role]
    os.kill(process.pid, 9)


def results(sessions: Sessions) -> list[ProfileResult]:
    topic = physical(sessions.file.pipeline.name, PROFILE_RESULTS)
    messages = read_to_end(KafkaConfig(sessions.broker), topic)
    found = [decode(message.value()) for message in messages]
    return [each for each in found if isinstance(each, ProfileResult) and each.scores]


def blocks(sessions: Sessions) -> dict[tuple[str, int], set[float]]:
    """Return when each profiled block was finished, by configuration and first sample."""
    found: dict[tuple[str, int], set[float]] = {}
    for each in results(sessions):
        block = str(sorted(each.options.items())), each.first
        found.setdefault(block, set()).add(each.finished_s)
    return found


@pytest.mark.parametrize(
    "role",
    [
        "control",
        pytest.param("profiler-0", marks=pytest.mark.slow),
        pytest.param("cloud-0", marks=pytest.mark.slow),
    ],
)
def test_a_session_is_planned_through_a_kill(fresh: Sessions, role: str) -> None:
    path = str(fresh.file.path)
    assert fresh.headrace("open", path, "one")[0] == 0
    fresh.until(lambda: bool(results(fresh)), "a block is profiled")
    kill(fresh, role)  # on a quiet machine all blocks may be done, but no plan is in force
    fresh.until(lambda: fresh.state("one") == "serving", "it serves")

    _, shown = fresh.headrace("show", path, "one")
    assert shown["plan"]["settings"]["read"] == "read/read@votes=3"
    assert shown["plan"]["accuracy"] == 1.0
    assert shown["search"]["steps"] >= 1
    assert shown["search"]["stopped"] == "space"
    # A finished block may be written again, but never runs again.
    assert all(len(times) == 1 for times in blocks(fresh).values())

    found = fresh.answered("one")
    assert {x.outcome for x in found} == {"answered"}
    assert {str(x.result) for x in found} == {f"['a@{float(shown_scale(shown)):g}x3']"}
    assert fresh.headrace("close", path, "one")[0] == 0


def shown_scale(shown: Any) -> str:
    return str(shown["plan"]["settings"]["scan"].partition("scale=")[2])


def settings(answers: list[Answer]) -> set[tuple[str, ...]]:
    return {tuple(hop.key for hop in path) for each in answers for path in each.paths}


EXPECTED = {
    "one": {("scan/scan@scale=1", "read/read@votes=1")},
    "two": {("scan/scan@scale=0.5", "read/read@votes=3")},
}


def opened(sessions: Sessions, folder: Path) -> None:
    path = str(sessions.file.path)
    for name, scale, votes in (("one", 1, 1), ("two", 0.5, 3)):
        plan = a_plan(folder, name, scale, votes)
        code, row = sessions.headrace("open", path, name, "--plan", plan, "--wait", "60s")
        assert (code, row["state"]) == (0, "serving")
    assert sessions.headrace("open", path, "one", "--plan", plan)[0] == 1


def by_their_plans(answers: list[Answer]) -> None:
    answered = [each for each in answers if each.outcome == "answered"]
    for name, expected in EXPECTED.items():
        assert settings([each for each in answered if each.session == name]) <= expected


def killed_cloud_device(sessions: Sessions, answers: list[Answer]) -> None:
    """Kill the process of a device that has served queries."""
    used = {hop.worker for each in answers for path in each.paths for hop in path}
    victim = min(worker for worker in used if worker.startswith("cloud"))
    kill(sessions, victim.removesuffix("-read"))


def test_two_sessions_follow_their_own_plans_through_a_kill_and_a_close(
    sessions: Sessions, tmp_path: Path
) -> None:
    opened(sessions, tmp_path)
    answers = sessions.served("one", "two")
    assert {str(each.result) for each in answers if each.session == "two"} == {"['a@0.5x3']"}

    killed_cloud_device(sessions, answers)
    by_their_plans(sessions.ask(4.0, "one", "two"))
    sessions.served("one", "two")

    assert sessions.headrace("close", str(sessions.file.path), "one")[0] == 0
    sessions.until(lambda: sessions.state("one") != "serving", "one closes")
    assert {each.outcome for each in sessions.ask(1.0, "one")} == {"refused"}
    sessions.served("two")
    assert sessions.headrace("close", str(sessions.file.path), "two")[0] == 0


def test_sessions_serve_through_kills_of_control_and_profiler(sessions: Sessions) -> None:
    path = str(sessions.file.path)
    assert sessions.headrace("open", path, "three", "--wait", "120s")[0] == 0
    sessions.answered("three")
    _, shown = sessions.headrace("show", path, "three")
    profiled = blocks(sessions)
    sign = run_directory(sessions.file.pipeline.name) / "profiler-0.alive"
    sessions.until(sign.exists, "the profiler gives a sign of life")
    for role in ("control", "profiler-0"):
        kill(sessions, role)
        found = sessions.ask(4.0, "three")  # each has exactly one outcome
        answers = [each for each in found if each.outcome == "answered"]
        assert {str(x.result) for x in answers} == {f"['a@{float(shown_scale(shown)):g}x3']"}

    # The profiles of the killed roles suffice to plan a second session with the same objectives.
    assert sessions.headrace("open", path, "four", "--wait", "120s")[0] == 0
    sessions.answered("three", "four")
    _, again = sessions.headrace("show", path, "three")
    assert again["plan"] == shown["plan"]
    assert again["search"] == shown["search"]
    assert again["replanned"] is None
    assert blocks(sessions) == profiled
