"""The newest measurements of a path's accuracy, as far back as they agree with each other.

The window adapts to change, after ADWIN (Bifet and Gavalda, "Learning from time-changing data with
adaptive windowing", 2007): if the 99.9 % intervals of the newest and of the earlier measurements
are disjoint, the earlier ones are discarded. ADWIN tests every cut with its own bound. This window
tests only ``CUTS``, with the intervals of ``accuracy_sums.py``, because errors in the parts of an
answer are correlated.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from control.estimation.accuracy.accuracy_sums import AccuracySums

MOST_RECENT = 800  # queries
FRESH_S = 600.0  # older measurements are forgotten
CUTS = (25, 50, 100, 200, 400)
EVERY = 5  # queries between two tests
Z_999 = 3.290527  # of the normal distribution, two-sided 99.9 %

Table = NDArray[np.float64]  # a row for each query: right, of, time of the answer


class RecentAccuracy:
    """A window over the newest measured queries of one path, in order of measurement."""

    __slots__ = ("_added", "_newest")

    def __init__(self) -> None:
        self._newest: deque[tuple[float, float, float]] = deque(maxlen=MOST_RECENT)
        self._added = 0

    def add(self, right: float, of: float, answered_s: float) -> None:
        """Add a query, ``right`` of ``of`` parts of which are right, answered at ``answered_s``."""
        self._newest.append((right, of, answered_s))
        self._added += 1
        if self._added % EVERY == 0:
            self._cut()

    def forget(self, now: float) -> None:
        """Discard queries that were answered more than ``FRESH_S`` ago."""
        while self._newest and self._newest[0][2] < now - FRESH_S:
            self._newest.popleft()

    @property
    def since_s(self) -> float:
        """When the oldest query of the window was answered; infinite for an empty one."""
        return min((at_s for _, _, at_s in self._newest), default=float("inf"))

    def sums(self) -> AccuracySums:
        """Return the sums over the window."""
        return _sums(self._table())

    def _table(self) -> Table:
        return np.array(self._newest, dtype=np.float64).reshape(-1, 3)

    def _cut(self) -> None:
        table = self._table()
        for newer in CUTS:
            older = len(table) - newer
            if older < CUTS[0]:
                return
            before = _sums(table[:older]).interval(Z_999)
            after = _sums(table[older:]).interval(Z_999)
            if before[0] > after[1] or before[1] < after[0]:
                for _ in range(older):
                    self._newest.popleft()
                return


def _sums(table: Table) -> AccuracySums:
    right, of = table[:, 0], table[:, 1]
    return AccuracySums(
        queries=len(table), right=float(right.sum()), of=float(of.sum()),
        right_right=float(right @ right), right_of=float(right @ of), of_of=float(of @ of),
    )  # fmt: skip
