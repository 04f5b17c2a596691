"""The arrival rate that a worker sees, for the choice of a table: of the last half second.

A worker sees its own part of the load only, and by round robin its gaps are so even that they
tell more than the count of so short a window. With t0 the last arrival that is at least a window
old, and n arrivals since, of which the newest at tn,

    qps = min(n / (tn - t0), (n + 1) / (now - t0))

with the length of a burst for 1 where queries come in bursts.

Only what has come counts, and until a whole window was seen the load is taken to be without
bound, which chooses the table of the highest load: too fast a model costs accuracy for half a
second, too slow a one leaves a backlog.
"""

import math
from collections import deque

WINDOW_S = 0.5  # the paper's, section 6


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
