"""Two pipelines on one broker have separate queries, plans, commands and faults.

They come from the same file and differ only in name, so tasks, workers and even queries have the
same names in both.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.received_answers import ends
from benchmarks.rig import WAIT_S, Rig, Stuck
from benchmarks.squares import right
from headrace.cluster.run_state import read_state
from headrace.machine import cores
from headrace.processes import Process, environment
from schemas.codec.single_object import encode
from schemas.effects import COMMANDS
from schemas.records import ANSWERED, REFUSED, Command
from streams.kafka.kafka_client import producer
from streams.topics import physical

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
OPERATORS = "benchmarks.squares"
RATE = 20.0
PIPELINE = {
    "slo": "2s",
    "combine": f"{OPERATORS}:total",
    "grace": "500ms",
    "results": "avro",
    "tasks": {
        "split": {
            "slots": 4,
            "children": ["square"],
            "variants": {"plain": {"operator": f"{OPERATORS}:Split", "batch": 8, "replicas": 1}},
        },
        "square": {
            "slots": 4,
            "variants": {"plain": {"operator": f"{OPERATORS}:Square", "batch": 8, "replicas": 1}},
        },
    },
    "cluster": {"devices": {"cpu": 2}, "share": 0.5},
}


class Pair:
    """Two rigs whose time passes together."""

    def __init__(self, one: Rig, other: Rig) -> None:
        self.rigs = (one, other)

    def until(self, holds: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
        end_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > end_s:
                raise Stuck(f"waited {within_s:g} s for {what}")
            for rig in self.rigs:
                rig.step()

    def pass_time(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end_s, "time to pass", seconds + WAIT_S)

    def serve(self) -> bool:
        return all(rig.serves() for rig in self.rigs)

    def settle(self) -> None:
        for rig in self.rigs:
            rig.offer(0)
        self.until(lambda: not any(rig.waiting for rig in self.rigs), "an answer to every query")
        self.pass_time(0.5)  # for possible second answers


@pytest.fixture(scope="module")
def running(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    one, other = (Rig(broker, tmp_path_factory.mktemp(name), PIPELINE) for name in ("one", "other"))
    pair = Pair(one, other)
    try:
        for rig in pair.rigs:
            rig.start(*rig.roles)
        pair.until(pair.serve, "both to serve", 2 * WAIT_S)
        yield pair
    finally:
        one.close()
        other.close()


@pytest.fixture
def pair(running: Pair) -> Iterator[Pair]:
    """Yield both pipelines complete and under load; afterwards check that each query has one right
    answer."""
    running.until(running.serve, "both to serve")
    for rig in running.rigs:
        rig.offer(RATE)
    running.pass_time(1)
    yield running
    running.settle()
    for rig in running.rigs:
        rig.answers.check_single()
        assert {a.id: a.origin for a in rig.answers} == {n: q.origin for n, q in rig.asked.items()}
        assert {a.id for a in rig.answers if a.outcome == ANSWERED and not a.incomplete} == {
            a.id for a in rig.answers if a.result == right(int(rig.asked[a.id].payload))
        }
        print(f"\n{rig.name}: {ends(rig.answers)}")


def lives(rig: Rig) -> dict[str, float]:
    """Return the start of each node's process, which changes with a restart."""
    return {name: report.incarnation for name, report in rig.reports.items()}


def test_queries_of_one_name_are_answered_by_the_pipeline_that_was_asked(pair: Pair) -> None:
    one, other = pair.rigs
    for number in range(20):
        one.ask(b"%d" % number, name=f"same-{number}")
        other.ask(b"%d" % (number + 100), name=f"same-{number}")
    pair.until(lambda: not any("same-19" in rig.waiting for rig in pair.rigs), "the answers")


def test_a_command_to_one_pipeline_does_not_affect_the_other(pair: Pair) -> None:
    one, other = pair.rigs
    epoch, since_s = other.plan.epoch, time.time()
    assert one.command("pause").ok
    pair.pass_time(0.5)
    assert one.command("resume").ok
    pair.pass_time(0.5)
    assert {a.outcome for a in one.answers.since(since_s)} == {ANSWERED, REFUSED}
    assert {a.outcome for a in other.answers.since(since_s)} == {ANSWERED}
    assert (other.plan.epoch, other.results) == (epoch, [])


def test_a_command_that_names_no_pipeline_is_refused_by_each(pair: Pair) -> None:
    command = Command(id=f"nameless-{time.time()}", pipeline="", action="pause")
    give(pair.rigs[0], command)
    answered = [lambda rig=rig: of(rig, command.id) for rig in pair.rigs]
    pair.until(lambda: all(each() for each in answered), "two refusals")
    for rig in pair.rigs:
        (result,) = of(rig, command.id)
        assert not result.ok
        assert "names no pipeline" in result.message
        assert not rig.plan.settings.paused


def test_a_worker_that_dies_is_missed_by_its_own_pipeline_only(pair: Pair) -> None:
    one, other = pair.rigs
    epoch, before, since_s = other.plan.epoch, lives(other), time.time()
    first = one.plan.epoch
    one.kill("cpu-0")
    pair.until(lambda: one.plan.epoch > first, "a plan without it")
    one.start("cpu-0")
    pair.until(one.serves, "it to be back")
    pair.pass_time(0.5)
    assert (other.plan.epoch, lives(other)) == (epoch, before)
    assert {a.outcome for a in other.answers.since(since_s)} == {ANSWERED}


