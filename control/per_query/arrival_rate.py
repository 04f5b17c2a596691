"""How much load is coming, as far as the choice of a table goes? Arrivals of the last half second.

From readings (t, a) of a count of arrivals, with the newest one at t1 and the last one that is at
least a window older at t0:

    qps = (a1 - a0) / (t1 - t0)

A worker sees its own part of the load only, and by round robin its gaps are so even that the gaps
tell more than the count of so short a window: with t0 the last arrival that is at least a window
old, and n arrivals since, of which the newest at tn,

    own qps = min(n / (tn - t0), (n + 1) / (now - t0))

with the length of a run for 1 where queries come in runs.

Only what has come counts, and until a whole window was seen the load is taken to be without
bound, which chooses the table of the highest load: too fast a model costs accuracy for half a
second, too slow a one leaves a backlog.
"""

import math
from collections import deque
from dataclasses import dataclass

WINDOW_S = 0.5  # the paper's, section 6


@dataclass(frozen=True, slots=True)
class RecentLoad:
    """An estimate; ``counted`` gives the next one."""

    window_s: float = WINDOW_S
    _readings: tuple[tuple[float, int], ...] = ()  # (time, arrivals so far), oldest first

    def counted(self, arrived: int, now: float) -> "RecentLoad":
        """The estimate after a reading of the arrivals so far; an older one changes nothing."""
        if self._readings and now <= self._readings[-1][0]:
            return self
        older = [reading for reading in self._readings if reading[0] <= now - self.window_s]
        kept = tuple(r for r in self._readings if r[0] > now - self.window_s)
        return RecentLoad(self.window_s, (*older[-1:], *kept, (now, arrived)))

    @property
    def qps(self) -> float:
        """Queries per second, infinite until a whole window was seen."""
        if not self._readings:
            return math.inf
        (since_s, before), (now, arrived) = self._readings[0], self._readings[-1]
        # Times are sums of floats; a window that is short by rounding was seen.
        if now - since_s < self.window_s * (1 - 1e-9):
            return math.inf
        return max(arrived - before, 0) / (now - since_s)


class OwnLoad:
    """The load of one worker, from its own arrivals. ``began_s``: it counts since then."""

    __slots__ = ("_times", "_window_s")

    def __init__(self, began_s: float, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._times = deque((began_s,))

    def arrived(self, items: int, now: float) -> None:
        """So many have come now."""
        self._times.extend([now] * items)

    def qps(self, now: float, run: int = 1) -> float:
        """Items per second, infinite until a whole window was seen; ``run``: so many come next."""
        times, since_s = self._times, now - self._window_s
        if times[0] > since_s:
            return math.inf
        while len(times) > 1 and times[1] <= since_s:
            times.popleft()
        came, before_s = len(times) - 1, times[0]
        bound = (came + run) / (now - before_s)
        return min(came / (times[-1] - before_s), bound) if came else bound
