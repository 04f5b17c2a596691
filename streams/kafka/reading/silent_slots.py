"""Find slots that the client has stopped reading although they have records.

After the leader of a partition was killed, a client of librdkafka 2.16 stopped reading that
partition but went on with its others: a minute later the partition had 3,354 unread records (chaos
on three brokers). Restarting the process helped, and so does assigning the slot anew.

A slot is checked if no record has come between two looks. If the broker has more records at both
this look and the next, and none has come, the slot is to be read anew.

A new assignment discards a fetch under way, and a fetch may take long: a large record, a slow
network, a quota. So the looks between two new assignments double, up to ``MOST_LOOKS``, while no
record comes.

Records may also be missing because the broker has deleted them, by the topic's retention. The
client then goes on with the first record that is left, without an error. Offsets without records
are normal, too (compaction, marks of transactions), so the start of the log decides.
"""

from collections.abc import Collection, Iterable, Mapping

from streams.topics import Place

MOST_LOOKS = 32


class SilentSlots:
    """The places of the slots that a reader reads; a place is the offset of the next record."""

    def __init__(self) -> None:
        self._next: dict[Place, int] = {}
        self._heard: set[Place] = set()  # slots with a record since the last look
        # Behind at the last look -> their place, and the number of looks since it was found so.
        self._behind: dict[Place, tuple[int, int]] = {}
        self._known: dict[Place, int] = {}  # slots read anew -> the end then
        self._skipped: dict[Place, range] = {}  # slots -> the most offsets skipped at once

    def reads(self, place: Place, offset: int) -> None:
        """Record that a slot is read from an offset; below 0: from the beginning."""
        self._next[place] = offset
        self._heard.add(place)

    def heard(self, place: Place, offset: int) -> None:
        """Record that a record has come."""
        at = self._next.get(place, -1)
        if 0 <= at < offset and offset - at > len(self._skipped.get(place, ())):
            self._skipped[place] = range(at, offset)
        self._next[place] = offset + 1
        self._heard.add(place)

    def next_offset(self, place: Place) -> int | None:
        """Return the offset of a slot's next record, None if it is unknown."""
        offset = self._next.get(place, -1)
        return offset if offset >= 0 else None

    def leaves(self, place: Place) -> None:
        """Record that a slot is no longer read."""
        for known in (self._next, self._behind, self._known, self._skipped):
            known.pop(place, None)
        self._heard.discard(place)

    def silent(self, paused: Collection[Place]) -> list[Place]:
        """Begin a new look; return the slots whose ends to request from the broker."""
        heard, self._heard = self._heard, set()
        found = [
            place
            for place, offset in self._next.items()
            if offset >= 0 and place not in heard and place not in paused
        ]
        self._behind = {place: at for place, at in self._behind.items() if place in found}
        return found

    @property
    def skipped(self) -> list[Place]:
        """The slots in which offsets were skipped, for ``deleted``."""
        return list(self._skipped)

    def deleted(self, starts: Mapping[Place, int]) -> list[tuple[Place, range]]:
        """Return the offsets that the broker deleted before they were read.

        ``starts`` are the first offsets of the slots at the broker; a slot is read on from there.
        """
        found = []
        for place, start in starts.items():
            gaps = [self._skipped.pop(place, range(0))]
            at = self._next.get(place, -1)
            if 0 <= at < start:  # no record has come since
                gaps.append(range(at, start))
                self._next[place] = start
            found += [(place, gap) for gap in gaps if gap and gap.start < start]
        return found

    def stopped(
        self, ends: Mapping[Place, int], paused: Collection[Place]
    ) -> list[tuple[Place, int]]:
        """Return the slots to read anew, with their offsets; ``ends`` are those of the broker.

        The offsets behind the last record may hold none, as after compaction: they cause one new
        reading.
        """
        found, excused = [], self._heard.union(paused)
        for place, end in ends.items():
            at = self._next.get(place)
            if at is None or at >= end or place in excused:
                self._behind.pop(place, None)
            elif self._known.get(place) != end:  # else it was read anew since the end last rose
                before, looks = self._behind.get(place, (at, -1))
                looks = looks + 1 if before == at else 0
                self._behind[place] = at, looks
                if _is_due(looks):
                    self._known[place] = end
                    found.append((place, at))
        return found


def _is_due(looks: int) -> bool:
    """Return whether a slot is to be read anew after this many looks: 1, 2, 4, ..., then after each
    ``MOST_LOOKS``."""
    return looks > 0 and (looks.bit_count() == 1 or looks % MOST_LOOKS == 0)


def reread_sentence(stopped: Iterable[tuple[Place, int]], ends: Mapping[Place, int]) -> str:
    """Return a sentence about slots that are read anew."""
    slots = [f"{topic}-{slot} at {at} of {ends[topic, slot]}" for (topic, slot), at in stopped]
    return f"the client stopped reading {', '.join(slots)}; reading again"


def deletion_sentence(deleted: Iterable[tuple[Place, range]]) -> str:
    """Return a sentence about records that were deleted before they were read."""
    slots = [f"{topic}-{slot} from {gap[0]} to {gap[-1]}" for (topic, slot), gap in deleted]
    return (
        f"the broker deleted records before this role read them: {', '.join(slots)}; their queries "
        "are dropped or get no answer; raise retention.ms and retention.bytes of the topic above "
        "what its readers may be behind"
    )
