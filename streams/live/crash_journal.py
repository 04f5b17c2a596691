"""Crash journal: a file that records which items ran when the worker's process died.

An operator that crashes its process (a segmentation fault, the kernel out of memory) ends the
worker, and the next process reads the same items again. The journal names items before they run. An
item that it still names at the next start ran when the process died, and gets a strike. The file
survives the process but not a power loss. It is mapped into memory: a batch costs no system call
and no release of the interpreter's lock.
"""

import json
import math
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

MOST_KEPT = 1000  # more strikes displace the oldest
ROOM_BYTES = 1 << 16  # initial size of the file, which grows with the largest batch
_END = b"}\n"  # bytes after it are the rest of an older, longer line


class CrashJournal:
    """A file with the running items and the strikes of each item.

    ``strikes`` counts by item how often it ran when an earlier process died. Items that run for
    longer than ``longest_s`` by ``clock``, after which their process ends, stay named.
    """

    def __init__(
        self,
        path: Path,
        longest_s: float = math.inf,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._longest_s, self._clock = longest_s, clock
        self._began_s = clock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        running, strikes = _read(self._file)
        for item in running:
            strikes[item] = strikes.pop(item, 0) + 1
        self._map = self._mapped(ROOM_BYTES)
        self._keep(dict(list(strikes.items())[-MOST_KEPT:]))

    def _keep(self, strikes: Mapping[str, int]) -> None:
        self.strikes = strikes
        self._before = b'{"strikes": %b, "running": ' % json.dumps(strikes).encode()
        self._idle = self._before + b"[]" + _END
        self.ended()

    def forget(self) -> None:
        """Forget all strikes: the process ends on request, and what it ran may be mended."""
        self._keep({})

    def forgive(self, item: str) -> None:
        """Forget the strikes of an item."""
        self._keep({each: count for each, count in self.strikes.items() if each != item})

    def began(self, items: Sequence[str]) -> None:
        """Record the items of the batch that begins."""
        if self._longest_s < math.inf:
            self._began_s = self._clock()
        self._write(self._before + msgspec.json.encode(items) + _END)

    def ended(self) -> None:
        """Record that no batch is running."""
        if self._longest_s < math.inf and self._clock() - self._began_s > self._longest_s:
            return
        self._write(self._idle)

    def _write(self, line: bytes) -> None:
        if len(line) > len(self._map):
            self._map = self._mapped(2 * len(line))
        self._map[: len(line)] = line

    def _mapped(self, size: int) -> mmap.mmap:
        # If a mapped file had holes, the process would end when the disk is full.
        os.posix_fallocate(self._file, 0, size)
        return mmap.mmap(self._file, 0)


def _read(file: int) -> tuple[list[str], dict[str, int]]:
    """Return an earlier process's running items and strikes; empty after an incomplete write."""
    try:
        line, _, _ = os.pread(file, 1 << 24, 0).partition(b"\n")
        found = json.loads(line)
        return list(found["running"]), dict(found["strikes"])
    except (ValueError, KeyError, TypeError):
        return [], {}
