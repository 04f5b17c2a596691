"""How much slower than its profile is a device just now? Its own batches tell.

A device that takes c times as long as its profile says, under an SLO D and a load q, stands where
one that keeps to its profile stands under D / c and c q: time is stretched, and nothing else. So
tables that were made from the profile are read with the slack divided and the load multiplied by
c. Not from a paper: RAMSIS takes the profile for what will be.
"""

from collections.abc import Callable

MEMORY = 20  # batches; the weight of those before fades by so much
NOISE = 1.05  # a device that is less slow than this keeps to its profile


class LocalSlowdown:
    """Of one device. ``planned`` says how long a variant is planned to take for a batch of some
    size; 0: it was never measured."""

    __slots__ = ("_begun", "_planned", "_planned_s", "_took_s")

    def __init__(self, planned: Callable[[str, int], float]) -> None:
        self._planned = planned
        self._begun: set[str] = set()
        self._planned_s = self._took_s = 0.0

    def ran(self, variant: str, batch: int, took_s: float) -> None:
        """A batch took so long."""
        if variant not in self._begun:
            self._begun.add(variant)  # the first batch tells of its loading, not of its pace
            return
        planned_s = self._planned(variant, batch)
        if planned_s > 0:
            self._planned_s += planned_s - self._planned_s / MEMORY
            self._took_s += took_s - self._took_s / MEMORY

    @property
    def stretch(self) -> float:
        """The seconds that a planned second takes: 1 where the device keeps to its profile or is
        faster."""
        if self._took_s <= NOISE * self._planned_s:
            return 1.0
        return self._took_s / self._planned_s
