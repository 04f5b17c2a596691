"""Format a role's log lines, human-readable by default or as JSON, on stderr.

One line per event. A human-readable line is a sentence; a JSON line also has the event's fields
(``event``, ids, figures). docs/reference/logs-and-metrics.md lists them.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from schemas.visible_text import one_line, visible

FORMATS = ("human", "json")
LEVELS = ("debug", "info", "warning", "error")
FORMAT_VARIABLE, LEVEL_VARIABLE = "HEADRACE_LOG_FORMAT", "HEADRACE_LOG_LEVEL"

OURS = "headrace"
REPEAT_S = 10.0
UNNAMED = "log"  # the event of a library's line


def configure(form: str, level: str) -> None:
    """Log to stderr: Headrace's own lines from ``level`` on, libraries' from warning on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[form]())
    handler.addFilter(Seldom())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(level.upper())


class Human(logging.Formatter):
    """``2026-11-21 14:13:09.123 INFO    cpu-0: loaded read/forest in 0.312 s``"""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        who = fields.get("node") or record.name.removeprefix(f"{OURS}.")
        line = f"{_time(record)} {record.levelname:<7} {who}: {one_line(record.getMessage())}"
        if fields.get("trace"):
            line = f"{line}\n{visible(fields['trace'])}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class Json(logging.Formatter):
    """One JSON object per line: time, level, event, message, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": _time(record).replace(" ", "T") + "Z",
            "level": record.levelname.lower(),
            "event": getattr(record, "event", UNNAMED),
            "message": record.getMessage(),
            **getattr(record, "fields", {"logger": record.name}),
        }
        if record.exc_info:
            row["traceback"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


FORMATTERS: dict[str, type[logging.Formatter]] = {"human": Human, "json": Json}


def _time(record: logging.LogRecord) -> str:
    """Return the record's time in UTC, to the millisecond."""
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(" ", "milliseconds").removesuffix("+00:00")


class Seldom(logging.Filter):
    """Limits each message of a library to one per ``REPEAT_S``; Headrace's own lines pass."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}  # of the last ``REPEAT_S``, the oldest first

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.split(".")[0] == OURS:
            return True
        key = (record.name, str(record.msg))
        if _recent(self._last.get(key, float("-inf")), record):
            return False
        self._last.pop(key, None)
        self._last[key] = record.created
        # A library may put figures into its messages, so that each is new.
        while not _recent((oldest := next(iter(self._last.items())))[1], record):
            del self._last[oldest[0]]
        return True


def _recent(at_s: float, record: logging.LogRecord) -> bool:
    return abs(record.created - at_s) < REPEAT_S  # the wall clock may be set back


_ROUTINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING) ")


def log_text(line: str) -> str:
    """Return the error in the last line of an ended role's log, or "" for a routine line.

    The error is the line, or the message of a JSON line.
    """
    if _ROUTINE.match(line):
        return ""
    if line.startswith("{"):
        try:
            row = json.loads(line)
            return "" if row["level"] in LEVELS[:-1] else str(row["message"])
        except (ValueError, KeyError, TypeError):
            return line
    return line
