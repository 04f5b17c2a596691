"""Signals while a pipeline starts and runs."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import local_broker
from headrace.broker.local_broker import Running
from headrace.cluster import local_run, up
from headrace.cluster import supervisor as supervising
from headrace.cluster.local_run import LocalRun, ReceivedSignal, take_down
from headrace.cluster.run_state import RunState, clear_state, read_state, write_state
from headrace.cluster.up import claimed, follow, handed_over, stop_broker
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


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A local broker that runs; the list grows with every stop of it."""
    stops = list[bool]()
    broker = Running(
        bootstrap="127.0.0.1:1", port=1, pid=7, home=tmp_path, log=tmp_path, started_here=True
    )
    monkeypatch.setattr(local_broker, "status", lambda: broker)
    monkeypatch.setattr(local_broker, "stop", lambda: stops.append(True))
    return stops


@contextlib.contextmanager
def a_run(directory: Path, bootstrap: str, **changes: Any) -> Iterator[RunState]:
    """Write the state of a run whose supervisor is another process; kill that after the block."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as up:
        directory.mkdir(parents=True)
        state = RunState(
            pipeline=directory.name, file="words.yaml", bootstrap=bootstrap,
            supervisor=Process.found("up", up.pid), **changes,
        )  # fmt: skip
        write_state(directory, state)
        try:
            yield state
        finally:
            up.kill()


def test_an_up_that_came_second_leaves_the_first_as_it_is(
    tmp_path: Path, stopped: list[bool]
) -> None:
    """It used to remove the state of the first, and to stop the broker that both used."""
    directory = tmp_path / "words"
    run = LocalRun(read_pipeline_file(WORDS), KafkaConfig("127.0.0.1:1"), directory)
    with a_run(directory, "127.0.0.1:1") as first:
        with pytest.raises(Unsuccessful, match="up already"):
            run.start()
        run.kill()
        stop_broker(directory)
        assert (read_state(directory), stopped) == (first, [])
        assert handed_over(directory)


@pytest.mark.parametrize("named", ["127.0.0.1:1", "localhost:1", "kafka:9092, localhost:1"])
def test_a_broker_keeps_running_for_a_pipeline_that_names_it_otherwise(
    tmp_path: Path, stopped: list[bool], named: str
) -> None:
    """`down` of the pipeline that had started it took the broker from one under "localhost"."""
    with a_run(tmp_path / "other", named):
        stop_broker(tmp_path / "words")
        assert (stopped, handed_over(tmp_path / "other")) == ([], True)


@pytest.mark.parametrize("named", ["localhost:2", "kafka:1"])
def test_a_broker_stops_where_the_others_use_another_one(
    tmp_path: Path, stopped: list[bool], named: str
) -> None:
    with a_run(tmp_path / "other", named):
        stop_broker(tmp_path / "words")
    assert stopped == [True]


def test_the_broker_of_a_killed_up_becomes_that_of_the_next_one(
    tmp_path: Path, stopped: list[bool]
) -> None:
    """Nobody stopped it."""
    directory = tmp_path / "words"
    with a_run(directory, "127.0.0.1:1", broker_started=True):
        pass
    with starting(directory):
        assert handed_over(directory)


def starting(directory: Path) -> contextlib.AbstractContextManager[None]:
    return claimed(directory, read_pipeline_file(WORDS), None)


def test_two_ups_at_the_same_time_start_one_run(tmp_path: Path, stopped: list[bool]) -> None:
    """Both used to start the roles, as neither has a state while its broker starts."""
    directory = tmp_path / "words"
    with starting(directory):
        clear_state(directory)  # as the second looked just before
        other = starting(directory)
        with pytest.raises(Unsuccessful, match="another `headrace up` is starting"):
            other.__enter__()
    with starting(directory):
        pass
    assert read_state(directory) is None


def test_down_finds_an_up_whose_broker_has_yet_to_start(
    tmp_path: Path, stopped: list[bool]
) -> None:
    """It said that nothing was up, and the pipeline came up a minute later."""
    with starting(tmp_path / "words"):
        state = read_state(tmp_path / "words")
        assert state is not None
        assert [each.pid for each in state.left] == [os.getpid()]


def test_a_broker_keeps_running_for_a_pipeline_that_is_starting(
    tmp_path: Path, stopped: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_BOOTSTRAP", raising=False)
    with starting(tmp_path / "words"):
        stop_broker(tmp_path / "other")
        assert (stopped, handed_over(tmp_path / "words")) == ([], True)


def test_a_run_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    held = starting(tmp_path / "run" / "words")
    with pytest.raises(Unsuccessful, match=r"cannot be written \(Not a directory\); set HEADRACE"):
        held.__enter__()


STOPPABLE = """
import pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print(flush=True)
signal.sigwait([signal.SIGTERM])
pathlib.Path(sys.argv[1]).unlink()
"""


def test_down_ends_an_up_that_ctrl_z_has_stopped(tmp_path: Path) -> None:
    """It used to wait for a minute and a half, and then to fail."""
    command = [sys.executable, "-c", STOPPABLE, str(tmp_path / "running.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as up:
        assert up.stdout is not None
        up.stdout.readline()
        write_state(
            tmp_path,
            RunState(
                pipeline="words", file="words.yaml", bootstrap="nobody:1",
                supervisor=Process.found("up", up.pid),
            ),
        )  # fmt: skip
        os.kill(up.pid, signal.SIGSTOP)
        assert take_down(tmp_path) is not None
        assert up.wait(5) == 0


def test_a_start_in_the_background_that_was_ended_is_not_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`up --detach` used to exit with 0 where `down` had ended its start, and with nothing up."""
    out, log = tmp_path / "up.out", tmp_path / "up.log"
    for code, expected in ((0, 1), (3, 3)):
        out.write_text("")
        log.write_text("stopping\n")
        with subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]) as child:
            assert follow(child, out, log) == expected
    assert capsys.readouterr().err == "stopping\nstopping\n"


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
