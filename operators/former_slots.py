"""Find the slots of the outputs topic that hold notices from before a change of
``egress_partitions``.

Egress takes the notices of an input partition in the order of their places: a notice closes what
lies below it. The order holds within one slot. After a change ingress sends the notices of a
partition to another slot, so it begins once egress has closed what it noticed in the former one.
"""

from collections.abc import Mapping


def former_slots(
    places: Mapping[int, int], notes: Mapping[int, Mapping[int, int]], egress_partitions: int
) -> tuple[int, ...]:
    """Return the slots whose present records egress has to close before ingress begins.

    ``places`` are the first places that ingress reads, by input partition. ``notes`` are those of
    egress' commits for every slot that the topic has, empty for a slot without a commit. The slot
    with the highest note of a partition had its notices last. Without any note it is unknown, and
    every other slot counts.
    """
    found = {
        slot
        for partition, place in places.items()
        for slot in _last(partition, place, notes)
        if slot != partition % egress_partitions
    }
    return tuple(sorted(found))


def _last(partition: int, place: int, notes: Mapping[int, Mapping[int, int]]) -> list[int]:
    """Return the slots that may hold notices of a partition which are not closed.

    Two slots with the same note are both returned: egress has closed nothing since the change.
    """
    closed = {slot: note[partition] for slot, note in notes.items() if partition in note}
    highest = max(closed.values(), default=0)
    if highest >= place:
        return []
    return [slot for slot, upto in closed.items() if upto == highest] or list(notes)
