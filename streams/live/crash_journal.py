"""Crash journal: a file that records which items ran when the worker's process died.

An operator that crashes its process (a segmentation fault, the kernel out of memory) ends the
worker, and the next process reads the same items again. The journal names items before they run.
Items that it still names at the next start ran when the process died and get a strike each. The
file survives the process but not a power loss: writes skip fsync and take microseconds.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

MOST_KEPT = 1000  # the oldest strikes beyond it are forgotten


class CrashJournal:
    """A file with the running items and the strikes of each item.

    ``strikes`` counts by item how often it ran when an earlier process died.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        running, strikes = _read(self._file)
        for item in running:
            strikes[item] = strikes.pop(item, 0) + 1
        self.strikes: Mapping[str, int] = dict(list(strikes.items())[-MOST_KEPT:])
        self._idle = _written([], self.strikes)
        self.ended()

    def began(self, items: Iterable[str]) -> None:
        """Record the items of the batch that begins."""
        self._write(_written(list(items), self.strikes))

    def ended(self) -> None:
        """Record that no batch is running."""
        self._write(self._idle)

    def _write(self, text: bytes) -> None:
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))


def _written(running: list[str], strikes: Mapping[str, int]) -> bytes:
    return json.dumps({"running": running, "strikes": dict(strikes)}).encode()


def _read(file: int) -> tuple[list[str], dict[str, int]]:
    """Return an earlier process's running items and strikes; empty after an incomplete write."""
    try:
        found = json.loads(os.pread(file, 1 << 24, 0))
        return list(found["running"]), dict(found["strikes"])
    except (ValueError, KeyError, TypeError):
        return [], {}
