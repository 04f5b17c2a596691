"""The schema release that every node of the pipeline reads, by their reports.

It falls at once, when a node reports that reads less, and rises only after ``HOLD_S`` without any
such report: a node that was frozen finds nothing that it cannot read when it goes on.
"""

from schemas.records import Plan, Report
from schemas.release import READS, RELEASE, UNDECLARED

HOLD_S = 60.0


class NodeReleases:
    """The release in which nodes write; ``agreed`` is 0 before the first plan."""

    __slots__ = ("_heard", "_since_s", "agreed")

    def __init__(self) -> None:
        self.agreed = 0
        self._heard: dict[int, float] = {}  # release -> time of the last report of its nodes
        self._since_s = float("-inf")

    def resume(self, plan: Plan, now: float) -> None:
        """Begin with the release of a plan of an earlier controller."""
        self.agreed, self._since_s = plan.release or UNDECLARED, now

    def observe(self, report: Report, now: float) -> bool:
        """Record a report; return whether all have to write in an earlier release from now on."""
        release = min(int(report.counts.get(READS, UNDECLARED)), RELEASE)
        self._heard[release] = now
        falls = release < self.agreed
        if falls:
            self.agreed = release
        return falls

    def agree(self, now: float) -> int:
        """Return the ``release`` of a plan made now."""
        heard = [each for each, at_s in self._heard.items() if now - at_s <= HOLD_S]
        least = min(heard, default=UNDECLARED)
        if now - self._since_s >= HOLD_S or not self.agreed:
            self.agreed = max(self.agreed, least)
        return 0 if self.agreed == UNDECLARED else self.agreed
