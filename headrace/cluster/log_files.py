"""The log files of a run: kept over restarts, rotated by size, merged for reading.

A role writes ``NAME.log`` in the run's directory; ``NAME.log.1`` holds the log before the last
restart or rotation.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import TextIO

MOST_BYTES = 16 * 1024 * 1024  # per log file; a role has two
LEVELS = ("debug", "info", "warning", "error")
_HUMAN = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d\.\d{3}) (DEBUG|INFO|WARNING|ERROR)")
_JSON = re.compile(
    r'\{"time": "(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d\.\d{3})Z", "level": "(debug|info|warning|error)"'
)


def keep_last(log: Path) -> None:
    """Rename the log of the last run to ``.log.1``."""
    if log.exists():
        log.replace(_before(log))


def remove(log: Path) -> None:
    """Remove a log and the one before the last restart or rotation, as far as they exist."""
    for path in (_before(log), log):
        path.unlink(missing_ok=True)


def rotate(log: Path, most_bytes: int = MOST_BYTES) -> bool:
    """Copy a log of more than ``most_bytes`` to ``.log.1`` and truncate it; return whether it was.

    Its writer appends, so it continues at the new end. Lines written between the two steps are
    lost.
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
    """A log line with its continuation lines, such as a traceback."""

    time: str  # sortable; "" for a line without time
    role: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of entries: by role (none: all), by lowest level, by regular expression."""

    roles: tuple[str, ...] = ()
    level: str = "debug"
    pattern: str = ""

    def wants(self, entry: LogEntry) -> bool:
        """Return whether an entry passes."""
        if self.roles and entry.role not in self.roles:
            return False
        if LEVELS.index(entry.level) < LEVELS.index(self.level):
            return False
        return not self.pattern or re.search(self.pattern, entry.text) is not None


def role_logs(directory: Path) -> dict[str, Path]:
    """Return the log of each role by role name."""
    return {path.stem: path for path in sorted(directory.glob("*.log"))}


def log_entries(directory: Path, wanted: Filter) -> Iterator[LogEntry]:
    """Return the entries of all roles by time, rotated files included."""
    every = [
        _of_role(role, [path for path in (_before(log), log) if path.exists()])
        for role, log in role_logs(directory).items()
    ]
    return (entry for entry in merge(*every) if wanted.wants(entry))


def _of_role(role: str, paths: Sequence[Path]) -> list[LogEntry]:
    found: list[LogEntry] = []
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as lines:
            found += parsed_lines(role, lines, found[-1] if found else None)
    return found


def parsed_lines(
    role: str, lines: TextIO | Sequence[str], last: LogEntry | None = None
) -> list[LogEntry]:
    """Parse lines into entries; a line without a time continues the entry before it."""
    found: list[tuple[str, str, list[str]]] = []  # time, level, lines
    for line in lines:
        text = line.rstrip("\n")
        match = _HUMAN.match(text) or _JSON.match(text)
        if match:
            found.append((f"{match[1]} {match[2]}", match[3].lower(), [text]))
        elif found:
            found[-1][2].append(text)
        else:
            found.append((last.time if last else "", "info", [text]))
    return [LogEntry(time, role, level, "\n".join(text)) for time, level, text in found]


class Follower:
    """Follows the logs of a run from their present ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ends = {role: path.stat().st_size for role, path in role_logs(directory).items()}

    def take(self, wanted: Filter) -> list[LogEntry]:
        """Return the entries since the last call by time; read a truncated file from its start."""
        found: list[LogEntry] = []
        for role, path in role_logs(self._directory).items():
            end = self._ends.get(role, 0)
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    file.seek(end if size >= end else 0)
                    text = file.read()
            except FileNotFoundError:  # of a retired role, removed meanwhile
                continue
            whole = text[: text.rfind(b"\n") + 1]
            self._ends[role] = (end if size >= end else 0) + len(whole)
            found += parsed_lines(role, whole.decode("utf-8", "replace").splitlines())
        return sorted(entry for entry in found if wanted.wants(entry))
