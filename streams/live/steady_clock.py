"""A clock that never steps: the wall time at the start, continued by a monotonic clock.

A backward step of the wall clock (NTP, an operator, a migrated virtual machine) would delay a
node's timers by the step; a forward step would end queries early. The steady clock is slewed
towards the wall clock instead, by at most ``SLEW``.
"""

from collections.abc import Callable
from typing import NamedTuple

SLEW = 0.01  # seconds per second
LOOK_S = 1.0  # between two readings of the wall clock

Clock = Callable[[], float]


class _Anchor(NamedTuple):
    monotonic_s: float
    at_s: float
    slew: float  # seconds per second, during the next ``LOOK_S``


class SteadyClock:
    """A callable that returns Unix seconds, which never go back; any thread may call it."""

    __slots__ = ("_anchor", "_monotonic", "_wall")

    def __init__(self, wall: Clock, monotonic: Clock) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._anchor = _Anchor(monotonic(), wall(), 0.0)

    def __call__(self) -> float:
        since_s, at_s, slew = self._anchor
        monotonic_s = self._monotonic()
        passed_s = monotonic_s - since_s
        if passed_s < LOOK_S:
            return at_s + passed_s + passed_s * slew
        # Slewed no longer: after hours of a suspended host, the clock would be off by minutes.
        now = at_s + passed_s + LOOK_S * slew
        # A single assignment: a concurrent call sees the old anchor or the new one.
        slew = min(SLEW, max(-SLEW, (self._wall() - now) / LOOK_S))
        self._anchor = _Anchor(monotonic_s, now, slew)
        return now

    @property
    def behind_s(self) -> float:
        """Seconds by which the wall clock is ahead of this one."""
        return self._wall() - self()
