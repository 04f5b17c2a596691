"""Cache outputs of upstream stages for configurations that share their options.

A key names sample set, sample, stage and the options of all stages up to it. The eviction policy is
GreedyDual-Size: evict the entry with the least seconds saved per byte, aged by its last use.
Searches on the same samples share entries; others cannot hit them.
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

Rank = tuple[float, int]  # worth, last use: the least is evicted first


@dataclass(slots=True)
class _Entry:
    value: Any
    seconds: float
    size: int
    rank: Rank


class PrefixCache:
    """A cache of at most ``most_bytes``."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._entries: dict[Hashable, _Entry] = {}
        # A heap with each entry once. Ranks only grow, so an outdated rank is too low.
        self._order: list[tuple[Rank, Hashable]] = []
        self._floor = 0.0
        self._uses = 0
        self.bytes = 0

    def get(self, key: Hashable) -> tuple[Any, float] | None:
        """Return the output and the seconds of computing it; None on a miss."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.rank = self._rank(entry.seconds, entry.size)
        return entry.value, entry.seconds

    def put(self, key: Hashable, value: Any, seconds: float, size: int) -> None:
        """Insert an output of ``size`` bytes if its rank exceeds that of the entries it evicts."""
        if key in self._entries or size > self._most:
            return
        rank = self._rank(seconds, size)
        while self.bytes + size > self._most:
            worst, victim = self._order[0]
            entry = self._entries[victim]
            if entry.rank != worst:
                heapq.heapreplace(self._order, (entry.rank, victim))  # used since
            elif worst > rank:
                return
            else:
                heapq.heappop(self._order)
                self._evict(victim)
        self._entries[key] = _Entry(value, seconds, size, rank)
        heapq.heappush(self._order, (rank, key))
        self.bytes += size

    def __len__(self) -> int:
        return len(self._entries)

    def _rank(self, seconds: float, size: int) -> Rank:
        self._uses += 1
        return self._floor + seconds / max(size, 1), self._uses

    def _evict(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self._floor = max(self._floor, entry.rank[0])
        self.bytes -= entry.size
