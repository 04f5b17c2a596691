"""Where does a query stand on the input topic, also after the topic went back?

A query is known by its place. Kafka's offsets go back where the topic is made anew or loses its end
(an unclean election, a host without power), so they alone would name two queries alike, and the
second would pass for a duplicate. Offsets of the n-th time that a partition went back are counted
from n * ``GENERATION`` on: places only grow.
"""

from collections.abc import Mapping

GENERATION = 1 << 40  # offsets; a partition that takes 10,000 queries/s needs three years for them


def next_generation(above: int) -> int:
    """Return the first place of the generation behind the one of ``above``."""
    return (above // GENERATION + 1) * GENERATION


class InputPlaces:
    """The places of one process's input partitions.

    ``upto`` are the places behind what was committed, by partition; ``missing`` counts the offsets
    that were passed over without a record, ``regressed`` how often a partition went back.
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

        ``held`` is the first place that must be read again after a restart (None: none must).
        """
        base = self._base.get(partition, 0)
        upto = self.upto[partition]
        done = upto if held is None else min(held, upto)
        return max(done - base, 0), note_of_base(base)


def note_of_base(base: int) -> str:
    """Return what is stored with a commit: the generation, empty for the first one."""
    return str(base // GENERATION) if base else ""


def place_of(offset: int, note: str) -> int:
    """Return the place of a committed offset; the reverse of ``InputPlaces.committed``."""
    return int(note or 0) * GENERATION + offset
