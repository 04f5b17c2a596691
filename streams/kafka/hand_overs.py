"""Changes of the slots that a process reads, in order.

A slot is given up once the sends that its records caused are confirmed, so that its last commit
covers them, or ``HAND_OVER_S`` after the request: its next reader waits.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from streams.topics import Place

HAND_OVER_S = 10.0


class HandOver(NamedTuple):
    """A change of the slots read; it waits for the confirmation of earlier sends."""

    number: int
    new: tuple[Place, ...]
    gone: tuple[Place, ...]
    commits: bool
    behind: int  # number of turns that must be confirmed first
    by_s: float  # the latest time of the change


class HandOvers:
    """The changes that wait; each waits for those before it, too."""

    def __init__(self) -> None:
        self._waiting = deque[HandOver]()

    def __bool__(self) -> bool:
        """Whether a change waits."""
        return bool(self._waiting)

    def add(self, change: HandOver) -> None:
        """Add the newest change."""
        self._waiting.append(change)

    def due(self, confirmed: int, now: float) -> Iterator[HandOver]:
        """Remove and yield the changes that are due once ``confirmed`` turns are, in order."""
        while self._waiting:
            change = self._waiting[0]
            if confirmed < change.behind and now < change.by_s:
                return
            yield self._waiting.popleft()
