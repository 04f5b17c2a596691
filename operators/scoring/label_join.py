"""Values that wait for their counterpart of the same id, in bounded memory.

Answers wait for labels and labels for answers, in either order; a counterpart may never come.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

ENTRY_BYTES = 600  # of an entry besides its value

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """A record's partition and offset, and its time in seconds since the epoch."""

    partition: int
    offset: int
    at_s: float


@dataclass(slots=True)
class _JoinEntry(Generic[T]):
    value: T | None  # None: joined
    bytes: int
    place: Place


class WaitingRoom(Generic[T]):
    """Values by id, in order of arrival, for at most ``within_s`` and in about ``most_bytes``.

    The oldest are given up first. A joined value leaves its id behind, so that a repeated
    counterpart is not joined again.
    """

    def __init__(self, most_bytes: int, within_s: float) -> None:
        self._most_bytes = most_bytes
        self._within_s = within_s
        self._bytes = 0
        self._entries: OrderedDict[str, _JoinEntry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def bytes(self) -> int:
        """The approximate memory of all entries."""
        return self._bytes

    def add(self, name: str, value: T, size: int, place: Place) -> None:
        """Keep a value of ``size`` bytes as the newest; it replaces one of the same name."""
        self._remove(name)
        self._entries[name] = _JoinEntry(value, ENTRY_BYTES + size, place)
        self._bytes += ENTRY_BYTES + size

    def waits(self, name: str) -> bool:
        """Return whether a value of that name waits."""
        held = self._entries.get(name)
        return held is not None and held.value is not None

    def take(self, name: str) -> T:
        """Return a waiting value and mark it as joined; raise ``KeyError`` if none waits."""
        held = self._entries[name]
        if held.value is None:
            raise KeyError(name)
        value, held.value = held.value, None
        self._bytes += ENTRY_BYTES - held.bytes
        held.bytes = ENTRY_BYTES
        return value

    def expire(self, now: float) -> list[T]:
        """Give up the oldest entries beyond the bounds; return those that were never joined."""
        waiting: list[T] = []
        while self._entries:
            name, held = next(iter(self._entries.items()))
            if self._bytes <= self._most_bytes and held.place.at_s >= now - self._within_s:
                break
            if held.value is not None:
                waiting.append(held.value)
            self._remove(name)
        return waiting

    def oldest(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the lowest kept offset of each of the partitions that has one."""
        wanted, found = set(partitions), dict[int, int]()
        for held in self._entries.values():
            if held.place.partition in wanted:
                found[held.place.partition] = held.place.offset
                wanted.remove(held.place.partition)
            if not wanted:
                break
        return found

    def _remove(self, name: str) -> None:
        held = self._entries.pop(name, None)
        if held is not None:
            self._bytes -= held.bytes
