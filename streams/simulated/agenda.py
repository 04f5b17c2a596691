"""Virtual time: a heap of actions and their times.

Simultaneous events have a defined order: records in order of writing, then timers and finished jobs
by their scheduled time, then in order of scheduling.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

Action = Callable[[Any, Any], None]  # with its two arguments

LANDING = float("-inf")  # records precede every timer of the same instant


class Agenda:
    """The pending actions; ``now`` is the virtual time, in seconds."""

    __slots__ = ("heap", "now", "order")

    def __init__(self, start_s: float) -> None:
        self.now = start_s
        # (time, rank, order of scheduling, action, its two arguments)
        self.heap: list[tuple[float, float, int, Action, Any, Any]] = []
        # Makes ties deterministic and keeps actions from being compared.
        self.order: Callable[[], int] = count(1).__next__

    def push(self, at_s: float, rank: float, action: Action, one: Any, other: Any) -> None:
        """Call ``action(one, other)`` at ``at_s``, or now if that is past."""
        at_s = at_s if at_s > self.now else self.now
        heappush(self.heap, (at_s, rank, self.order(), action, one, other))

    def land(self, at_s: float, action: Action, one: Any) -> None:
        """Call ``action(one, at_s)`` at ``at_s``, which is not past."""
        heappush(self.heap, (at_s, LANDING, self.order(), action, one, at_s))

    def refuse_past(self, at_s: float) -> None:
        """Raise ``ValueError`` for a time that is past."""
        if at_s < self.now:
            raise ValueError(f"{at_s:g} s is in the past; the simulation is at {self.now:g} s")

    def step(self, until_s: float) -> bool:
        """Take the next action; return False if there is none up to ``until_s``."""
        if not self.heap or self.heap[0][0] > until_s:
            return False
        self.now, _, _, action, one, other = heappop(self.heap)
        action(one, other)
        return True

    def run(self, until_s: float) -> None:
        """Take every action up to ``until_s``."""
        heap = self.heap  # inlined from ``step``: a run spends its time in this loop
        while heap and heap[0][0] <= until_s:
            self.now, _, _, action, one, other = heappop(heap)
            action(one, other)
        self.now = max(self.now, until_s)
