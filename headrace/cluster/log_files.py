"""The log files of a run: kept over restarts, bounded in size, and read as one.

A role writes ``NAME.log`` in the run's directory; ``NAME.log.1`` is what came before, from the last
run or from before the file grew too large.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import TextIO

MOST_BYTES = 16 * 1024 * 1024  # of a role's file; as much again in the one before
LEVELS = ("debug", "info", "warning", "error")
_HUMAN = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d\.\d{3}) (DEBUG|INFO|WARNING|ERROR)")
_JSON = re.compile(
    r'\{"time": "(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d\.\d{3})Z", "level": "(debug|info|warning|error)"'
)


def keep_last(log: Path) -> None:
    """Begin a new log; the one of the last run becomes ``.log.1``."""
    if log.exists():
        log.replace(_before(log))


def rotate(log: Path, most_bytes: int = MOST_BYTES) -> bool:
    """Copy a log that has grown too large to ``.log.1`` and empty it; True if it was.

    Its writer appends, so it goes on at the new end. What it writes between the two steps is lost.
    """
    try:
        if log.stat().st_size <= most_bytes:
            return False
    except FileNotFoundError:
        return False
    shutil.copyfile(log, _before(log))
    with log.open("r+b") as file:
        file.truncate(0)
    return True


def _before(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


@dataclass(frozen=True, slots=True, order=True)
class LogEntry:
    """A line of a log with the lines that belong to it, such as a traceback."""

    time: str  # sortable; "" where the line has none
    role: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entries are wanted: of these roles (none: all), from this level on, with this text."""

    roles: tuple[str, ...] = ()
    level: str = "debug"
    pattern: str = ""

    def wants(self, entry: LogEntry) -> bool:
        """True for an entry that passes."""
        if self.roles and entry.role not in self.roles:
            return False
        if LEVELS.index(entry.level) < LEVELS.index(self.level):
            return False
        return not self.pattern or re.search(self.pattern, entry.text) is not None


def role_logs(directory: Path) -> dict[str, Path]:
    """The log of each role that has one, by name."""
    return {path.stem: path for path in sorted(directory.glob("*.log"))}


def entries(directory: Path, wanted: Filter) -> Iterator[LogEntry]:
    """The entries of all roles, those before a rotation too, in the order of their times."""
    every = [
        _of_role(role, [path for path in (_before(log), log) if path.exists()])
        for role, log in role_logs(directory).items()
    ]
    return (entry for entry in merge(*every) if wanted.wants(entry))


def _of_role(role: str, paths: Sequence[Path]) -> list[LogEntry]:
    found: list[LogEntry] = []
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as lines:
            found += parsed(role, lines, found[-1] if found else None)
    return found


def parsed(
    role: str, lines: TextIO | Sequence[str], last: LogEntry | None = None
) -> list[LogEntry]:
    """Entries from lines; a line without a time belongs to the entry before it."""
    found: list[LogEntry] = []
    for line in lines:
        text = line.rstrip("\n")
        match = _HUMAN.match(text) or _JSON.match(text)
        if match:
            found.append(LogEntry(f"{match[1]} {match[2]}", role, match[3].lower(), text))
        elif found:
            before = found[-1]
            found[-1] = LogEntry(before.time, role, before.level, f"{before.text}\n{text}")
        else:
            found.append(LogEntry(last.time if last else "", role, "info", text))
    return found


class Follower:
    """What is added to the logs of a run from now on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ends = {role: path.stat().st_size for role, path in role_logs(directory).items()}

    def take(self, wanted: Filter) -> list[LogEntry]:
        """The entries that came since the last call, by time; of a file that shrank, all."""
        found: list[LogEntry] = []
        for role, path in role_logs(self._directory).items():
            size, end = path.stat().st_size, self._ends.get(role, 0)
            with path.open("rb") as file:
                file.seek(end if size >= end else 0)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._ends[role] = (end if size >= end else 0) + len(whole)
            found += parsed(role, whole.decode("utf-8", "replace").splitlines())
        return sorted(entry for entry in found if wanted.wants(entry))
