"""Which items ran when this worker's process died? Kept in a file beside the process.

An operator that crashes its process (a segmentation fault, the kernel out of memory) takes the
worker along, and the next process reads the same items again. The journal names what runs before
it runs. What it still names at the next start ran when the process died: a strike for each. The
file outlives the process, not the machine's disk; written without fsync, it costs microseconds.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

MOST_KEPT = 1000  # strikes of long ago are forgotten


class CrashJournal:
    """A file with the items that run, and how often each ran when a process died.

    ``strikes`` are those of earlier processes, by item.
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
        """These run now."""
        self._write(_written(list(items), self.strikes))

    def ended(self) -> None:
        """Nothing runs."""
        self._write(self._idle)

    def _write(self, text: bytes) -> None:
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))


def _written(running: list[str], strikes: Mapping[str, int]) -> bytes:
    return json.dumps({"running": running, "strikes": dict(strikes)}).encode()


def _read(file: int) -> tuple[list[str], dict[str, int]]:
    """Return what an earlier process left; nothing where it died while it wrote."""
    try:
        found = json.loads(os.pread(file, 1 << 24, 0))
        return list(found["running"]), dict(found["strikes"])
    except (ValueError, KeyError, TypeError):
        return [], {}
