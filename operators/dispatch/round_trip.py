"""Round trip between a dispatcher and a device, measured without the device's own time, and when a
device ends what it was sent."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from control.policies.kairos.dispatch_options import LEAD
from schemas.pipeline import Policy

WEIGHT = 0.1  # weight of the newest round trip in the mean
LONGEST_S = 0.02
NEWEST = 100  # newest round trips that count for the 95th percentile
REFRESH = 32  # round trips after which the 95th percentile is recomputed


class Outstanding(Protocol):
    """What a device was sent: a query or a batch, sent at ``sent_s``."""

    sent_s: float
    predicted_s: float


class RoundTrip:
    """``mean_s`` is a moving mean, ``slow_s`` the 95th percentile of the newest round trips."""

    __slots__ = ("_newest_s", "_planned_s", "_seen", "mean_s", "slow_s")

    def __init__(self, planned_s: float) -> None:
        self.mean_s = self.slow_s = self._planned_s = planned_s
        self._newest_s: deque[float] = deque(maxlen=NEWEST)
        self._seen = 0

    def measured(self, seconds: float) -> None:
        """Record a round trip; a negative one, caused by clock skew, counts as 0."""
        trip_s = max(seconds, 0.0)
        self.mean_s += WEIGHT * (trip_s - self.mean_s)
        self._newest_s.append(trip_s)
        self._seen += 1
        if self._seen % REFRESH == 0:
            ranked = sorted(self._newest_s)
            self.slow_s = min(ranked[int(0.95 * (len(ranked) - 1))], LONGEST_S)

    def forget(self) -> None:
        """Reset to the planned round trip."""
        self.mean_s = self.slow_s = self._planned_s
        self._newest_s.clear()

    def ends_s(self, now: float, predicted_s: float, after_s: float = 0.0) -> float:
        """Return when work that is sent now ends at a device that is free at ``after_s``."""
        return max(after_s, now + self.mean_s / 2) + predicted_s

    def free_s(self, now: float, left: Sequence[Outstanding]) -> float:
        """Return when a device has finished ``left``, in order, as its completion comes now.

        The first of them began one hop ago, when the completed one ended, or later, when it
        arrived.
        """
        hop_s = self.mean_s / 2
        begun_s = max([now - hop_s, *[each.sent_s + hop_s for each in left[:1]]])
        return begun_s + sum([each.predicted_s for each in left])

    @property
    def usual_s(self) -> float:
        """The mean, capped at ``LONGEST_S``: while a broker pauses, an uncapped mean would make the
        dispatcher give everything up."""
        return min(self.mean_s, LONGEST_S)

    def lead_s(self, policy: Policy) -> float:
        """Return how many seconds before a device is free it may get work ahead."""
        asked: float | None = LEAD.of(policy)
        return self.usual_s if asked is None else asked