def test_restarted_control_apps_restore_their_own_state(pair: Pair) -> None:
    name = f"both-{time.time()}"
    for rig in pair.rigs:
        give(rig, Command(id=name, pipeline=rig.name, action="set-slo", arguments={"slo": "3s"}))
    pair.until(lambda: all(of(rig, name) for rig in pair.rigs), "two results")
    epochs = [rig.plan.epoch for rig in pair.rigs]
    for rig in pair.rigs:
        rig.kill("control")
    pair.pass_time(0.5)
    for rig in pair.rigs:
        rig.start("control")
    pair.until(lambda: all(rig.command("replan").ok for rig in pair.rigs), "both to plan")
    pair.until(pair.serve, "both to serve")
    assert [rig.plan.settings.slo_s for rig in pair.rigs] == [3.0, 3.0]
    assert all(rig.plan.epoch >= epoch for rig, epoch in zip(pair.rigs, epochs, strict=True))
    assert [len(of(rig, name)) for rig in pair.rigs] == [1, 1]


def test_status_shows_both_pipelines(pair: Pair) -> None:
    # Run it in a process of its own, so that the load continues.
    words = ("status", "--once", "--json", "--bootstrap", pair.rigs[0].bootstrap)
    asked = subprocess.Popen([sys.executable, "-m", "headrace", *words], cwd=ROOT,
                             stdout=subprocess.PIPE, text=True)  # fmt: skip
    pair.until(lambda: asked.poll() is not None, "status")
    assert asked.stdout is not None
    with asked.stdout as out:
        shown = {row["pipeline"]: row for row in json.loads(out.read())}
    for rig in pair.rigs:
        row = shown[rig.name]
        assert (row["epoch"], row["workers"]) == (rig.plan.epoch, 2)
        assert (row["answered_qps"] > 0, row["refused_qps"], row["failed_qps"]) == (True, 0, 0)
        assert sorted(node["name"] for node in row["nodes"]) == sorted(lives(rig))
        (device,) = row["devices"]
        assert (device["device"], device["serves"]) == ("cpu", ["split/plain", "square/plain"])


def give(rig: Rig, command: Command) -> None:
    writer = producer(rig.kafka)
    writer.produce(physical(rig.name, COMMANDS), encode(command), partition=0)
    writer.flush(10)
    writer.close()


def of(rig: Rig, command: str) -> list[Any]:
    return [result for result in rig.results if result.id == command]


# ---------------------------------------------------------------------- from the terminal


class Terminal:
    """A terminal with a local broker of its own."""

    def __init__(self, home: Path) -> None:
        self.runs = home / "run"
        self.env = environment(os.environ, None) | {"HEADRACE_HOME": str(home)}
        self.env.pop("HEADRACE_BOOTSTRAP", None)

    def types(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "headrace", *words], input=stdin, capture_output=True, text=True,
            env=self.env, timeout=200,
        )  # fmt: skip

    def left(self, pipeline: str) -> list[Process]:
        state = read_state(self.runs / pipeline)
        return [] if state is None else list(state.left)


LINES = str(ROOT / "tests" / "pipelines" / "lines" / "pipeline.yaml")
WORDS = str(ROOT / "examples" / "words" / "pipeline.yaml")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    for pipeline, file in (("words", WORDS), ("lines", LINES)):
        if made.left(pipeline):
            made.types("down", file)
    made.types("broker", "stop")


@pytest.mark.slow
def test_one_goes_down_and_the_other_goes_on_with_its_broker(terminal: Terminal) -> None:
    first = terminal.types("up", LINES, "--detach")
    assert first.returncode == 0, first.stderr
    second = terminal.types("up", WORDS, "--detach")
    assert second.returncode == 0, second.stderr
    # Two workers each, and each expects a whole core.
    warned = "the pipelines on this machine need more than its" in second.stderr
    assert warned == (cores() < 4)
    table = terminal.types("status", "--once").stdout
    assert [line.split()[0] for line in table.splitlines()[:3]] == ["pipeline", "lines", "words"]

    everyone = terminal.left("words")
    down = terminal.types("down", LINES)
    assert (down.returncode, down.stdout) == (0, "lines is down\n")
    assert "the local broker keeps running for words" in down.stderr
    assert terminal.left("words") == everyone
    answer = terminal.types("send", WORDS, "-", stdin="one two")
    assert answer.returncode == 0, answer.stderr
    assert "not running: lines" in terminal.types("status", "--once").stdout

    assert terminal.types("down", WORDS).stdout == "words is down\n"
    assert json.loads(terminal.types("broker", "status", "--json").stdout)["running"] is False
    # The restarted broker still has the records of the topics.
    again = terminal.types("up", LINES, "--detach")
    assert again.returncode == 0, again.stderr
    purge_asks_the_broker_that_up_had_started(terminal)


def purge_asks_the_broker_that_up_had_started(terminal: Terminal) -> None:
    """Check that purging leaves no broker behind."""
    purged = terminal.types("down", LINES, "--purge", "--json")
    assert purged.returncode == 0, purged.stderr
    said = json.loads(purged.stdout)
    assert said["was_up"] is True
    assert {"lines.queries", "lines.results"} <= {*said["purged"]["topics"]}
    assert json.loads(terminal.types("broker", "status", "--json").stdout)["running"] is False
