"""A demo for one test, and what it leaves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from headrace.processes import environment

WORDS = Path(__file__).parents[1] / "pipelines" / "lines" / "pipeline.yaml"


def started(folder: Path, seconds: str) -> "subprocess.Popen[str]":
    """A demo whose temporary files, and so its broker's command line, lie in ``folder``.

    It hears SIGINT also where these tests were started behind a shell's ``&``, which ignores it.
    """
    command = [sys.executable, "-m", "headrace", "demo", str(WORDS), "--seconds", seconds, "--json"]
    env = environment(os.environ, None) | {"TMPDIR": str(folder)}
    env.pop("HEADRACE_BOOTSTRAP", None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def left_of(folder: Path) -> dict[int, str]:
    """Command lines, by process number, of what was started with the folder for its files."""
    return {
        process.pid: " ".join(process.info["cmdline"] or [])
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(folder)
    }
