"""The time from a dispatcher to a device and back, as measured, beside what the device takes."""

from collections import deque

from control.policies.kairos.dispatch_options import LEAD
from schemas.pipeline import Policy

WEIGHT = 0.1  # of the newest round trip in the mean
LONGEST_S = 0.02
NEWEST = 100  # round trips of which the 95th percentile is known
REFRESH = 32  # round trips after which it is computed anew


class RoundTrip:
    """``mean_s`` is a moving mean, ``slow_s`` the 95th percentile of the newest round trips."""

    __slots__ = ("_newest_s", "_planned_s", "_seen", "mean_s", "slow_s")

    def __init__(self, planned_s: float) -> None:
        self.mean_s = self.slow_s = self._planned_s = planned_s
        self._newest_s: deque[float] = deque(maxlen=NEWEST)
        self._seen = 0

    def measured(self, seconds: float) -> None:
        """Take a round trip; a negative one, of unlike clocks, counts as 0."""
        trip_s = max(seconds, 0.0)
        self.mean_s += WEIGHT * (trip_s - self.mean_s)
        self._newest_s.append(trip_s)
        self._seen += 1
        if self._seen % REFRESH == 0:
            ranked = sorted(self._newest_s)
            self.slow_s = min(ranked[int(0.95 * (len(ranked) - 1))], LONGEST_S)

    def forget(self) -> None:
        """Go by the planned round trip again."""
        self.mean_s = self.slow_s = self._planned_s
        self._newest_s.clear()

    @property
    def usual_s(self) -> float:
        """The mean, without what a pause of the broker adds until completions come: by that,
        everything would be given up."""
        return min(self.mean_s, LONGEST_S)

    def lead_s(self, policy: Policy) -> float:
        """Return the seconds before a device is free from which it may get work ahead."""
        asked: float | None = LEAD.of(policy)
        return self.usual_s if asked is None else asked
