"""What has a worker counted since it last reported? Counts begin at 0 with every life of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.records import Report

NONE: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class News:
    """A worker's report that is newer than the one before. ``before`` are that one's counts,
    ``seconds`` ago: None from a new worker, empty from a new life of a known one."""

    report: Report
    before: Mapping[str, float] | None
    seconds: float | None  # None: not of the same life

    def since(self, name: str) -> float:
        """How much more of something there is."""
        return self.report.counts.get(name, 0.0) - (self.before or NONE).get(name, 0.0)


@dataclass(frozen=True, slots=True)
class ReportDeltas:
    """The last report of every worker; ``take`` gives the next state."""

    _last: Mapping[str, Report] = field(default_factory=dict)

    def take(self, report: Report) -> tuple["ReportDeltas", News | None]:
        """After a report, and what is new in it; None where it is older than what was known, or
        not a worker's."""
        if report.role != "worker":
            return self, None
        before = self._last.get(report.node)
        if before is None:
            news = News(report, None, None)
        elif (report.incarnation, report.sent_s) <= (before.incarnation, before.sent_s):
            return self, None
        elif report.incarnation > before.incarnation:
            news = News(report, NONE, None)
        else:
            news = News(report, before.counts, report.sent_s - before.sent_s)
        return ReportDeltas({**self._last, report.node: report}), news
