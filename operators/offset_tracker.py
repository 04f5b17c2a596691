"""Offset tracking: the offset to commit when a slot's records finish out of order.

Only finished records may be committed. A record has several pieces (its items, or the queries of a
notice) and finishes with the last of them.
"""

from collections import deque


class Progress:
    """The open records of one slot, oldest first.

    Invariant: every record below ``done`` is finished, and ``done`` never goes back.
    """

    __slots__ = ("_later", "_order", "_pieces", "done", "notes", "seen")

    def __init__(self) -> None:
        self._order: deque[int] = deque()  # offsets of the records from ``done`` on
        self._pieces: dict[int, int] = {}  # unfinished pieces of the open records by offset
        self._later: dict[int, tuple[int, int]] = {}  # notes of these records by offset
        self.done = -1  # the offset to commit; -1: none yet
        self.seen = -1  # the offset after the newest record begun; -1: none yet
        self.notes: dict[int, int] = {}  # notes of the finished records, by key

    @property
    def open(self) -> int:
        """The number of unfinished pieces."""
        return sum(self._pieces.values())

    @property
    def movable(self) -> bool:
        """Whether ``advance`` would move ``done``."""
        return bool(self._order) and self._order[0] not in self._pieces

    def begin(self, offset: int, pieces: int, note: tuple[int, int] | None = None) -> bool:
        """Begin a record; return False if it or a later one was seen before.

        ``note`` is a (key, value) that enters ``notes`` once the record lies below ``done``.
        """
        if offset < self.seen:
            return False
        self.seen = offset + 1
        self._order.append(offset)
        if pieces:
            self._pieces[offset] = pieces
        if note is not None:
            self._later[offset] = note
        return True

    def finish(self, offset: int, pieces: int = 1) -> None:
        """Finish ``pieces`` pieces of a record; ``advance`` then moves ``done``."""
        left = self._pieces.pop(offset) - pieces
        if left > 0:
            self._pieces[offset] = left

    def finished(self, offset: int) -> bool:
        """Whether no piece of a record is left."""
        return offset not in self._pieces

    def advance(self) -> bool:
        """Move ``done`` past the finished records at the front; return whether it moved."""
        order, pieces, later = self._order, self._pieces, self._later
        done = self.done
        while order and order[0] not in pieces:
            offset = order.popleft()
            done = offset + 1
            if offset in later:
                key, value = later.pop(offset)
                self.notes[key] = value
        moved = done != self.done
        self.done = done
        return moved
