"""Processes on this machine: identity, environment, termination, run directory.

The operating system reuses process ids, so the process id and the start time together identify a
process.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from schemas.user_errors import HeadraceError

# -P: modules in the working directory do not shadow Headrace's packages or the standard library.
PYTHON = (sys.executable, "-P")
HEADRACE = (*PYTHON, "-m", "headrace")  # the command line, as a child process

STOP_PATIENCE_S = 10.0  # from SIGTERM to SIGKILL
SUPERVISOR = "HEADRACE_SUPERVISOR"  # environment: pid of the supervisor; a role ends with it
ALIVE = "HEADRACE_ALIVE"  # environment: the file that a working role touches every second
RESTARTED = "HEADRACE_RESTARTED"  # environment: how the predecessor of a restarted role ended
WATCH_S = 0.5
# psutil derives the start time from the boot time, which moves when the clock is set.
SAME_START_S = 2.0

# One thread per model: the plan counts workers, so a library must not use the cores of others.
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified by its process id and start time (epoch seconds)."""

    name: str
    pid: int
    started_s: float

    @classmethod
    def found(cls, name: str, pid: int) -> Self:
        """Return the process with this id; ``started_s`` is 0 if there is none."""
        try:
            return cls(name, pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return cls(name, pid, 0.0)

    @property
    def alive(self) -> bool:
        """Whether the process runs: same id and start time, and no zombie."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started_s) < SAME_START_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def environment(base: Mapping[str, str], supervisor: int | None) -> dict[str, str]:
    """Return a child's environment: this package importable, one thread per model, and the
    supervisor that the child must not outlive (None: the child may)."""
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
    """Return an exit status in words."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def end_session(leader: int) -> None:
    """Kill the process group that ``leader`` leads: a role and all its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def follow_supervisor() -> None:
    """End this process once its supervisor is gone; every role calls it.

    Sends SIGTERM first, for a clean shutdown, and SIGKILL after ``STOP_PATIENCE_S``.
    """
    if SUPERVISOR in os.environ:
        parent = int(os.environ[SUPERVISOR])
        threading.Thread(target=_watch, args=(parent,), name="supervisor", daemon=True).start()


def _watch(parent: int) -> None:
    # Portable, unlike PR_SET_PDEATHSIG, which also fires when only the parent thread ends.
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_PATIENCE_S)
    end_session(os.getpid())


def run_directory(pipeline: str, env: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of a pipeline's state and logs, below HEADRACE_HOME or the per-user
    data directory."""
    if env.get("HEADRACE_HOME"):
        return Path(env["HEADRACE_HOME"]).absolute() / "run" / pipeline
    return data_directory(env) / "run" / pipeline


def data_directory(env: Mapping[str, str]) -> Path:
    """Return the per-user data directory; raises ``HeadraceError`` for a user without a home."""
    try:
        data = env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    except RuntimeError as error:  # a container's user that is in no list of users
        raise HeadraceError(
            f"user {os.getuid()} has no home directory; set HEADRACE_HOME to a directory of its own"
        ) from error
    return Path(data).absolute() / "headrace"
