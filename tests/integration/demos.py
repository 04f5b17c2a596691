"""Run a demo for one test and find the processes that it leaves behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from headrace.processes import environment

WORDS = Path(__file__).parents[1] / "pipelines" / "lines" / "pipeline.yaml"


def started(folder: Path, seconds: str) -> "subprocess.Popen[str]":
    """Start a demo with its temporary files, including its broker's, in ``folder``.

    The demo receives SIGINT even if a shell's ``&``, which ignores SIGINT, started these tests.
    """
    command = [sys.executable, "-m", "headrace", "demo", str(WORDS), "--seconds", seconds, "--json"]
    env = environment(os.environ, None) | {"TMPDIR": str(folder)}
    env.pop("HEADRACE_BOOTSTRAP", None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def left_of(folder: Path) -> dict[int, str]:
    """Return the command lines, by process id, of processes with ``folder`` for temporary files."""
    return {
        process.pid: " ".join(process.info["cmdline"] or [])
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(folder)
    }
