"""Places on the input topic: unique query positions, even after the topic's offsets go back.

A query is identified by its place. Kafka's offsets go back when a topic is recreated or truncated
(an unclean election, a host without power). By offset alone, two queries could have the same
identity, and the second would count as a duplicate. After a partition has gone back n times, its
places start at n * ``GENERATION``: places only grow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NO_ENDS: Mapping[int, int] = {}
GENERATION = 1 << 40  # offsets; a partition that takes 10,000 queries/s needs three years for them


def next_generation(above: int) -> int:
    """Return the first place of the generation after that of ``above``."""
    return (above // GENERATION + 1) * GENERATION


class InputPlaces:
    """The places of one process's input partitions.

    ``upto`` holds the next expected place by partition, at first the committed one; ``missing``
    counts skipped offsets, ``regressed`` how often a partition went back.
    """

    __slots__ = ("_base", "_first", "_topic_id", "missing", "regressed", "upto")

    def __init__(self, upto: Mapping[int, int], topic_id: str = "", regressed: int = 0) -> None:
        self.upto = dict(upto)
        self._topic_id = topic_id
        self._base = {p: place - place % GENERATION for p, place in upto.items()}
        self._first: dict[int, int] = {}  # the first place after a partition went back
        self.missing, self.regressed = 0, regressed

    def take(self, partition: int, offset: int) -> int:
        """Return the place of the next record of a partition."""
        place = self._base.get(partition, 0) + offset
        expected = self.upto.get(partition)
        if expected is not None and place != expected:
            if place < expected:
                self.regressed += 1
                self._base[partition] = next_generation(expected - 1)
                place = self._first[partition] = self._base[partition] + offset
            else:
                self.missing += place - expected
        self.upto[partition] = place + 1
        return place

    def committed(self, partition: int, held: int | None = None) -> tuple[int, str]:
        """Return the offset to commit and the note to store with it.

        ``held`` is the first place to read again after a restart (None: none). If the partition has
        gone back since, the commit is at the first place after that.
        """
        base = self._base.get(partition, 0)
        upto = self.upto[partition]
        done = upto if held is None else min(max(held, self._first.get(partition, base)), upto)
        return commit_at(done, self._topic_id)


def note_of_base(base: int, topic_id: str = "") -> str:
    """Encode the metadata of a commit: the generation (empty for the first one), and the id of the
    topic."""
    generation = str(base // GENERATION) if base else ""
    return f"{generation}@{topic_id}" if topic_id else generation


def commit_at(place: int, topic_id: str = "") -> tuple[int, str]:
    """Return the offset and the note of a commit at a place."""
    offset = place % GENERATION
    return offset, note_of_base(place - offset, topic_id)


def place_of(offset: int, note: str) -> int:
    """Return the place of a committed offset; the reverse of ``commit_at``."""
    return int(note.partition("@")[0] or 0) * GENERATION + offset


def topic_id_of(note: str) -> str:
    """Return the id of the topic of a committed offset; empty if the note has none."""
    return note.partition("@")[2]


@dataclass(frozen=True, slots=True)
class InputStart:
    """The place at which ingress begins.

    ``upto`` holds the first place to read by partition, ``fresh`` those of partitions that are new,
    recreated, or have lost their end: commit these before the first read.
    """

    upto: Mapping[int, int]
    fresh: Mapping[int, int]
    regressed: int  # partitions that were recreated

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of the first record to read by partition."""
        return {p: place % GENERATION for p, place in self.upto.items()}


def start_of_input(
    partitions: Sequence[int],
    committed: Mapping[int, tuple[int, str]],
    closed: Mapping[int, int],
    topic_id: str,
    ends: Mapping[int, int] = NO_ENDS,
) -> InputStart:
    """Return where ingress begins, from its commits (offset, note) and the topic's present id.

    ``closed`` holds by partition the place below which egress has closed every query. A partition
    was recreated if its commit names another topic, or if egress has closed queries of it although
    it has no commit. A commit of an earlier generation than the closed queries is raised to theirs:
    its places would count as closed.

    A partition has lost its end if egress has closed queries beyond the end; ``ends`` holds the end
    offsets of partitions whose commit has a leader epoch. Ingress then reads from the last closed
    query, so that the client finds the cut. If it read from the commit, new queries would get the
    places of lost ones.
    """
    upto: dict[int, int] = {}
    fresh: dict[int, int] = {}
    regressed = 0
    for p in partitions:
        offset, note = committed.get(p, (0, ""))
        of_this = topic_id_of(note) in ("", topic_id) or not topic_id
        if p in committed and of_this:
            upto[p] = _open_place(offset, note, closed.get(p, 0))
            if _beyond(closed.get(p, 0), upto[p], ends.get(p)):
                upto[p] = fresh[p] = closed[p]
            continue
        above = max(place_of(offset, note), closed.get(p, 0))
        if above:
            upto[p] = next_generation(above - 1)
            regressed += 1
        fresh[p] = upto.get(p, 0)
    return InputStart(upto, fresh, regressed)


def _open_place(offset: int, note: str, closed: int) -> int:
    """Return the place of a commit, in the generation of the ``closed`` place if that is a later
    one: ingress ended before it committed there, or a tool has reset the offset, without a note."""
    place, base = place_of(offset, note), closed - closed % GENERATION
    if place >= base:
        return place
    return base + (min(offset, closed - base) if note else offset)


def _beyond(closed: int, place: int, end: int | None) -> bool:
    """Return whether a closed place lies past both the commit, which is in its generation or a
    later one, and the end offset."""
    return end is not None and closed > place and closed % GENERATION > end
