"""Division of a task's devices among its dispatchers.

Every dispatcher computes the division from the plan alone. Of n devices of a type, each of D
dispatchers gets n // D, and n mod D of them get one more. These extra devices rotate over the
types, so that every dispatcher has a device if there are at least D. Within a type, rendezvous
hashing assigns devices to dispatchers: the loss of a device moves few of the others.
"""

from collections.abc import Mapping
from hashlib import blake2b

from operators.dispatch.dispatch_queue import Part


def own_workers(kinds: Mapping[str, str], part: Part) -> frozenset[str]:
    """Return the workers that a dispatcher sends to; ``kinds`` has the type of each worker."""
    if part.of == 1:
        return frozenset(kinds)
    own: set[str] = set()
    first = 0  # first dispatcher to get an extra device
    for kind in sorted(set(kinds.values())):
        workers = sorted(worker for worker, its in kinds.items() if its == kind)
        each, rest = divmod(len(workers), part.of)
        room = [each + ((index - first) % part.of < rest) for index in range(part.of)]
        own |= _own_of(workers, room, part)
        first = (first + rest) % part.of
    return frozenset(own)


def _own_of(workers: list[str], room: list[int], part: Part) -> set[str]:
    """Return a dispatcher's workers of one type; ``room`` is the number for each dispatcher."""
    pairs = sorted((_score(w, index), w, index) for w in workers for index in range(part.of))
    left, taken, own = [*room], set[str](), set[str]()
    for _, worker, index in pairs:
        if worker not in taken and left[index]:
            taken.add(worker)
            left[index] -= 1
            if index == part.index:
                own.add(worker)
    return own


def _score(worker: str, index: int) -> bytes:
    return blake2b(f"{index}/{worker}".encode(), digest_size=8).digest()
