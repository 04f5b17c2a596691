"""Run a pipeline under ``headrace up`` while a test uses it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.processes import environment

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
