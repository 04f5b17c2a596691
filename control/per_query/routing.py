"""Routing by the plan's shares."""

from collections.abc import Iterable
from operator import add

from schemas.records import Route

EQUAL = 1e-9  # smaller differences are rounding errors


class WeightedRoundRobin:
    """Smooth weighted round robin over the slots of one task.

    In any n successive picks each slot gets its share of n to within about one pick, so that even
    short windows match the plan. Picks are deterministic: equal routes give equal sequences.
    """

    __slots__ = ("_credit", "_equal", "_shares", "_slots", "_turn")

    def __init__(self, shares: Iterable[tuple[int, float]]) -> None:
        """``shares`` are (slot, share); shares are positive and need not sum to 1."""
        listed = [(slot, share) for slot, share in shares if share > 0]
        self._slots = [slot for slot, _ in listed]
        total = sum(share for _, share in listed) or 1.0
        self._shares = [share / total for _, share in listed]
        # A lead for earlier slots breaks ties, which rounding errors would decide otherwise.
        self._credit = [-EQUAL * place for place in range(len(listed))]
        # Equal shares use plain round robin, without sums over sixty slots for every query.
        self._equal = max(self._shares, default=0.0) - min(self._shares, default=0.0) < EQUAL
        self._turn = -1

    def __bool__(self) -> bool:
        return bool(self._slots)

    def resume(self, slot: int) -> None:
        """Continue after ``slot`` if shares are equal; it need not be one of the slots."""
        before = ((each, place) for place, each in enumerate(self._slots) if each <= slot)
        self._turn = max(before, default=(-1, -1))[1]  # routes may list slots in any order

    def follow(self, before: "WeightedRoundRobin") -> None:
        """Continue where ``before``, with other slots or shares, has stopped.

        Otherwise every plan would start with the same slots: at one plan and five items per second,
        the slot with the smallest share would get none.
        """
        if before._turn >= 0:
            self.resume(before._slots[before._turn])
        if self._equal or before._equal:
            return
        kept = dict(zip(before._slots, before._credit, strict=True))
        credit = [kept.get(slot, new) for slot, new in zip(self._slots, self._credit, strict=True)]
        mean = sum(credit) / len(credit)  # picks keep the sum of all credit
        self._credit = [each - mean for each in credit]

    def pick(self) -> int:
        """Return the next slot; there must be one."""
        if self._equal:
            self._turn = (self._turn + 1) % len(self._slots)
            return self._slots[self._turn]
        credit = self._credit = list(map(add, self._credit, self._shares))
        best = self._turn = credit.index(max(credit))
        credit[best] -= 1.0
        return self._slots[best]


class Turns:
    """Picks of a ``WeightedRoundRobin`` in runs: each slot several times in a row."""

    __slots__ = ("_spread", "left", "slot")

    def __init__(self, spread: WeightedRoundRobin) -> None:
        self._spread = spread
        self.slot = -1  # of the current run
        self.left = 0

    def __bool__(self) -> bool:
        return bool(self._spread)

    def change(self, spread: WeightedRoundRobin) -> None:
        """Use other slots or shares from the next run on, continuing after the last slot."""
        spread.follow(self._spread)
        spread.resume(self.slot)
        self._spread, self.left = spread, 0

    def begin(self, run: int) -> None:
        """Begin a run of that length at the next slot."""
        self.slot, self.left = self._spread.pick(), run

    def pick(self, run: int) -> tuple[int, int]:
        """Return the next slot and the remaining picks of it; ``run`` is a new run's length."""
        if not self.left:
            self.begin(run)
        self.left -= 1
        return self.slot, self.left


def spreads(routes: Iterable[Route], source: str) -> dict[str, WeightedRoundRobin]:
    """Return one ``WeightedRoundRobin`` per task for a sender: over its own routes if the plan has
    any, else over the common ones. A task without a slot has none."""
    shares: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for route in routes:
        shares.setdefault((route.task, route.source), []).append((route.slot, route.share))
    tasks = sorted({task for task, _ in shares})
    found = (
        (task, WeightedRoundRobin(shares.get((task, source)) or shares.get((task, ""), [])))
        for task in tasks
    )
    return {task: spread for task, spread in found if spread}
