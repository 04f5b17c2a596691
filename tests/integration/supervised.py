"""A pipeline under ``headrace up``, with a load whose answers a rig counts."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.rig import ROOT, Rig
from headrace.cluster.run_state import read_state
from tests.integration.brought_up import at_home

WITHIN_S = 90.0


class Supervised:
    """A pipeline that commands start and end; its rig sends and reads, and starts no roles."""

    def __init__(self, broker: str, folder: Path, description: dict[str, Any]) -> None:
        self.rig = Rig(broker, folder, description)
        self.env = at_home(folder, broker)

    def types(self, command: str, *options: str) -> None:
        """Run a command on the pipeline to completion while queries arrive."""
        words = [sys.executable, "-m", "headrace", command, str(self.rig.file.path), *options]
        with self.rig.log(command).open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, env=self.env, cwd=ROOT)
        self.rig.until(lambda: process.poll() is not None, f"headrace {command}", WITHIN_S)
        assert process.returncode == 0, self.rig.log(command).read_text()

    def role_log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text()

    @property
    def folder(self) -> Path:
        return self.rig.folder / "run" / self.rig.name

    def edit(self, egress_partitions: int) -> None:
        """Change ``egress_partitions`` in the pipeline's file."""
        path = self.rig.file.path
        description = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**description, "egress_partitions": egress_partitions}))

    def signal(self, role: str, number: int) -> float:
        """Send a signal to a role; return the time of the signal."""
        state = read_state(self.folder)
        assert state is not None
        (process,) = [each for each in state.roles if each.name == role]
        os.killpg(process.pid, number)
        return time.time()

    def back(self, role: str, since_s: float) -> None:
        """Wait for a report of a process of the role that started after ``since_s``."""
        self.rig.until(
            lambda: self.rig.reports[role].incarnation > since_s, f"{role} to report", WITHIN_S
        )

    def restart(self, role: str) -> None:
        """Kill a role; wait until its supervisor has replaced it and the replacement reports."""
        self.back(role, self.signal(role, signal.SIGKILL))


@contextmanager
def supervised(
    broker: str, folder: Path, description: dict[str, Any], rate_qps: float
) -> Iterator[Supervised]:
    """Start a pipeline and keep it under load; end it after the block."""
    run = Supervised(broker, folder, description)
    try:
        run.types("up", "--detach")
        run.rig.offer(rate_qps)
        run.rig.pass_time(1)
        yield run
    finally:
        run.rig.offer(0)
        run.types("down")
        run.rig.close()
