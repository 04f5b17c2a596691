"""Places on the input topic: unique query positions, even after the topic's offsets go back.

A query is identified by its place. Kafka's offsets go back when a topic is recreated or truncated
(an unclean election, a host without power), so an offset alone could identify two queries, and the
second would pass for a duplicate. After the n-th time that a partition went back, its places start
at n * ``GENERATION``: places only grow.
"""

from collections.abc import Mapping

GENERATION = 1 << 40  # offsets; a partition that takes 10,000 queries/s needs three years for them


def next_generation(above: int) -> int:
    """Return the first place of the generation after that of ``above``."""
    return (above // GENERATION + 1) * GENERATION


class InputPlaces:
    """The places of one process's input partitions.

    ``upto`` holds the next expected place by partition, at first the committed one; ``missing``
    counts skipped offsets, ``regressed`` how often a partition went back.
    """

    __slots__ = ("_base", "missing", "regressed", "upto")

    def __init__(self, upto: Mapping[int, int]) -> None:
        self.upto = dict(upto)
        self._base = {p: place - place % GENERATION for p, place in upto.items()}
        self.missing = self.regressed = 0

    def take(self, partition: int, offset: int) -> int:
        """Return the place of the next record of a partition."""
        place = self._base.get(partition, 0) + offset
        expected = self.upto.get(partition)
        if expected is not None and place != expected:
            if place < expected:
                self.regressed += 1
                self._base[partition] = next_generation(expected - 1)
                place = self._base[partition] + offset
            else:
                self.missing += place - expected
        self.upto[partition] = place + 1
        return place

    def committed(self, partition: int, held: int | None = None) -> tuple[int, str]:
        """Return the offset to commit and the note to store with it.

        ``held`` is the first place to read again after a restart (None: none).
        """
        base = self._base.get(partition, 0)
        upto = self.upto[partition]
        done = upto if held is None else min(held, upto)
        return max(done - base, 0), note_of_base(base)


def note_of_base(base: int) -> str:
    """Encode the metadata of a commit: the generation, empty for the first one."""
    return str(base // GENERATION) if base else ""


def place_of(offset: int, note: str) -> int:
    """Return the place of a committed offset; the reverse of ``InputPlaces.committed``."""
    return int(note or 0) * GENERATION + offset
