"""Solve the linear program of the fluid bound by column generation.

A pattern sends every size class to one type of the mix. Its column a holds, by type, the device
seconds that a query takes on average. The program of throughput_bounds.py, over patterns:

    max sum_s x_s   s.t.  sum_s a_s x_s <= n,  x >= 0        x_s: queries/s that follow pattern s

Its duals are the prices w. The cheapest pattern at prices w sends each class to its cheapest type
and costs g_S(w), so a basis is optimal once g_S(w) reaches 1. The primal simplex has as many rows
as the mix has types, and starts from the patterns and the basis of earlier mixes.
"""

import numpy as np

from control.policies.kairos.device_mixes import Floats

ENDS = 1e-11  # of the cost of a pattern
AGREE = 1e-9  # throughput and bound, relative
EXACT = 1e-10  # between devices used and available, relative to the largest number
MOST_CHECKS = 3
PIVOT = 1e-12  # least pivot element, of a column of size 1
MOST_PIVOTS = 200  # per row of the basis
ROOM = 2048  # initial capacity in columns
MOST_DUAL_PIVOTS = 20  # per row of the basis

Routes = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class PatternSimplex:
    """The program of all mixes of one set of types.

    ``seconds`` [types, classes] are infinite where a type does not serve a class; every class is
    served by a type. ``probabilities`` [classes] are above 0.
    """

    def __init__(self, seconds: Floats, probabilities: Floats) -> None:
        serves = np.isfinite(seconds)
        self._unit_s = float(seconds[serves].mean())
        self._seconds = np.where(serves, seconds / self._unit_s, 0.0)
        self._blocked = np.where(serves, 0.0, np.inf)
        self._probabilities = probabilities
        self._weighted = self._seconds * probabilities
        self._types = len(seconds)
        self._classes = np.arange(len(probabilities))
        # Rows are columns of the program: one unused device of each type, then the patterns.
        self._room: tuple[Floats, Floats] = np.empty((ROOM, self._types)), np.empty(ROOM)
        self._room[0][: self._types], self._room[1][: self._types] = np.eye(self._types), 0.0
        self._show(self._types)
        self._routes: list[Routes] = []  # of the patterns: the type of each class
        self._basis = list(range(self._types))
        self._amounts: Floats = np.zeros(self._types)  # of the columns of the basis

    def add(self, prices: Floats) -> None:
        """Add the cheapest pattern at each of the prices [prices, types]."""
        for each in prices:
            routes = self._cheapest(each)
            self._add(routes, self._column(routes))

    def shares(self) -> Floats:
        """Return the share of all queries of each class that each type serves, [types, classes], in
        the last solution."""
        found = np.zeros(self._seconds.shape)
        for column, amount in zip(self._basis, self._amounts, strict=True):
            if column >= self._types and amount > 0:
                found[self._routes[column - self._types], self._classes] += amount
        carried: Floats = found * (self._probabilities / found.sum(axis=0))
        return carried

    def _add(self, routes: Routes, pattern: Floats) -> None:
        self._routes.append(routes)
        columns, gains = self._room
        number = len(self._gains)
        if number == len(gains):
            self._room = np.concatenate([columns, columns]), np.concatenate([gains, gains])
            columns, gains = self._room
        columns[number], gains[number] = pattern, 1.0
        self._show(number + 1)

    def _show(self, number: int) -> None:
        """Set the columns and their gains to the first rows of the room for them."""
        self._columns: Floats = self._room[0][:number]
        self._gains: Floats = self._room[1][:number]

    def solve(self, mix: Floats) -> tuple[float, float, Floats]:
        """Return the throughput of a mix [types], its bound by the prices found, both in queries/s,
        and the prices. The two values are equal up to rounding."""
        throughput, bound, prices = self._simplex(mix, *self._start(mix))
        if (
            not abs(throughput - bound) <= AGREE * throughput
        ):  # near-singular bases have lost precision
            throughput, bound, prices = self._simplex(mix, *self._unused(mix))
        return throughput / self._unit_s, bound / self._unit_s, prices

    def _simplex(
        self, mix: Floats, inverse: Floats, amounts: Floats
    ) -> tuple[float, float, Floats]:
        """Return the results of ``solve`` in internal units; change the given basis in place."""
        prices: Floats = np.zeros(self._types)
        least, checks = 0.0, 0
        for _ in range(MOST_PIVOTS * (self._types + 1)):
            duals = self._gains[self._basis] @ inverse
            np.maximum(duals, 0.0, out=prices)
            entering = self._entering(duals)
            if entering is None:
                routes = self._cheapest(prices)
                pattern = self._column(routes)
                least = float(pattern @ prices)
                if least >= 1 - ENDS:
                    if checks == MOST_CHECKS or self._uses(mix, amounts):
                        break
                    # The pivots have lost precision: continue from a new inverse.
                    inverse, amounts = self._start(mix)
                    checks += 1
                    continue
                self._add(routes, pattern)
                entering = len(self._gains) - 1
            self._pivot(entering, inverse, amounts)
        self._amounts = amounts
        throughput = float(self._gains[self._basis] @ amounts)
        bound = float(mix @ prices) / least if least > 0 else np.inf
        return throughput, bound, prices

    def _uses(self, mix: Floats, amounts: Floats) -> bool:
        """Return whether these amounts of the basis use exactly the mix."""
        used = amounts @ self._columns[self._basis]
        return bool(np.abs(used - mix).max() <= EXACT * mix.max())

    def _start(self, mix: Floats) -> tuple[Floats, Floats]:
        """Return the inverse and the amounts of a feasible basis of the mix.

        The last basis is optimal for another mix, so its duals are feasible here as well, and the
        dual simplex makes its amounts positive. If it does not converge, the basis is the unused
        devices.
        """
        inverse: Floats = np.linalg.inv(self._columns[self._basis].T).astype(np.float64)
        amounts: Floats = inverse @ mix
        for _ in range(MOST_DUAL_PIVOTS * self._types):
            leaving = int(amounts.argmin())
            if amounts[leaving] >= 0:
                return inverse, amounts
            entering = self._replacement(leaving, inverse)
            if entering is None:
                break
            change = inverse @ self._columns[entering]
            self._exchange(entering, leaving, change, inverse, amounts)
        return self._unused(mix)

    def _unused(self, mix: Floats) -> tuple[Floats, Floats]:
        """Return the inverse and the amounts of the basis of unused devices."""
        self._basis = list(range(self._types))
        return np.eye(self._types), mix.astype(float)

    def _replacement(self, leaving: int, inverse: Floats) -> int | None:
        """Return the column that replaces a row of the basis and keeps the duals feasible."""
        change = self._columns @ inverse[leaving]
        change[self._basis] = 0.0
        usable = change < -PIVOT
        if not usable.any():
            return None
        missing = self._columns @ (self._gains[self._basis] @ inverse) - self._gains
        ratio = np.divide(missing, -change, out=np.full(len(change), np.inf), where=usable)
        return int(ratio.argmin())

    def _entering(self, prices: Floats) -> int | None:
        reduced = self._gains - self._columns @ prices
        best = int(reduced.argmax())
        return best if reduced[best] > ENDS else None

    def _pivot(self, entering: int, inverse: Floats, amounts: Floats) -> None:
        """Bring a column into the basis; change the inverse and the amounts in place."""
        change = inverse @ self._columns[entering]
        usable = change > PIVOT
        ratio = np.divide(amounts, change, out=np.full(self._types, np.inf), where=usable)
        self._exchange(entering, int(ratio.argmin()), change, inverse, amounts)
        np.maximum(amounts, 0.0, out=amounts)

    def _exchange(
        self, entering: int, leaving: int, change: Floats, inverse: Floats, amounts: Floats
    ) -> None:
        """Replace a row of the basis by a column, ``change`` in terms of the basis; change the
        inverse and the amounts in place."""
        row = inverse[leaving] / change[leaving]
        step = amounts[leaving] / change[leaving]
        inverse -= change[:, None] * row
        inverse[leaving] = row
        amounts -= step * change
        amounts[leaving] = step
        self._basis[leaving] = entering

    def _cheapest(self, prices: Floats) -> Routes:
        """Return the cheapest pattern at given prices: the type of each class."""
        found: Routes = (prices[:, None] * self._seconds + self._blocked).argmin(axis=0)
        return found

    def _column(self, routes: Routes) -> Floats:
        """Return the column of a pattern."""
        taken = self._weighted[routes, self._classes]
        found: Floats = np.bincount(routes, taken, self._types).astype(np.float64)
        return found
