"""How old is a report? By its arrival, so that no two clocks have to agree.

A report's lag is the controller's clock at its arrival less its sender's clock when it was sent:
its way here, plus what the two clocks differ by. The least lag of a node of late is that of its
fastest report; what another one needed beyond that is its age.
"""

from dataclasses import dataclass

from schemas.records import Report

WINDOW_S = 30.0  # "of late" is one to two of these: clocks are drawn to each other slowly


@dataclass(slots=True)
class _Lags:
    incarnation: float
    until_s: float
    least_s: float
    before_s: float = float("inf")  # the least of the window before


class ReportAges:
    """The least lag of every node that reports."""

    __slots__ = ("_lags",)

    def __init__(self) -> None:
        self._lags: dict[tuple[str, str], _Lags] = {}

    def age_s(self, report: Report, now: float) -> float:
        """How long ago a report was sent, compared with the fastest of its sender; 0 for its
        first one."""
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
