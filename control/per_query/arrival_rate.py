"""The arrival rate at one worker over the last half second, for the choice of a table.

A worker observes its own part of the load only, and round robin makes its gaps so even that they
are more precise than the count of so short a window. With t0 the last arrival that is at least a
window old, and n arrivals since, the newest at tn,

    qps = min(n / (tn - t0), (n + 1) / (now - t0))

with the length of a burst for 1 where queries come in bursts.

The rate is causal. Until a whole window was observed it is infinite, which chooses the table of the
highest load: too fast a model costs accuracy for half a second, too slow a one leaves a backlog.
"""

import math
from collections import deque

WINDOW_S = 0.5  # the paper's, section 6


class OwnLoad:
    """The arrival rate at one worker, counted since ``began_s``."""

    __slots__ = ("_times", "_window_s")

    def __init__(self, began_s: float, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._times = deque((began_s,))

    def arrived(self, items: int, now: float) -> None:
        """Record ``items`` arrivals at ``now``."""
        self._times.extend([now] * items)

    def qps(self, now: float, run: int = 1) -> float:
        """Return items per second, infinite until a whole window was observed; ``run`` is the
        length of the next burst."""
        times, since_s = self._times, now - self._window_s
        if times[0] > since_s:
            return math.inf
        while len(times) > 1 and times[1] <= since_s:
            times.popleft()
        came, before_s = len(times) - 1, times[0]
        bound = (came + run) / (now - before_s)
        return min(came / (times[-1] - before_s), bound) if came else bound
