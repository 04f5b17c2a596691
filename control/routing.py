"""Where next, given the plan's shares."""

from collections.abc import Iterable

from schemas.records import Route

EQUAL = 1e-9  # shares that differ by less are ordered by rounding errors


class Spread:
    """Smooth weighted round robin over the slots of one task.

    Of any n picks in a row each slot gets its share of n to within one pick or so, so that short
    windows match the plan too. No chance is involved: equal routes give equal sequences.
    """

    __slots__ = ("_credit", "_equal", "_shares", "_slots", "_turn")

    def __init__(self, shares: Iterable[tuple[int, float]]) -> None:
        """``shares`` are (slot, share); shares are positive and need not sum to 1."""
        listed = [(slot, share) for slot, share in shares if share > 0]
        self._slots = [slot for slot, _ in listed]
        total = sum(share for _, share in listed) or 1.0
        self._shares = [share / total for _, share in listed]
        self._credit = [0.0] * len(listed)
        # Equal shares take turns: no sums over sixty slots for every query.
        self._equal = max(self._shares, default=0.0) - min(self._shares, default=0.0) < EQUAL
        self._turn = -1

    def __bool__(self) -> bool:
        return bool(self._slots)

    def pick(self) -> int:
        """The next slot. The caller has made sure that there is one."""
        if self._equal:
            self._turn = (self._turn + 1) % len(self._slots)
            return self._slots[self._turn]
        credit, best, most = self._credit, 0, float("-inf")
        for i, share in enumerate(self._shares):
            credit[i] += share
            if credit[i] > most + EQUAL:
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
