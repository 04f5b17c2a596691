"""Exact packing of GPU shares: compute the fewest GPUs that hold items of 1 to 4 quarters.

Let n1..n4 count the items of each size and r1..r3 the GPUs in use that have 1..3 quarters free.
The items fit ``g`` empty GPUs beside the partly used ones if and only if

    n4                 <= g                 (whole GPUs)
    n3 +   n4          <= g + r3            (one large item per GPU)
    n2 +   n3 + 2 n4   <= 2 g + r2 + r3     (halves)
    n2 + 2 n3 + 2 n4   <= 2 g + r2 + 2 r3   (halves beside three-quarter items)
    n1 + 2 n2 + 3 n3 + 4 n4 <= 4 g + r1 + 2 r2 + 3 r3   (volume)

Without partly used GPUs that is ``max(n4 + n3 + ceil(n2 / 2), ceil(volume / 4))``. Best fit in
decreasing order of size attains it (``place``). Items of a *pool*, seats in the batches of one
model, share GPUs with that pool only (Compass, Appendix D.2), so each (tier, pool) is packed apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from control.problem.tiers import QUARTERS as QUARTERS

Sizes = tuple[int, int, int, int]  # items of 1, 2, 3 and 4 quarters

# One row per condition: the coefficients of items of 1..4 quarters, of empty GPUs, and of GPUs
# with 1..3 quarters free.
TAKES: tuple[Sizes, ...] = ((0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 1, 2), (0, 1, 2, 2), (1, 2, 3, 4))
GIVES: tuple[int, ...] = (1, 1, 2, 2, 4)
FREE_GIVES: tuple[tuple[int, int, int], ...] = (
    (0, 0, 0),
    (0, 0, 1),
    (0, 1, 1),
    (0, 1, 2),
    (1, 2, 3),
)
# The rows that imply the others while no GPU is partly used.
EMPTY_ROWS = (3, 4)


def gpus(items: Sequence[int], free: Sequence[int] = (0, 0, 0)) -> int:
    """Return the fewest empty GPUs that hold ``items``, counted by size.

    ``free`` counts the partly used GPUs with 1, 2 and 3 quarters free.
    """
    n1, n2, n3, n4 = items
    r1, r2, r3 = free
    return max(
        n4,
        n3 + n4 - r3,
        _up(n2 + n3 + 2 * n4 - r2 - r3, 2),
        _up(n2 + 2 * n3 + 2 * n4 - r2 - 2 * r3, 2),
        _up(n1 + 2 * n2 + 3 * n3 + 4 * n4 - r1 - 2 * r2 - 3 * r3, 4),
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit)


@dataclass(frozen=True, slots=True)
class Placed:
    """``gpu[i]`` is the GPU of item ``i``; ``free[g]`` the free quarters of GPU ``g``."""

    gpu: tuple[int, ...]
    free: tuple[int, ...]


def packed_items(quarters: Sequence[int], free: Sequence[int] = ()) -> Placed:
    """Place every item, opening the fewest new GPUs.

    ``free`` holds the free quarters of the GPUs in use; new GPUs follow them. Items already on
    GPUs are not moved.
    """
    left = list(free)
    by_room = [
        [g for g, room in enumerate(left) if room == r] for r in range(QUARTERS + 1)
    ]  # heaps
    gpu = [0] * len(quarters)
    for index in sorted(range(len(quarters)), key=lambda each: (-quarters[each], each)):
        size = quarters[index]
        fitting = next((heap for heap in by_room[size:] if heap), None)
        if fitting is None:
            left.append(QUARTERS)
        gpu[index] = g = len(left) - 1 if fitting is None else heappop(fitting)
        left[g] -= size
        heappush(by_room[left[g]], g)
    return Placed(tuple(gpu), tuple(left))
