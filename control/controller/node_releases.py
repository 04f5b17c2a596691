"""The schema release that every node of the pipeline reads, by their reports.

It falls at once when a node with an earlier release reports. It rises only after ``HOLD_S`` without
such a report, so that a frozen node that resumes finds no record that it cannot read.
"""

from schemas.records import Plan, Report
from schemas.release import READS, RELEASE, UNDECLARED

HOLD_S = 60.0


class NodeReleases:
    """The release that nodes write; ``agreed`` is 0 before the first plan."""

    __slots__ = ("_heard", "_since_s", "agreed")

    def __init__(self) -> None:
        self.agreed = 0
        self._heard: dict[int, float] = {}  # release -> time of the last report of its nodes
        self._since_s = float("-inf")

    def resume(self, plan: Plan, now: float) -> None:
        """Start with the release of a plan from before a restart."""
        self.agreed, self._since_s = plan.release or UNDECLARED, now

    def observe(self, report: Report, now: float) -> bool:
        """Record a report; return whether it lowers the release that all nodes write."""
        release = min(int(report.counts.get(READS, UNDECLARED)), RELEASE)
        self._heard[release] = now
        falls = release < self.agreed
        if falls:
            self.agreed = release
        return falls

    def agree(self, now: float) -> int:
        """Return the ``release`` of a new plan."""
        heard = [each for each, at_s in self._heard.items() if now - at_s <= HOLD_S]
        least = min(heard, default=UNDECLARED)
        if now - self._since_s >= HOLD_S or not self.agreed:
            self.agreed = max(self.agreed, least)
        return 0 if self.agreed == UNDECLARED else self.agreed
