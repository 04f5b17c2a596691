"""Offset tracking: the offset to commit when a slot's records finish out of order.

Only finished records may be committed. A record has several pieces (its items, or the queries of a
notice) and finishes with the last of them.
"""

from collections import deque


class _Entry:
    __slots__ = ("note", "offset", "pieces")

    def __init__(self, offset: int, pieces: int, note: tuple[int, int] | None) -> None:
        self.offset = offset
        self.pieces = pieces
        self.note = note


class Progress:
    """The open records of one slot, oldest first.

    Invariant: every record below ``done`` is finished, and ``done`` never goes back.
    """

    __slots__ = ("_entries", "_order", "done", "notes")

    def __init__(self) -> None:
        self._order: deque[_Entry] = deque()
        self._entries: dict[int, _Entry] = {}
        self.done = -1  # the offset to commit; -1: none yet
        self.notes: dict[int, int] = {}  # notes of the finished records, by key

    @property
    def seen(self) -> int:
        """The offset after the newest record begun, -1 before the first."""
        return self._order[-1].offset + 1 if self._order else self.done

    @property
    def open(self) -> int:
        """The number of unfinished pieces."""
        return sum(entry.pieces for entry in self._order)

    def begin(self, offset: int, pieces: int, note: tuple[int, int] | None = None) -> bool:
        """Begin a record; return False if it or a later one was seen before.

        ``note`` is a (key, value) that enters ``notes`` once the record lies below ``done``.
        """
        if offset < self.seen:
            return False
        entry = _Entry(offset, pieces, note)
        self._order.append(entry)
        self._entries[offset] = entry
        return True

    def finish(self, offset: int, pieces: int = 1) -> None:
        """Finish ``pieces`` pieces of a record; ``advance`` then moves ``done``."""
        self._entries[offset].pieces -= pieces

    def advance(self) -> bool:
        """Move ``done`` past the finished records at the front; return whether it moved."""
        before, order = self.done, self._order
        while order and order[0].pieces <= 0:
            entry = order.popleft()
            del self._entries[entry.offset]
            self.done = entry.offset + 1
            if entry.note is not None:
                self.notes[entry.note[0]] = entry.note[1]
        return self.done != before
