"""What runs on this machine for a pipeline: a file that another terminal can read.

It lies in the pipeline's run directory, beside one log per role. A process number alone proves
nothing, since the machine uses it again; with the time at which the process began it does.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from headrace.atomic_file import write_whole

FILE_NAME = "running.json"
# psutil derives the time from the boot time, which moves when the clock is set.
SAME_START_S = 2.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """One `headrace up`. ``broker_started``: it started the local broker and so stops it.

    ``devices`` has its workers by device, ``share`` is the part of their time that it counts on.
    """

    pipeline: str
    file: str
    bootstrap: str
    supervisor: Process
    roles: tuple[Process, ...] = ()
    broker_started: bool = False
    ready: bool = False
    devices: Mapping[str, int] = field(default_factory=dict)
    share: float = 1.0

    @property
    def left(self) -> tuple[Process, ...]:
        """The processes of this run that are still there."""
        return tuple(p for p in (self.supervisor, *self.roles) if p.alive)


def run_directory(pipeline: str, env: Mapping[str, str] = os.environ) -> Path:
    """Where a pipeline's state and logs lie: below HEADRACE_HOME or the per-user data directory."""
    if env.get("HEADRACE_HOME"):
        return Path(env["HEADRACE_HOME"]).absolute() / "run" / pipeline
    data = env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data).absolute() / "headrace" / "run" / pipeline


def read_state(directory: Path) -> RunState | None:
    """The state that is written there; None where there is none or it is no state of ours."""
    try:
        row = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))
        return _state(row)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def neighbours(directory: Path) -> list[RunState]:
    """The other runs on this machine of which a process is there, by pipeline."""
    if not directory.parent.is_dir():
        return []
    others = sorted(each for each in directory.parent.iterdir() if each != directory)
    return [state for each in others if (state := read_state(each)) is not None and state.left]


def write_state(directory: Path, state: RunState) -> None:
    """Write whole or not at all."""
    write_whole(directory / FILE_NAME, json.dumps(asdict(state)) + "\n")


def clear_state(directory: Path) -> None:
    """Nothing runs any more."""
    (directory / FILE_NAME).unlink(missing_ok=True)


def _state(row: dict[str, Any]) -> RunState:
    row["supervisor"] = Process(**row["supervisor"])
    row["roles"] = tuple(Process(**role) for role in row["roles"])
    return RunState(**row)
