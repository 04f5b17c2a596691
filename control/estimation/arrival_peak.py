"""The highest recent arrival rate, from cumulative counts.

The rate is averaged over the last ``LONG_S`` seconds. If the rate over the last ``SHORT_S`` is
higher by more than ``SIGMAS`` standard deviations of a Poisson process, demand has jumped and the
short-term rate counts.
"""

import math
from collections import deque
from itertools import dropwhile

MEMORY_S = 15.0  # at least; devices are rented at once and released after this delay
SHORT_S, LONG_S = 3.0, 10.0
SIGMAS = 3.0
SPACING_S = 0.5  # between readings that are kept
SILENT_S = 5.0  # without a reading for longer the rate is unknown

Readings = deque[tuple[float, float]]  # time, queries up to then


def keep_reading(readings: Readings, arrived: float, at_s: float, for_s: float) -> None:
    """Add a count, unless another came within ``SPACING_S``; keep those of the last ``for_s``. A
    smaller count than before resets the readings: the topic was recreated."""
    if readings and arrived < readings[-1][1]:
        readings.clear()
    if readings and at_s - readings[-1][0] < SPACING_S:
        return
    readings.append((at_s, arrived))
    while at_s - readings[0][0] > for_s + SPACING_S:
        readings.popleft()


class ArrivalPeak:
    """Readings of a count, and recent rates.

    Rates are kept for ``MEMORY_S``, or for the boot time of a device if that is longer.
    """

    def __init__(self, boot_s: float = 0.0) -> None:
        self._memory_s = max(MEMORY_S, boot_s)
        self._readings: Readings = deque()
        self._rates: deque[tuple[float, float]] = deque()  # time, queries/s

    def expect(self, rate_qps: float, now: float) -> None:
        """Add an assumed rate, one that was not counted."""
        self._rates.append((now, rate_qps))

    def see(self, arrived: float, at_s: float) -> None:
        """Add a count."""
        keep_reading(self._readings, arrived, at_s, LONG_S)

    def qps(self, now: float) -> float | None:
        """Return the peak; None if no recent count is available, or after a silence no recent rate
        yet. Call about once a second."""
        if not self._readings or now - self._readings[-1][0] > SILENT_S:
            return None
        last_s, _ = self._readings[-1]
        if last_s - self._readings[0][0] >= SHORT_S - SPACING_S:
            self._rates.append((now, self._rate()))
        while self._rates and now - self._rates[0][0] > self._memory_s:
            self._rates.popleft()
        return max((rate for _, rate in self._rates), default=None)

    def _rate(self) -> float:
        long_qps, short_qps = self._over(LONG_S), self._over(SHORT_S)
        noise = SIGMAS * math.sqrt(max(long_qps, 1 / SHORT_S) / SHORT_S)
        return short_qps if short_qps > long_qps + noise else long_qps

    def _over(self, seconds: float) -> float:
        last_s, last = self._readings[-1]
        since = last_s - seconds - SPACING_S / 2
        first_s, first = next(dropwhile(lambda each: each[0] < since, self._readings))
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
