"""Servers of other projects, started by tests."""

import itertools
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path


def wait_until_up(url: str, running: subprocess.Popen[bytes], log: Path, within_s: float) -> None:
    """Wait until a URL answers; fail with the end of the log if the server ends or is too late."""
    until = time.monotonic() + within_s
    for attempt in itertools.count():
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            assert running.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(min(0.1 * 2**attempt, 1.0))
