"""Differences between a node's successive reports; counts start at 0 with each incarnation."""

from collections.abc import Mapping
from typing import NamedTuple

from schemas.records import Report

NONE: Mapping[str, float] = {}


class News(NamedTuple):
    """A node's new report, with the counts of its previous report.

    ``before`` is None for a new node and empty for a new incarnation of a known one.
    """

    report: Report
    before: Mapping[str, float] | None
    seconds: float | None  # since the previous report of this incarnation; None if none

    def since(self, name: str) -> float:
        """Return the increase of a count since the previous report."""
        return self.report.counts.get(name, 0.0) - (self.before or NONE).get(name, 0.0)


class ReportDeltas:
    """The last report of every node of one role. Updated in place, because a thousand workers
    report five times a second."""

    __slots__ = ("_last", "_role")

    def __init__(self, role: str) -> None:
        self._role = role
        self._last: dict[str, Report] = {}

    def take(self, report: Report) -> News | None:
        """Remember a report and return its news; None if it is stale or of another role."""
        if report.role != self._role:
            return None
        before = self._last.get(report.node)
        if before is None:
            news = News(report, None, None)
        elif (report.incarnation, report.sent_s) <= (before.incarnation, before.sent_s):
            return None
        elif report.incarnation > before.incarnation:
            news = News(report, NONE, None)
        else:
            news = News(report, before.counts, report.sent_s - before.sent_s)
        self._last[report.node] = report
        return news

    def counts(self, node: str) -> Mapping[str, float]:
        """Return the counts of a node's last report; {} if there is none."""
        last = self._last.get(node)
        return NONE if last is None else last.counts

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._last.pop(node, None)
