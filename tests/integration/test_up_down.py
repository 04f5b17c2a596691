"""`headrace up`, the faults it survives, and `headrace down`, run as a user types them."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from headrace.cluster.run_state import RunState, read_state
from headrace.processes import Process, environment
from headrace.service_manager import NOTIFY_SOCKET, WORKS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

WORDS = Path(__file__).parents[1] / "pipelines" / "lines" / "pipeline.yaml"
PATIENCE_S = 60.0


class Terminal:
    """A terminal with its own home, broker and service manager."""

    def __init__(self, home: Path, bootstrap: str, service_manager: socket.socket) -> None:
        self.service_manager = service_manager
        self.env = environment(os.environ, None) | {
            "HEADRACE_HOME": str(home),
            "HEADRACE_BOOTSTRAP": bootstrap,
            NOTIFY_SOCKET: service_manager.getsockname(),
        }
        self.run = home / "run" / "lines"

    def types(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace", *words]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=self.env, timeout=200
        )

    @property
    def state(self) -> RunState:
        state = read_state(self.run)
        assert state is not None
        return state

    def role(self, name: str) -> Process | None:
        return next((role for role in self.state.roles if role.name == name), None)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, broker: str) -> Iterator[Terminal]:
    # Not in the home, whose path may be too long for a socket address.
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound,
    ):
        bound.bind(f"{folder}/notify")
        bound.settimeout(PATIENCE_S)
        made = Terminal(tmp_path_factory.mktemp("home"), broker, bound)
        yield made
        made.types("down", str(WORDS))


@pytest.fixture
def running(terminal: Terminal) -> Terminal:
    """Return the terminal with a pipeline that runs, started if the test before has left none."""
    if read_state(terminal.run) is None:
        while select.select([terminal.service_manager], [], [], 0)[0]:
            terminal.service_manager.recv(100)  # of the run before
        up = terminal.types("up", str(WORDS), "--detach")
        assert up.returncode == 0, up.stderr
    return terminal


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.05)


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=PATIENCE_S)[1]


def told_of_the_restart(terminal: Terminal) -> None:
    assert "cpu-1 exited (killed by SIGKILL)" in (terminal.run / "up.log").read_text()
    again = "cpu-1 of lines restarted after it was killed by SIGKILL"
    eventually(lambda: again in (terminal.run / "cpu-1.log").read_text(), again)


def test_a_pipeline_comes_up_answers_survives_a_death_and_goes_down(terminal: Terminal) -> None:
    up = terminal.types("up", str(WORDS), "--detach", "--json")
    assert up.returncode == 0, up.stderr
    row = json.loads(up.stdout)
    assert row["nodes"] == ["egress-0", "cpu-0", "cpu-1", "ingress-0"]
    assert row["feasible"]

    answer = terminal.types("send", str(WORDS), "-", stdin="one two")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[0] == "ONE TWO"

    again = terminal.types("up", str(WORDS))
    assert (again.returncode, again.stdout) == (1, "")
    assert "is up already" in again.stderr

    first = terminal.role("cpu-1")
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: terminal.role("cpu-1") not in (None, first), "cpu-1 is started again")
    told_of_the_restart(terminal)
    status = json.loads(terminal.types("status", str(WORDS), "--once", "--json").stdout)
    assert status["pipeline"] == "lines"

    everyone = [psutil.Process(p.pid) for p in terminal.state.left]
    assert len(everyone) == 6
    down = terminal.types("down", str(WORDS))
    assert (down.returncode, down.stdout) == (0, "lines is down\n")
    assert gone(everyone)
    assert read_state(terminal.run) is None
    assert "not up" in terminal.types("down", str(WORDS)).stdout


def test_nothing_outlives_a_supervisor_that_was_killed(running: Terminal) -> None:
    state = running.state
    everyone = [psutil.Process(p.pid) for p in state.left]
    # Without further messages, a service manager would kill the supervisor.
    assert running.service_manager.recv(100) == WORKS
    os.kill(state.supervisor.pid, signal.SIGKILL)
    assert gone(everyone)
    # The stale state that the supervisor left does not block a new start.
    assert running.types("up", str(WORDS), "--detach").returncode == 0


def test_load_commands_and_policies_work_on_a_running_pipeline(running: Terminal) -> None:
    words, terminal = str(WORDS), running
    applied = terminal.types("policy", "apply", words, "accurate", "--json")
    assert json.loads(applied.stdout)["ok"] is True
    load = terminal.types("load", words, "--rate", "40", "--seconds", "3", "--json")
    row = json.loads(load.stdout)
    outcomes = ("answered", "late", "dropped", "failed", "refused", "lost")
    assert row["queries"] == sum(row[name] for name in outcomes) > 60
    assert (load.returncode, row["lost"], row["accuracy"]) == (0, 0, 1.0)

    epoch = json.loads(applied.stdout)["epoch"]
    assert terminal.types("policy", "apply", words, "fast").returncode == 0
    wrong = terminal.types("policy", "apply", words, "fats")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "did you mean 'fast'?" in wrong.stderr
    policies = json.loads(terminal.types("policy", "list", words, "--json").stdout)
    assert [p["name"] for p in policies if p["in_force"]] == ["fast"]
    assert terminal.types("policy", "rollback", words, str(epoch)).returncode == 0
    history = json.loads(terminal.types("policy", "history", words, "--json").stdout)
    assert [plan["settings"]["policy"] for plan in history[:2]] == ["accurate", "fast"]

    assert terminal.types("pause", words).returncode == 0
    refused = terminal.types("send", words, "-", "--json", stdin="one")
    assert (refused.returncode, json.loads(refused.stdout)["outcome"]) == (1, "refused")
    assert terminal.types("resume", words).returncode == 0
    answered = terminal.types("send", words, "-", stdin="one")
    assert (answered.returncode, answered.stdout.splitlines()[0]) == (0, "ONE")
