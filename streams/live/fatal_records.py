"""Fatal records: those at which a role ended, by count, in a file that the next process reads.

A record that a node, codec or encoder cannot take ends the role with an error, and the next process
reads it again. After ``MOST_DEATHS`` such ends at one offset the record counts as unreadable: it
goes to the dead letters with the error, and the role serves on.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from schemas.codec.raw import ID_HEADER
from schemas.records import Garbled
from streams.codecs.wire import Fetched

MOST_DEATHS = 3
MOST_KEPT = 1000  # the oldest records beyond it are forgotten

Deaths = tuple[int, str]  # how often a role ended at the record, and the last error


class FatalRecords:
    """A role's file of fatal records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._deaths = _read(path)

    def ended_at(self, fetched: Fetched, error: BaseException) -> None:
        """Count an end of the role while it handled a record."""
        key = _key(fetched)
        count, _ = self._deaths.pop(key, (0, ""))
        self._deaths[key] = count + 1, f"{type(error).__name__}: {error}"
        kept = dict(list(self._deaths.items())[-MOST_KEPT:])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(kept))
        fresh.replace(self._path)

    def unreadable(self, fetched: Fetched) -> Garbled | None:
        """Return the record as an unreadable one if roles ended at it ``MOST_DEATHS`` times."""
        if not self._deaths:
            return None
        count, cause = self._deaths.get(_key(fetched), (0, ""))
        if count < MOST_DEATHS:
            return None
        headers = tuple(fetched.headers or ())
        named = next((value for name, value in headers if name == ID_HEADER), b"")
        reason = f"this record ended its reader {count} times: {cause}"
        return Garbled(fetched.value or b"", reason, headers, named.decode("utf-8", "replace"))


def _key(fetched: Fetched) -> str:
    # With its time stamp: after a topic was made anew the offset is another record's.
    return f"{fetched.topic}/{fetched.slot}/{fetched.offset}/{round(fetched.at_s * 1e3)}"


def _read(path: Path) -> dict[str, Deaths]:
    """Return the file's records; none after an incomplete write."""
    try:
        found: Mapping[str, list[str]] = json.loads(path.read_text())
        return {key: (int(count), str(cause)) for key, (count, cause) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
