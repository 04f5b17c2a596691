"""Round a fractional schedule: floor it, fill it greedily, improve it by an integer program.

A vertex of the program over classes has few fractional columns, so the floor loses few sessions.
The greedy fill tries the remaining sessions in order of column value at the program's prices. The
integer program over a few sessions, the rest fixed, runs if the bound allows an improvement.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from control.policies.compass.packing import gpus
from control.policies.compass.schedule.classes import Ints
from control.policies.compass.schedule.relaxation import (
    ProgramData,
    Relaxed,
    column_values,
    restricted_program,
)

EPSILON = 1e-6
EXACT_COLUMNS = 1_500  # columns up to which the integer program takes all
MEND_SESSIONS = 150  # beyond that, classes that it may move
NODES = 300
GAP = 1e-5


@dataclass(slots=True)
class PackedSessions:
    """Sessions taken by column, and their packing. ``sizes[b]`` counts items by size, ``used[b]``
    the empty GPUs opened for bin ``b``, ``room[t]`` the GPUs left in tier ``t``."""

    data: ProgramData
    free: tuple[tuple[int, int, int], ...]
    taken: Ints
    sizes: Ints
    used: list[int]
    room: list[float]

    @classmethod
    def of(
        cls, data: ProgramData, free: tuple[tuple[int, int, int], ...], taken: Ints
    ) -> "PackedSessions":
        """Return the packing of these sessions; ``fits`` may be False."""
        found = data.classes
        per_demand = np.bincount(found.demand, taken, minlength=len(found.sizes))
        sizes = np.tensordot(per_demand, found.sizes, axes=1).astype(np.int64)
        used = [gpus(sizes[b].tolist(), free[b]) for b in range(len(free))]
        room = data.limit.copy()
        np.subtract.at(room, data.tier, used)
        return cls(data, free, taken, sizes, used, room.tolist())

    @property
    def fits(self) -> bool:
        """Whether every tier has enough GPUs."""
        return all(room >= 0 for room in self.room)

    @property
    def usd_per_h(self) -> float:
        """$ an hour of the opened GPUs."""
        return float(np.dot(self.data.price, self.used))

    @property
    def weight(self) -> float:
        """The total weight of the served sessions."""
        found = self.data.classes
        return float(found.weight[found.owner] @ self.taken)

    def more(self, column: int) -> list[tuple[int, int]] | None:
        """Return the bins that one more session of this column changes, with the additional GPUs
        of each; None if it does not fit."""
        counts = self.data.classes.sizes[self.data.classes.demand[column]]
        changed = []
        room = list(self.room)
        for b in np.flatnonzero(counts.any(axis=1)).tolist():
            extra = gpus((self.sizes[b] + counts[b]).tolist(), self.free[b]) - self.used[b]
            room[self.data.tier[b]] -= extra
            if room[self.data.tier[b]] < 0:
                return None
            changed.append((b, extra))
        return changed

    def take(self, column: int, changed: list[tuple[int, int]]) -> None:
        """Serve one more session by this column; ``changed`` is the result of ``more``."""
        counts = self.data.classes.sizes[self.data.classes.demand[column]]
        for b, extra in changed:
            self.sizes[b] += counts[b]
            self.used[b] += extra
            self.room[self.data.tier[b]] -= extra
        self.taken[column] += 1


def rounded(
    data: ProgramData, free: tuple[tuple[int, int, int], ...], relaxed: Relaxed
) -> PackedSessions:
    """Return an integer schedule near the fractional one; in cost, sessions may stay unplaced."""
    filling = _floor(data, free, np.floor(relaxed.taken + EPSILON).astype(np.int64))
    left = _left(filling)
    values = column_values(data, relaxed.prices)
    owner = data.classes.owner
    order = np.lexsort((np.arange(len(values)), -values))
    order = order[left[owner[order]] > 0]
    fill = _fill_cheapest if data.cost else _fill_best
    fill(filling, left, order)
    return filling


def _left(filling: PackedSessions) -> Ints:
    found = filling.data.classes
    served = np.bincount(found.owner, filling.taken, minlength=len(found.count))
    left: Ints = (found.count - served).astype(np.int64)
    return left


def _floor(
    data: ProgramData, free: tuple[tuple[int, int, int], ...], taken: Ints
) -> PackedSessions:
    """Return the floor; drop sessions of least weight while rounded-up pools overfill a tier."""
    filling = PackedSessions.of(data, free, taken)
    owner = data.classes.owner
    while not filling.fits:
        full = {t for t, room in enumerate(filling.room) if room < 0}
        uses = np.array([[data.tier[b] in full for b in range(len(free))]]) & (
            data.classes.sizes[data.classes.demand].any(axis=2)
        )
        columns = np.flatnonzero(uses.any(axis=1) & (taken > 0))
        worst = columns[np.argmin(data.classes.weight[owner[columns]])]
        taken[worst] -= 1
        filling = PackedSessions.of(data, free, taken)
    return filling


def _fill_best(filling: PackedSessions, left: Ints, order: Ints) -> None:
    """Serve remaining sessions, best column first. GPUs only fill, so a demand that did not fit is
    not tried again."""
    owner, demand = filling.data.classes.owner.tolist(), filling.data.classes.demand.tolist()
    refused: set[int] = set()
    for column in order.tolist():
        while left[owner[column]] > 0 and demand[column] not in refused:
            changed = filling.more(column)
            if changed is None:
                refused.add(demand[column])
                break
            filling.take(column, changed)
            left[owner[column]] -= 1


def _fill_cheapest(filling: PackedSessions, left: Ints, order: Ints) -> None:
    """Place every session by the column of least additional cost, classes in ``order``."""
    owner, price = filling.data.classes.owner, filling.data.price
    columns: dict[int, list[int]] = {}
    for column in order.tolist():
        columns.setdefault(int(owner[column]), []).append(column)
    for each, options in columns.items():
        while left[each] > 0:
            best: tuple[float, int, list[tuple[int, int]]] | None = None
            for column in options:
                changed = filling.more(column)
                if changed is None:
                    continue
                cost = sum(float(price[b]) * extra for b, extra in changed)
                if best is None or cost < best[0] - EPSILON:
                    best = (cost, column, changed)
            if best is None:
                break
            filling.take(best[1], best[2])
            left[each] -= 1


def mended(filling: PackedSessions, relaxed: Relaxed) -> PackedSessions:
    """Return the schedule improved by an integer program over some sessions, if better."""
    data = filling.data
    columns = _movable(filling, relaxed)
    fixed = filling.taken.copy()
    fixed[columns] = 0
    solved = _integer(data, columns, fixed)
    if solved is None:
        return filling
    taken = fixed.copy()
    taken[columns] = solved
    other = PackedSessions.of(data, filling.free, taken)
    return other if other.fits and _better(other, filling) else filling


def _better(one: PackedSessions, other: PackedSessions) -> bool:
    if one.data.cost:
        ours, theirs = _left(one).sum(), _left(other).sum()
        return (ours, one.usd_per_h) < (theirs, other.usd_per_h)
    return one.weight > other.weight


def _movable(filling: PackedSessions, relaxed: Relaxed) -> Ints:
    """Return all columns if there are few, else those of rounded, unplaced and sampled classes."""
    data, found = filling.data, filling.data.classes
    if data.columns <= EXACT_COLUMNS:
        return np.arange(data.columns)
    fraction = np.abs(relaxed.taken - np.round(relaxed.taken)) > EPSILON
    unserved = _left(filling) > 0
    loose = np.bincount(found.owner[fraction], minlength=len(found.count)) > 0
    first = np.flatnonzero(loose | (unserved & data.cost))
    others = np.linspace(0, len(found.count) - 1, MEND_SESSIONS).astype(np.int64)
    classes = np.unique(np.concatenate([first[:MEND_SESSIONS], others]))
    return np.flatnonzero(np.isin(found.owner, classes))


def _integer(data: ProgramData, columns: Ints, fixed: Ints) -> Ints | None:
    found = data.classes
    base = np.bincount(found.demand, fixed, minlength=len(data.takes)) @ data.takes
    program = restricted_program(data, columns, data.free - base, data.limit)
    constraints = [optimize.LinearConstraint(program.upper, ub=program.upper_rhs)]
    if program.equal is not None:
        assert program.equal_rhs is not None
        rhs = program.equal_rhs
        constraints.append(optimize.LinearConstraint(program.equal, lb=rhs, ub=rhs))
    solved = optimize.milp(
        program.objective,
        integrality=np.ones(len(program.objective), dtype=np.int64),
        bounds=optimize.Bounds(0, np.inf),
        constraints=constraints,
        options={"node_limit": NODES, "mip_rel_gap": GAP},
    )
    if solved.x is None:
        return None
    whole: Ints = np.round(np.asarray(solved.x, dtype=np.float64)[: len(columns)]).astype(np.int64)
    return whole


def unplaced(filling: PackedSessions) -> int:
    """Return the number of sessions with plans that are not served."""
    return int(_left(filling).sum())
