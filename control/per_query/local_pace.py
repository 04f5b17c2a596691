"""A device's current pace against its profile, from its own batches.

A device that takes c times its profiled latency, under an SLO D and a load q, is equivalent to one
at its profiled latency under D / c and c q, because only time is scaled. Tables made from the
profile are therefore read with the slack divided and the load multiplied by c. A device that is
faster than its profile does not drop items that it finishes in time although the profile predicts
that they are late. Not from a paper: RAMSIS assumes that the profile is exact.
"""

from collections import deque
from collections.abc import Callable

MEMORY = 20  # batches; the time constant of the decaying sums
NOISE = 1.05  # below this stretch a device counts as running at its profile's speed
RECENT = 100  # batches over which the longest is kept
ENOUGH = 10  # batches before a device is called faster than its profile, or its likely pace known
LIKELY = 0.95  # part of the recent batches


class LocalPace:
    """The pace of one device.

    ``planned`` maps a variant and a batch size to the profiled seconds; 0: not measured.
    """

    __slots__ = ("_begun", "_planned", "_planned_s", "_recent", "_took_s")

    def __init__(self, planned: Callable[[str, int], float]) -> None:
        self._planned = planned
        self._begun: set[str] = set()
        self._planned_s = self._took_s = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT)  # seconds per planned second

    def ran(self, variant: str, batch: int, took_s: float) -> None:
        """Record a batch's duration in seconds."""
        if variant not in self._begun:
            self._begun.add(variant)  # a variant's first batch includes loading
            return
        planned_s = self._planned(variant, batch)
        if planned_s > 0:
            self._recent.append(took_s / planned_s)
            self._planned_s += planned_s - self._planned_s / MEMORY
            self._took_s += took_s - self._took_s / MEMORY

    @property
    def stretch(self) -> float:
        """Seconds per planned second; 1 where the device runs at its profile's speed or faster."""
        if self._took_s <= NOISE * self._planned_s:
            return 1.0
        return self._took_s / self._planned_s

    @property
    def shrink(self) -> float:
        """Seconds per planned second of a device that is faster than its profile, else 1."""
        if len(self._recent) < ENOUGH or self._took_s * NOISE >= self._planned_s:
            return 1.0
        return self._took_s / self._planned_s

    @property
    def likely(self) -> float:
        """Seconds per planned second, times ``shrink``, within which ``LIKELY`` of the recent
        batches ended; at least 1, and 1 until it is known."""
        if len(self._recent) < ENOUGH:
            return 1.0
        return max(1.0, sorted(self._recent)[int(LIKELY * len(self._recent))] / self.shrink)

    @property
    def longest(self) -> float:
        """Seconds per planned second of the longest recent batch, at least 1."""
        return max((1.0, *self._recent))
