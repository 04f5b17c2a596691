"""The state of a pipeline's run on this machine: a file that other terminals read.

The file lies in the pipeline's run directory, beside one log per role.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.atomic_file import write_whole
from headrace.processes import Process

FILE_NAME = "running.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """One run of `headrace up`. ``broker_started``: the run started the local broker and stops it.
    ``bootstrap`` "": it has yet to find or start the local broker.

    ``devices`` has its workers by device, one of a type as its share; ``share`` is the fraction of
    the device's time that each reserves, ``tasks_per_device`` how many of them divide a device.
    """

    pipeline: str
    file: str
    bootstrap: str
    supervisor: Process
    roles: tuple[Process, ...] = ()
    broker_started: bool = False
    ready: bool = False
    devices: Mapping[str, float] = field(default_factory=dict)
    share: float = 1.0
    tasks_per_device: int = 1

    @property
    def left(self) -> tuple[Process, ...]:
        """The processes of this run that are alive."""
        return tuple(p for p in (self.supervisor, *self.roles) if p.alive)


def read_state(directory: Path) -> RunState | None:
    """Return the state in a run directory; None if there is none or it is unreadable."""
    try:
        row = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))
        return _state(row)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def neighbours(directory: Path) -> list[RunState]:
    """Return the other runs on this machine with a live process, by pipeline."""
    return [run for each, run in living(directory.parent) if each != directory]


def living(runs: Path) -> list[tuple[Path, RunState]]:
    """Return the run directories in a folder that have a live process, with their states."""
    if not runs.is_dir():
        return []
    states = [(each, read_state(each)) for each in sorted(runs.iterdir())]
    return [(each, state) for each, state in states if state is not None and state.left]


def run_of(file: Path, runs: Path) -> RunState | None:
    """Return the run with a live process that was started with a pipeline file; ``runs`` is the
    folder of the run directories."""
    whole = file.resolve()
    return next((run for _, run in living(runs) if Path(run.file).resolve() == whole), None)


def runs_on(bootstrap: str, runs: Path) -> list[str]:
    """Return the pipelines that run on this machine with these brokers."""
    return [run.pipeline for _, run in living(runs) if run.bootstrap == bootstrap]


def write_state(directory: Path, state: RunState) -> None:
    """Write the state atomically."""
    write_whole(directory / FILE_NAME, json.dumps(asdict(state)) + "\n")


def clear_state(directory: Path) -> None:
    """Remove the state of an ended run."""
    (directory / FILE_NAME).unlink(missing_ok=True)


def _state(row: dict[str, Any]) -> RunState:
    row["supervisor"] = Process(**row["supervisor"])
    row["roles"] = tuple(Process(**role) for role in row["roles"])
    return RunState(**row)
