"""A clock that never steps: the wall's time at the start, carried on by a monotonic clock.

A step of the wall clock (NTP, an operator, a virtual machine that moves) would silence a node's
timers for as long as it goes back, and end queries early where it goes forward. The steady clock
is drawn towards the wall's instead, by at most ``SLEW``.
"""

from collections.abc import Callable
from typing import NamedTuple

SLEW = 0.01  # seconds per second
LOOK_S = 1.0  # between two looks at the wall clock

Clock = Callable[[], float]


class _Anchor(NamedTuple):
    monotonic_s: float
    at_s: float
    rate: float


class SteadyClock:
    """Calling it gives seconds since the epoch; they never go back. Any thread may call it."""

    __slots__ = ("_anchor", "_monotonic", "_wall")

    def __init__(self, wall: Clock, monotonic: Clock) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._anchor = _Anchor(monotonic(), wall(), 1.0)

    def __call__(self) -> float:
        anchor, monotonic_s = self._anchor, self._monotonic()
        passed_s = monotonic_s - anchor.monotonic_s
        now = anchor.at_s + passed_s * anchor.rate
        if passed_s >= LOOK_S:
            # One assignment: a thread that calls meanwhile sees the old anchor or the new one.
            slew = min(SLEW, max(-SLEW, (self._wall() - now) / LOOK_S))
            self._anchor = _Anchor(monotonic_s, now, 1.0 + slew)
        return now

    @property
    def behind_s(self) -> float:
        """By how much the wall clock is ahead of this one."""
        return self._wall() - self()
