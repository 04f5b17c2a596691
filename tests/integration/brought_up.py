"""Run a pipeline under ``headrace up`` while a test uses it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import yaml

from benchmarks.rig import Rig
from headrace.cluster.run_state import read_state
from headrace.processes import Process, environment

ROOT = Path(__file__).parents[2]


def at_home(folder: Path, broker: str) -> dict[str, str]:
    """Return the environment of commands that use this home folder and this broker."""
    own = {"HEADRACE_HOME": str(folder), "HEADRACE_BOOTSTRAP": broker}
    return environment(os.environ, None) | own


@contextmanager
def brought_up(file: Path, env: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Run ``headrace up FILE``; yield once the pipeline is ready, and end it after the block."""
    up = subprocess.Popen(
        [sys.executable, "-m", "headrace", "up", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT,
    )  # fmt: skip
    try:
        assert up.stdout is not None
        assert up.stdout.readline(), up.communicate()[1]
        yield up
    finally:
        up.terminate()
        up.communicate(timeout=60)


@contextmanager
def rig_brought_up(broker: str, folder: Path, file: Path) -> Iterator[Rig]:
    """Run a pipeline file under ``headrace up`` by a name of its own, with ``folder`` for its home;
    yield a rig that sends and reads, and starts no roles."""
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    del described["name"]
    with (
        closing(Rig(broker, folder, described)) as rig,
        brought_up(rig.file.path, at_home(folder, broker)),
    ):
        yield rig


def roles_of(rig: Rig) -> dict[str, Process]:
    """Return the running roles of ``rig_brought_up`` by name."""
    state = read_state(rig.folder / "run" / rig.name)
    assert state is not None
    return {each.name: each for each in state.roles}
