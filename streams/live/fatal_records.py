"""Fatal records: those at which a role ended, by count, in files that the next process reads.

A record that a node, codec or encoder cannot handle ends the role with an error, and the next
process reads it again. The same happens if the record makes the process crash, or hang until its
supervisor kills it. To detect this, the current record is marked in a memory-mapped file, which
costs no system call and outlives the process. After ``MOST_DEATHS`` such ends at one offset the
record counts as unreadable: it goes to the dead letters with the error, and the role continues.
"""

import contextlib
import json
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from schemas.codec.raw import query_from_raw
from schemas.records import Garbled
from streams.codecs.wire import Fetched

MOST_DEATHS = 3
MOST_KEPT = 1000  # more records displace the oldest
SUDDEN = "its process crashed, or was killed as it hung"

Deaths = tuple[int, str]  # how often a role ended at the record, and the last error

_PLACE = struct.Struct("<qqd")  # the current record: offset + 1, slot, time stamp in seconds
_TOPIC = struct.Struct("<H250s")  # followed by the length and the UTF-8 bytes of its topic's name
_NOTHING = bytes(_PLACE.size)


class FatalRecords:
    """A role's fatal records in the file ``path``; the current one is marked in a file beside
    it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._deaths = _read(path)
        self._unreadable = _ended_most(self._deaths)
        self._mark: mmap.mmap | None = None
        self._topic = ""  # topic whose name is in the mark
        with contextlib.suppress(OSError):  # a full or read-only disk: sudden ends do not count
            path.parent.mkdir(parents=True, exist_ok=True)
            self._mark = _mapped(path.with_suffix(".mark"))
            if (key := _marked(self._mark)) is not None:
                self._count(key, SUDDEN)
            self.ended()

    def began(self, fetched: Fetched) -> None:
        """Mark a record as the current one."""
        if self._mark is None:
            return
        if fetched.topic != self._topic:
            self._topic, name = fetched.topic, fetched.topic.encode()
            _TOPIC.pack_into(self._mark, _PLACE.size, len(name), name)
        _PLACE.pack_into(self._mark, 0, fetched.offset + 1, fetched.slot, fetched.at_s)

    def ended(self) -> None:
        """Mark that there is no current record."""
        if self._mark is not None:
            self._mark[: _PLACE.size] = _NOTHING

    def ended_at(self, fetched: Fetched, error: BaseException) -> None:
        """Count an end of the role while it handled a record, if the disk takes the count."""
        with contextlib.suppress(OSError):  # the role reports the error that ended it
            self._count(_key(fetched), f"{type(error).__name__}: {error}")
        self.ended()

    def _count(self, key: str, cause: str) -> None:
        count, _ = self._deaths.pop(key, (0, ""))
        self._deaths[key] = count + 1, cause
        self._unreadable = _ended_most(self._deaths)
        kept = dict(list(self._deaths.items())[-MOST_KEPT:])
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(kept))
        fresh.replace(self._path)

    def unreadable(self, fetched: Fetched) -> Garbled | None:
        """Return the record as unreadable if roles have ended at it ``MOST_DEATHS`` times."""
        if not self._unreadable or (key := _key(fetched)) not in self._unreadable:
            return None
        count, cause = self._deaths[key]
        # The client returns None for a header without a value, against its declared types.
        headers = tuple((name, held or b"") for name, held in fetched.headers or ())
        name = query_from_raw(fetched.value, fetched.headers, None).id
        reason = f"this record ended its reader {count} times: {cause}"
        return Garbled(fetched.value or b"", reason, headers, name)


def _ended_most(deaths: Mapping[str, Deaths]) -> frozenset[str]:
    """Return the records at which roles have ended ``MOST_DEATHS`` times."""
    return frozenset([key for key, (count, _) in deaths.items() if count >= MOST_DEATHS])


def _key(fetched: Fetched) -> str:
    return _key_of(fetched.topic, fetched.slot, fetched.offset, fetched.at_s)


def _key_of(topic: str, slot: int, offset: int, at_s: float) -> str:
    # With its time stamp: on a recreated topic the offset is another record's.
    return f"{topic}/{slot}/{offset}/{round(at_s * 1e3)}"


def _mapped(path: Path) -> mmap.mmap:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        size = _PLACE.size + _TOPIC.size
        os.posix_fallocate(file, 0, size)  # a hole would end the process when the disk is full
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def _marked(mark: mmap.mmap) -> str | None:
    """Return the key of an earlier process's current record, None without one."""
    after, slot, at_s = _PLACE.unpack_from(mark, 0)
    length, name = _TOPIC.unpack_from(mark, _PLACE.size)
    if after == 0:
        return None
    return _key_of(name[:length].decode("utf-8", "replace"), slot, after - 1, at_s)


def _read(path: Path) -> dict[str, Deaths]:
    """Return the file's records; none after an incomplete write."""
    try:
        found: Mapping[str, list[str]] = json.loads(path.read_text())
        return {key: (int(count), str(cause)) for key, (count, cause) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
