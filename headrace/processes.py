"""Processes of this machine: their identity, environment, end, and where their files lie.

A process number alone proves nothing, since the machine uses it again; with the time at which the
process began it does.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

STOP_PATIENCE_S = 10.0  # from SIGTERM to SIGKILL
SUPERVISOR = "HEADRACE_SUPERVISOR"  # environment: the process that a role must not outlive
ALIVE = "HEADRACE_ALIVE"  # environment: the file that a role touches every second that it works
RESTARTED = "HEADRACE_RESTARTED"  # environment: how the process ended whose place this one takes
WATCH_S = 0.5
# psutil derives the time from the boot time, which moves when the clock is set.
SAME_START_S = 2.0

# One thread per model: the plan counts workers, so a library must not take the others' cores.
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Process:
    """A process by its number and the time (epoch seconds) at which it began."""

    name: str
    pid: int
    started_s: float

    @classmethod
    def found(cls, name: str, pid: int) -> Self:
        """The process that has this number now; one that is gone began at 0."""
        try:
            return cls(name, pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return cls(name, pid, 0.0)

    @property
    def alive(self) -> bool:
        """It, and not another one with its number, is there and no zombie."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started_s) < SAME_START_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def environment(base: Mapping[str, str], supervisor: int | None) -> dict[str, str]:
    """A child's environment: this headrace is importable, one thread per model, and which
    process it must not outlive (None: it may)."""
    root = str(Path(__file__).parents[1])
    paths = [root, *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **THREADS,
        **base,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUNBUFFERED": "1",
        **({} if supervisor is None else {SUPERVISOR: str(supervisor)}),
    }


def how_it_ended(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def end_session(leader: int) -> None:
    """Kill a role and all it has started; it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def follow_supervisor(env: Mapping[str, str] = os.environ) -> None:
    """End this process when the supervisor that started it is gone; called by every role.

    SIGTERM first, so that work is put down cleanly, and a hard end after ``STOP_PATIENCE_S``.
    """
    if SUPERVISOR in env:
        parent = int(env[SUPERVISOR])
        threading.Thread(target=_watch, args=(parent,), name="supervisor", daemon=True).start()


def _watch(parent: int) -> None:
    # Works on every system, unlike PR_SET_PDEATHSIG, which also fires when a mere thread ends.
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_PATIENCE_S)
    end_session(os.getpid())


def run_directory(pipeline: str, env: Mapping[str, str] = os.environ) -> Path:
    """Where a pipeline's state and logs lie: below HEADRACE_HOME or the per-user data directory."""
    if env.get("HEADRACE_HOME"):
        return Path(env["HEADRACE_HOME"]).absolute() / "run" / pipeline
    data = env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data).absolute() / "headrace" / "run" / pipeline
