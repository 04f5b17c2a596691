"""The arrival rate that devices requested now have to carry, from cumulative counts.

Without a trend it is the highest recent rate (``arrival_peak.py``). Where the counts follow a line,
demand is read from it: ahead by the boot time of a device if it rises, but no further than the line
is long; and without the delay of the peak if it falls. A fall is believed after ``FALLS_S`` only,
as devices that were released too early take a boot time to return.

The line goes through as much of the last minute as agrees with one: sums of the residuals, over
blocks and over the newest seconds, must be as small as those of a Poisson process. A line that is
followed is given up for larger ones only, so that noise does not change the devices.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.estimation.arrival_peak import (
    LONG_S,
    SPACING_S,
    ArrivalPeak,
    Readings,
    keep_reading,
)

SPANS_S = (60.0, 45.0, 34.0)  # lengths of lines, the first that agrees counts
FALLS_S = 60.0
BLOCK_S = 10.0
NEWEST_S = (3.0, 6.0, 10.0)
# Standard deviations by which the sums may be off, to begin with a line and to go on with it: the
# newest residuals, and the squares of all.
BEGINS = (2.5, 1.0)
GOES_ON = (3.5, 3.0)
SLOPE_SIGMAS = 2.0  # of a slope that is a trend
NOISE_SIGMAS = 1.5  # by which the peak of rates over ``LONG_S`` exceeds a constant demand
DECIDED_S = 1.0  # from a change of demand to a request, beside the boot time

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class ArrivalLine:
    """A rate now and its change per second, over the last ``span_s``; ``sigma`` is the standard
    error of the slope."""

    qps: float
    slope: float
    span_s: float
    sigma: float

    @property
    def rises(self) -> bool:
        """Whether demand rises beyond noise."""
        return self.slope > SLOPE_SIGMAS * self.sigma

    @property
    def falls(self) -> bool:
        """Whether demand has fallen beyond noise for long enough."""
        return self.slope < -SLOPE_SIGMAS * self.sigma and self.span_s >= FALLS_S


class ArrivalForecast:
    """Readings of a count, and the demand that follows from them."""

    def __init__(self, boot_s: float = 0.0) -> None:
        self._peak = ArrivalPeak(boot_s)
        self._ahead_s = boot_s + DECIDED_S
        self._readings: Readings = deque()
        self._allowed = BEGINS

    def expect(self, rate_qps: float, now: float) -> None:
        """Add an assumed rate, one that was not counted."""
        self._peak.expect(rate_qps, now)

    def see(self, arrived: float, at_s: float) -> None:
        """Add a count."""
        self._peak.see(arrived, at_s)
        keep_reading(self._readings, arrived, at_s, SPANS_S[0])

    def qps(self, now: float) -> float | None:
        """Return the demand; None if it is unknown. Call about once a second."""
        peak_qps = self._peak.qps(now)
        line = None if peak_qps is None else line_through(self._readings, self._allowed)
        self._allowed = BEGINS if line is None else GOES_ON
        if peak_qps is None or line is None:
            return peak_qps
        if line.rises:
            return max(peak_qps, line.qps + line.slope * min(self._ahead_s, line.span_s))
        if line.falls:
            return min(peak_qps, line.qps + NOISE_SIGMAS * math.sqrt(line.qps / LONG_S))
        return peak_qps


def line_through(
    readings: Sequence[tuple[float, float]], allowed: tuple[float, float] = BEGINS
) -> ArrivalLine | None:
    """Return the longest line that agrees with the newest readings (time, count); None if none of
    ``SPANS_S`` does. ``allowed`` is ``BEGINS`` or ``GOES_ON``."""
    if len(readings) < 2:
        return None
    times, counts = np.array(readings, dtype=float).T
    since = times - times[-1]
    for span_s in SPANS_S:
        if since[0] <= SPACING_S - span_s:
            first = int(np.searchsorted(since, -span_s - SPACING_S / 2))
            line = _fitted(since[first:], np.diff(counts[first:]), span_s, allowed)
            if line is not None:
                return line
    return None


def _fitted(
    since: Floats, came: Floats, span_s: float, allowed: tuple[float, float]
) -> ArrivalLine | None:
    """Return the line through ``came`` queries between times; None if they disagree with one."""
    most_newest, most_squares = allowed
    lasted, at = np.diff(since), (since[1:] + since[:-1]) / 2
    whole = float(lasted.sum())
    mean, middle = float(came.sum()) / whole, float(at @ lasted) / whole
    spread = float(lasted @ (at - middle) ** 2)
    slope = float((came - mean * lasted) @ (at - middle)) / spread if spread > 0 else 0.0
    expected = lasted * np.maximum(mean + slope * (at - middle), 1 / whole)
    residual = came - expected
    for newest_s in NEWEST_S:
        late = at >= -newest_s
        if abs(float(residual[late].sum())) > most_newest * math.sqrt(float(expected[late].sum())):
            return None
    blocks = (-at // BLOCK_S).astype(int)
    off = np.bincount(blocks, residual) ** 2 / np.maximum(np.bincount(blocks, expected), 1.0)
    free = max(len(off) - 2, 1)
    if float(off.sum()) > free + most_squares * math.sqrt(2 * free):
        return None
    qps = max(mean - slope * middle, 0.0)
    return ArrivalLine(qps, slope, span_s, math.sqrt(max(mean, 1 / whole) / spread))
