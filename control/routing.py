"""Where next, given the plan's shares."""

from collections.abc import Iterable

from schemas.records import Route


class Spread:
    """Smooth weighted round robin over the slots of one task.

    Of any n picks in a row each slot gets its share of n to within one pick or so, so that short
    windows match the plan too. No chance is involved: equal routes give equal sequences.
    """

    __slots__ = ("_credit", "_shares", "_slots")

    def __init__(self, shares: Iterable[tuple[int, float]]) -> None:
        """``shares`` are (slot, share); shares are positive and need not sum to 1."""
        listed = [(slot, share) for slot, share in shares if share > 0]
        self._slots = [slot for slot, _ in listed]
        total = sum(share for _, share in listed) or 1.0
        self._shares = [share / total for _, share in listed]
        self._credit = [0.0] * len(listed)

    def __bool__(self) -> bool:
        return bool(self._slots)

    def pick(self) -> int:
        """The next slot. The caller has made sure that there is one."""
        if len(self._slots) == 1:
            return self._slots[0]
        credit, best, most = self._credit, 0, float("-inf")
        for i, share in enumerate(self._shares):
            credit[i] += share
            # A hair of tolerance: equal shares must not be ordered by rounding errors.
            if credit[i] > most + 1e-9:
                best, most = i, credit[i]
        credit[best] -= 1.0
        return self._slots[best]


def spreads(routes: Iterable[Route], source: str) -> dict[str, Spread]:
    """One ``Spread`` per task for a sender: its own routes where the plan has some, else all's."""
    shares: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for route in routes:
        shares.setdefault((route.task, route.source), []).append((route.slot, route.share))
    tasks = sorted({task for task, _ in shares})
    return {
        task: Spread(shares.get((task, source)) or shares.get((task, ""), [])) for task in tasks
    }
