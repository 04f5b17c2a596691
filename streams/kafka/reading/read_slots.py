"""The slots that a process reads, has given up, and has paused.

Orders of other threads reach the reading thread late: a slot may have been given up while its
offset was looked up, or paused before it is read.
"""

from collections.abc import Iterable

from streams.topics import Place


class ReadSlots:
    """``paused`` and ``pauses`` are for any thread, the rest is for the reading thread."""

    def __init__(self) -> None:
        self.paused: set[Place] = set()
        self._read: set[Place] = set()
        self._left: dict[Place, int] = {}  # slots given up -> number of the last assignment

    def pauses(
        self, wanted: Iterable[Place], among: Iterable[Place]
    ) -> tuple[set[Place], set[Place]]:
        """Pause exactly ``wanted`` among the slots in ``among``; return those that pause and those
        that resume by it."""
        wanted, among = set(wanted), set(among)
        stop, go = (wanted & among) - self.paused, (self.paused & among) - wanted
        self.paused = (self.paused - among) | (wanted & among)
        return stop, go

    def begins(self, places: Iterable[Place], number: int) -> set[Place]:
        """Read slots by assignment ``number``; return them without those given up by a later one.

        A slot that the same assignment gives up is read again.
        """
        fresh = {place for place in places if self._left.get(place, 0) <= number}
        self._read |= fresh
        return fresh

    def leaves(self, places: Iterable[Place], number: int) -> list[Place]:
        """Give slots up by assignment ``number``; return those that were being read."""
        places = set(places)
        self._left.update(dict.fromkeys(places, number))
        left = self.of(places)
        self._read -= places
        return left

    def of(self, places: Iterable[Place]) -> list[Place]:
        """Return the slots among these that are being read."""
        return [place for place in sorted(places) if place in self._read]
