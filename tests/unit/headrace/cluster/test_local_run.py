"""Signals while a pipeline starts and runs."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.broker import local_broker
from headrace.broker.local_broker import Running
from headrace.cluster import local_run, up
from headrace.cluster import supervisor as supervising
from headrace.cluster.local_run import LocalRun, ReceivedSignal
from headrace.cluster.run_state import RunState, read_state, write_state
from headrace.cluster.up import handed_over, stop_broker
from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import Interrupted, Unsuccessful
from headrace.processes import Process
from schemas.pipeline import Pipeline
from streams.kafka.kafka_config import KafkaConfig

WORDS = Path(__file__).parents[4] / "examples" / "words" / "pipeline.yaml"


def test_a_signal_is_noted_while_the_pipeline_runs_and_a_second_ctrl_c_ends_it() -> None:
    told = ReceivedSignal()
    told.take(signal.SIGTERM)
    told.take(signal.SIGINT)
    assert told.signal == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        told.take(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_start_of_the_broker_at_once(number: int) -> None:
    """Ctrl-C while the broker started used to wait 8 s and then start the roles."""
    told = ReceivedSignal()
    with pytest.raises(Interrupted), told.interrupting():
        told.take(number)
    assert told.signal == number
    with pytest.raises(Interrupted), told.interrupting():
        raise AssertionError("a signal before the block ends it too")


def test_a_disk_without_room_for_the_state_of_a_run_does_not_end_it(tmp_path: Path) -> None:
    directory = tmp_path / "run"  # no file can be written until it exists
    run = LocalRun(read_pipeline_file(WORDS), KafkaConfig("nobody:1"), directory)
    run.tend()
    directory.mkdir()
    run.tend()
    assert read_state(directory) is not None


def test_a_run_is_seen_by_another_up_before_it_makes_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two `up`s within these seconds used to start the roles twice."""
    seen: list[str] = []

    def prepare(kafka: KafkaConfig, pipeline: Pipeline, role: str) -> None:
        state = read_state(tmp_path / "run")
        seen.append("" if state is None else state.pipeline)

    monkeypatch.setattr(local_run, "prepare", prepare)
    monkeypatch.setattr(supervising, "HEADRACE", (sys.executable, "-c", "input()"))
    run = LocalRun(read_pipeline_file(WORDS), KafkaConfig("nobody:1"), tmp_path / "run")
    run.start()
    run.kill()
    assert seen == ["words"]
    assert read_state(tmp_path / "run") is None


def test_an_up_that_came_second_leaves_the_first_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to remove the state of the first, and to stop the broker that both used."""
    directory, stopped = tmp_path / "words", list[bool]()
    broker = Running(
        bootstrap="nobody:1", port=1, pid=7, home=tmp_path, log=tmp_path, started_here=True
    )
    monkeypatch.setattr(local_broker, "status", lambda: broker)
    monkeypatch.setattr(local_broker, "stop", lambda: stopped.append(True))
    run = LocalRun(read_pipeline_file(WORDS), KafkaConfig("nobody:1"), directory)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as first:
        (directory).mkdir()
        first_run = RunState(
            pipeline="words", file="words.yaml", bootstrap="nobody:1",
            supervisor=Process.found("up", first.pid),
        )  # fmt: skip
        write_state(directory, first_run)
        with pytest.raises(Unsuccessful, match="up already"):
            run.start()
        run.kill()
        stop_broker(directory, "nobody:1")
        assert (read_state(directory), stopped) == (first_run, [])
        assert handed_over(directory)
        first.kill()


def test_a_second_ctrl_c_ends_the_roles_while_they_are_being_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roles and the state of the run used to be left behind."""
    monkeypatch.setattr(supervising, "HEADRACE", (sys.executable, "-c", "input()"))
    run = LocalRun(read_pipeline_file(WORDS), KafkaConfig("nobody:1"), tmp_path / "run")
    run.supervisor.start(run.roles)

    def interrupted() -> float:  # the first call while it stops
        raise KeyboardInterrupt

    run.supervisor.clock = interrupted
    with pytest.raises(KeyboardInterrupt):
        up._stop(run)
    assert run.supervisor.running == ()
    assert not [each for each in run.supervisor.started if each.alive]
