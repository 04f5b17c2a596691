"""Roles of a cluster, their restarts, and recognition of a run from another terminal."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from headrace.cluster import supervisor as supervising
from headrace.cluster.local_run import claim, take_down
from headrace.cluster.log_files import MOST_BYTES
from headrace.cluster.run_state import RunState, clear_state, read_state, write_state
from headrace.cluster.supervisor import (
    BEGINS_WITHIN_S,
    HUNG_S,
    RETIRED_LOGS,
    Supervisor,
    _Child,
    last_word,
    pause_s,
)
from headrace.config.cluster import Cluster
from headrace.config.topology import Role, Share, profilers, roles, workers
from headrace.errors import HeadraceError, Unsuccessful
from headrace.processes import SUPERVISOR, Process, environment, how_it_ended, run_directory
from headrace.roles.observability.log_format import FORMATTERS


def test_a_cluster_is_its_roles_in_the_order_in_which_they_start() -> None:
    assert roles(Cluster((("cpu", 2), ("cuda:0", 1)), ingress=2, egress=1)) == (
        Role("control", "control"),
        Role("egress-0", "egress", ("--share", "0/1"), ("egress-0",)),
        Role("cpu-0", "worker", ("--name", "cpu-0", "--device", "cpu"), ("cpu-0",)),
        Role("cpu-1", "worker", ("--name", "cpu-1", "--device", "cpu"), ("cpu-1",)),
        Role("cuda0-0", "worker", ("--name", "cuda0-0", "--device", "cuda:0"), ("cuda0-0",)),
        Role("ingress-0", "ingress", ("--share", "0/2"), ("ingress-0",)),
        Role("ingress-1", "ingress", ("--share", "1/2"), ("ingress-1",)),
    )


def test_each_role_has_a_port_for_metrics_of_its_own() -> None:
    cluster = Cluster((("cpu", 2),), metrics_port=9400)
    assert [(role.name, role.metrics_port, role.arguments[-2:]) for role in roles(cluster)] == [
        ("control", 9400, ("--metrics-port", "9400")),
        ("egress-0", 9401, ("--metrics-port", "9401")),
        ("cpu-0", 9402, ("--metrics-port", "9402")),
        ("cpu-1", 9403, ("--metrics-port", "9403")),
        ("ingress-0", 9404, ("--metrics-port", "9404")),
    ]
    free = roles(replace(cluster, metrics_port=0))
    assert {role.metrics_port for role in free} == {0}


def test_shares_have_every_partition_once_and_their_parts_add_up_to_all() -> None:
    for of, count in ((1, 4), (3, 4), (4, 4), (8, 4)):
        shares = [Share(index, of) for index in range(of)]
        assert sorted(p for share in shares for p in share.mine(count)) == [*range(count)]
        assert sum(share.part(count) for share in shares) == pytest.approx(1.0)
    assert [Share(index, 3).part(4) for index in range(3)] == [0.5, 0.25, 0.25]


def test_emulated_workers_share_a_process_and_report_one_by_one() -> None:
    common = ("--name", "emulated", "--device", "emulated", "--count")
    many = ("emulated-0", "emulated-1", "emulated-2")
    assert workers("emulated", 3) == [Role("emulated", "worker", (*common, "3"), many)]
    assert workers("emulated", 1) == [Role("emulated", "worker", (*common, "1"), ("emulated",))]


def test_restarts_in_a_row_wait_longer_up_to_half_a_minute() -> None:
    assert [pause_s(n) for n in (1, 2, 3, 4, 20)] == [0.5, 1.0, 2.0, 4.0, 30.0]


def test_a_role_gets_one_thread_this_headrace_and_a_supervisor_to_follow() -> None:
    found = environment({"PATH": "/bin", "OMP_NUM_THREADS": "4", "PYTHONPATH": "/other"}, 7)
    assert found["OMP_NUM_THREADS"] == "4"  # an explicit user choice takes precedence
    assert found["MKL_NUM_THREADS"] == "1"
    assert found[SUPERVISOR] == "7"
    root, other = found["PYTHONPATH"].split(os.pathsep)
    assert (Path(root) / "headrace" / "cluster" / "supervisor.py").exists()
    assert other == "/other"
    assert SUPERVISOR not in environment({}, None)


def test_exit_status_is_described_in_words() -> None:
    found = [how_it_ended(code) for code in (4, -signal.SIGKILL, -250)]
    assert found == ["exit code 4", "killed by SIGKILL", "killed by signal 250"]


def test_last_message_of_a_log_is_its_last_informative_line(tmp_path: Path) -> None:
    log = tmp_path / "role.log"
    assert last_word(log) == ""
    log.write_text("started\nheadrace: no Kafka broker answers\n\n")
    assert last_word(log) == "headrace: no Kafka broker answers"


def test_last_message_of_a_json_log_is_its_message_field(tmp_path: Path) -> None:
    log = tmp_path / "role.log"
    log.write_text(
        '{"level": "info", "message": "x"}\n{"level": "error", "message": "no broker"}\n'
    )
    assert last_word(log) == "no broker"


@pytest.mark.parametrize("form", ["human", "json"])
def test_routine_line_is_not_the_last_message(tmp_path: Path, form: str) -> None:
    made = logging.LogRecord("headrace.node", logging.WARNING, "", 0, "said", (), None)
    log = tmp_path / "role.log"
    log.write_text("headrace: an error of long ago\n" + FORMATTERS[form]().format(made) + "\n")
    assert last_word(log) == ""


@pytest.mark.thorough
def test_a_role_that_refuses_its_file_is_not_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(tmp_path / "gone.yaml", "127.0.0.1:1", tmp_path / "run", said.append)
    supervisor.start([Role("ingress-0", "ingress", ("--share", "0/1"), ("ingress-0",))])
    (process,) = supervisor.started
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Unsuccessful, match=r"ingress-0 cannot run: .*gone\.yaml is not there"):
        supervisor.tend()
    assert said == []
    # Logs quote producers' data, so only this user may read them.
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0


WORKS = "import os, pathlib; pathlib.Path(os.environ['HEADRACE_ALIVE']).touch(); "
REFUSES = "raise SystemExit(2)"


def test_a_role_that_has_worked_is_started_again_whatever_it_ended_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, said = 0.0, list[str]()
    supervisor = Supervisor(tmp_path / "f.yaml", "b:1", tmp_path, said.append, lambda: now)

    def ends(code: str) -> None:
        monkeypatch.setattr(supervising, "HEADRACE", (sys.executable, "-c", code))
        if supervisor._children:
            supervisor.tend()
        else:
            supervisor.start([Role("ingress-0", "ingress")])
        os.waitid(os.P_PID, supervisor.started[-1].pid, os.WEXITED | os.WNOWAIT)
        supervisor.tend()

    # Three refusals in a row ended the whole pipeline, as of an edited file.
    for code in (WORKS + REFUSES, WORKS + REFUSES, *[REFUSES] * 5):
        ends(code)
        now += 60.0
    assert [line for line in said if "restarting in" not in line] == []


def test_a_rented_worker_that_cannot_start_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    monkeypatch.setattr(supervising, "HEADRACE", (sys.executable, "-c", REFUSES))
    supervisor = Supervisor(tmp_path / "f.yaml", "b:1", tmp_path, said.append, lambda: 0.0)
    supervisor.start_at(Role("gpu-1", "worker"), 0.0)
    supervisor.tend()
    os.waitid(os.P_PID, supervisor.started[-1].pid, os.WEXITED | os.WNOWAIT)
    supervisor.tend()
    assert said == ["gpu-1 exited (exit code 2); restarting in 0.5 s"]


@pytest.mark.thorough
def test_every_role_ends_with_its_supervisor_a_profiler_too(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(tmp_path / "gone.yaml", "127.0.0.1:1", tmp_path / "run", said.append)
    supervisor.start([*profilers(1), *roles(Cluster((("cpu", 1),), dashboard_port=0))])
    supervisor.stop(lambda: True, 0.0)
    assert (supervisor.running, said) == ((), [])
    assert not [each for each in supervisor.started if psutil.pid_exists(each.pid)]


# ------------------------------------------------------------------ the state file


def a_state(directory: Path, supervisor: Process, *roles: Process) -> RunState:
    directory.mkdir(parents=True, exist_ok=True)
    state = RunState(
        pipeline="words", file="words.yaml", bootstrap="127.0.0.1:9092", supervisor=supervisor,
        roles=roles,
    )  # fmt: skip
    write_state(directory, state)
    return state


def test_a_state_is_read_as_it_was_written_until_it_is_cleared(tmp_path: Path) -> None:
    state = a_state(tmp_path, Process("up", 1, 2.5), Process("cpu-0", 3, 4.5))
    assert read_state(tmp_path) == state
    clear_state(tmp_path)
    assert read_state(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"supervisor": 3}', "no json"])
def test_a_garbled_state_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "running.json").write_text(text)
    assert read_state(tmp_path) is None


def test_a_process_is_known_by_number_and_start_together() -> None:
    me = Process.found("test", os.getpid())
    assert me.alive
    assert not replace(me, started_s=me.started_s - 60).alive  # the process id was reused
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        gone = Process.found("child", child.pid)
    assert not gone.alive


def test_a_run_lies_below_the_home_that_the_environment_names() -> None:
    assert run_directory("p", {"HEADRACE_HOME": "/h"}) == Path("/h/run/p")
    assert run_directory("p", {"XDG_DATA_HOME": "/x"}) == Path("/x/headrace/run/p")


def test_a_user_without_a_home_is_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a container, whose number no list of users has: it was a traceback."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(HeadraceError, match="has no home directory; set HEADRACE_HOME"):
        run_directory("p", {})


def test_running_pipeline_cannot_be_started_twice(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        a_state(tmp_path, Process.found("up", other.pid))
        with pytest.raises(Unsuccessful, match=f"up already .process {other.pid}.*headrace down"):
            claim(tmp_path)
        other.kill()


def test_stale_state_and_its_leftovers_are_removed(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "input()"]
    with subprocess.Popen(sleeper, stdin=subprocess.PIPE) as orphan:
        a_state(tmp_path, Process("up", os.getpid(), 1.0), Process.found("cpu-0", orphan.pid))
        claim(tmp_path)
        assert orphan.wait(5) == -signal.SIGTERM
    assert read_state(tmp_path) is None


def test_taking_down_a_stopped_pipeline_is_no_error(tmp_path: Path) -> None:
    assert take_down(tmp_path) is None


FOLLOWER = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c",
    "from headrace.processes import follow_supervisor as f;"
    "f(); print('ready', flush=True);"
    "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


@pytest.mark.thorough
def test_a_role_does_not_outlive_a_supervisor_that_was_killed() -> None:
    # The supervisor's id is known only once it runs, so it passes the id on as `up` does.
    script = f"import os; os.environ[{SUPERVISOR!r}] = str(os.getpid())\n{FOLLOWER}"
    command = [sys.executable, "-c", script]
    env = environment(os.environ, None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as supervisor:
        assert supervisor.stdout is not None
        words = {supervisor.stdout.readline().strip(), supervisor.stdout.readline().strip()}
        (pid,) = words - {"ready"}
        role = Process.found("role", int(pid))
        supervisor.kill()
        assert supervisor.stdout.read() == ""  # at the end: the pipe has no holder
    with contextlib.suppress(psutil.NoSuchProcess):
        # It has closed its files but may not have exited yet.
        psutil.Process(role.pid).wait(timeout=30)
    assert not role.alive


def test_started_role_that_hangs_is_killed(tmp_path: Path) -> None:
    now, said = [0.0], []
    supervisor = Supervisor(tmp_path / "p.yaml", "nobody:1", tmp_path, said.append, lambda: now[0])
    role = Role("egress-0", "egress")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE,
                          start_new_session=True) as process:  # fmt: skip
        supervisor._children["egress-0"] = _Child(role, process=process)
        sign = supervisor.alive("egress-0")
        now[0] = BEGINS_WITHIN_S - 1.0  # it has not begun: loading may take minutes
        supervisor.tend()
        for second in range(60):
            now[0] = BEGINS_WITHIN_S + second
            os.utime(_touched(sign), (second, second))
            supervisor.tend()
        assert (said, process.poll()) == ([], None)
        now[0] += HUNG_S + 0.1
        supervisor.tend()
        assert said == ["egress-0 has made no progress for 30 s; killing it"]
        assert process.wait(10) == -signal.SIGKILL


def test_a_role_that_does_not_begin_to_work_is_killed(tmp_path: Path) -> None:
    now, said = [BEGINS_WITHIN_S], []
    supervisor = Supervisor(tmp_path / "p.yaml", "nobody:1", tmp_path, said.append, lambda: now[0])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE,
                          start_new_session=True) as process:  # fmt: skip
        child = _Child(Role("egress-0", "egress"), process=process)
        supervisor._children["egress-0"] = child
        supervisor.tend()
        assert (said, process.poll()) == ([], None)
        now[0] += 0.1
        supervisor.tend()
        assert said == ["egress-0 did not start within 900 s; killing it"]
        assert process.wait(10) == -signal.SIGKILL


def test_a_role_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    now, said = [0.0], []
    supervisor = Supervisor(tmp_path / "p.yaml", "nobody:1", tmp_path, said.append, lambda: now[0])
    supervisor._children["slow-0"] = _Child(Role("slow-0", "worker"))
    supervisor.log("slow-0").mkdir()  # no log can be opened
    supervisor.tend()
    supervisor.tend()
    assert len(said) == 1
    assert said[0].startswith("slow-0 failed to start: ")
    assert said[0].endswith("; retrying in 0.5 s")
    supervisor.log("slow-0").rmdir()
    now[0] = 0.6
    supervisor.tend()
    assert [each.name for each in supervisor.running] == ["slow-0"]
    supervisor.kill()


def test_log_that_cannot_be_copied_stays_and_roles_continue(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "p.yaml", "nobody:1", tmp_path, print, lambda: 0.0)
    supervisor.start_at(Role("slow-0", "worker"), 10.0)
    log = supervisor.log("slow-0")
    with log.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    log.with_name("slow-0.log.1").mkdir()  # in place of a full disk
    supervisor.tend()
    assert log.stat().st_size == MOST_BYTES + 1


def test_a_retired_role_ends_and_is_not_started_again(tmp_path: Path) -> None:
    now = [0.0]
    supervisor = Supervisor(tmp_path / "p.yaml", "nobody:1", tmp_path, print, lambda: now[0])
    role = Role("slow-0", "worker")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE,
                          start_new_session=True) as process:  # fmt: skip
        supervisor._children["slow-0"] = _Child(role, process=process)
        supervisor.retire("slow-0")
        assert process.wait(10) == -signal.SIGTERM
        now[0] = 100.0
        supervisor.tend()
    assert supervisor._children == {}


def test_roles_that_come_and_go_for_months_leave_few_files_and_no_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rented worker has a new name; the files and the process of each were kept."""
    monkeypatch.setattr(supervising, "HEADRACE", ("true",))
    supervisor = Supervisor(tmp_path / "p.yaml", "nobody:1", tmp_path, print)
    for number in range(RETIRED_LOGS + 5):
        name = f"slow-{number}"
        supervisor.log(name).touch()  # of an earlier run: `start` keeps it
        supervisor.start([Role(name, "worker")])
        supervisor.alive(name).touch()
        for left in ("running.json", "fatal-records.json", "fatal-records.mark"):
            (tmp_path / f"{name}.{left}").touch()
        os.waitid(os.P_PID, supervisor.started[-1].pid, os.WEXITED | os.WNOWAIT)
        supervisor.retire(name)
        supervisor.tend()
    assert supervisor.started == []
    kept = {f"slow-{number}.log" for number in range(5, RETIRED_LOGS + 5)}
    assert {path.name for path in tmp_path.iterdir()} == kept | {f"{name}.1" for name in kept}


def test_a_restarted_role_is_one_started_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "HEADRACE", ("true",))
    now = [0.0]
    supervisor = Supervisor(tmp_path / "f.yaml", "b:1", tmp_path, lambda _: None, lambda: now[0])
    supervisor.start([Role("ingress-0", "ingress")])
    for _ in range(3):
        (process,) = supervisor.started
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        supervisor.tend()  # it has ended
        now[0] += 60.0
        supervisor.tend()  # it starts again
    supervisor.kill()


def test_a_role_that_starts_later_is_not_started_before_and_may_be_retired(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "p.yaml", "nobody:1", tmp_path, print, lambda: 0.0)
    supervisor.start_at(Role("slow-0", "worker"), 10.0)
    supervisor.tend()
    assert supervisor.started == []
    supervisor.retire("slow-0")
    supervisor.tend()
    assert supervisor._children == {}


def _touched(path: Path) -> Path:
    path.touch()
    return path
