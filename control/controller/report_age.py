"""Age of reports by their arrival, so that no two clocks have to agree.

A report's lag is the controller's clock at its arrival less its sender's clock when it was sent:
the transport time plus the difference of the two clocks. The least recent lag of a node is that of
its fastest report; a report's lag beyond it is its age.
"""

from dataclasses import dataclass

from schemas.records import Report

WINDOW_S = 30.0  # "recent" is one to two of these: clocks converge slowly


@dataclass(slots=True)
class _Lags:
    incarnation: float
    until_s: float
    least_s: float
    before_s: float = float("inf")  # the least of the previous window


class ReportAges:
    """The least lag of every node that reports."""

    __slots__ = ("_lags",)

    def __init__(self) -> None:
        self._lags: dict[tuple[str, str], _Lags] = {}

    def age_s(self, report: Report, now: float) -> float:
        """Return a report's age in seconds, against its sender's fastest one; 0 for the first."""
        name, lag_s = (report.pipeline, report.node), now - report.sent_s
        lags = self._lags.get(name)
        if lags is None or report.incarnation > lags.incarnation:
            self._lags[name] = _Lags(report.incarnation, now + WINDOW_S, lag_s)
            return 0.0
        if now >= lags.until_s:
            fresh = now < lags.until_s + WINDOW_S
            lags.before_s = lags.least_s if fresh else float("inf")
            lags.until_s, lags.least_s = now + WINDOW_S, lag_s
        lags.least_s = min(lags.least_s, lag_s)
        return lag_s - min(lags.least_s, lags.before_s)
