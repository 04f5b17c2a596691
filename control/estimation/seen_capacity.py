"""The part of a plan's capacity that is seen to be there, from how queries end.

A plan's capacity follows from the profile. Where devices are slower, or share a machine, ingress
would admit more than they serve: queues stay full, and many queries are late. Of the queries that
end in a window of ``WINDOW_S``, let m be the share of the admitted ones that is late or dropped
although it had the SLO that the plan is made for, and q those per second that are answered, late
ones too, with the part ``SERVED`` of those dropped: some are dropped behind the task that is short.
With C the capacity of the plan,

    m > MISSED      level <- level x KEPT in every second such window in a row, and from the
                    ``FALLS``-th time on min(level x KEPT, q / C); if m > CLEAR, admission is then
                    at ``DRAIN`` of it for a window, so that the queues empty
    m <= MISSED     level <- min(1, level x f): f is RETURN where ingress refused none, else CREEP
                    where most answers were tight (a queue stands), else the lesser of RETURN and
                    GROWTH^n in the n-th such window in a row

A plan that brings more capacity, from C to C', is trusted with what it adds:

    level <- (level x C + C' - C) / C'

Deadlines that no plan promised (already over as ingress read them, or nearer than the SLO) say
nothing about the capacity: a client that sends such queries harms itself only.

The window after a drained one is not judged: its queries were admitted before. Decrease to what was
served and slow growth, as in congestion control (Chiu and Jain 1989; Mascolo et al. 2001 for the
decrease). The level is at most 1: a plan that keeps its word is left alone.
"""

from dataclasses import dataclass

from schemas.records import Report

WINDOW_S = 1.0
MISSED = 0.1
FEWEST = 10  # queries in a window that can show an overload
CLEAR = 0.5
FALLS = 3  # a plan that has begun may lack its capacity for seconds
KEPT, DRAIN = 0.9, 0.5
SERVED = 0.5  # of the dropped
LEAST = 0.05
CREEP, GROWTH, RETURN = 1.005, 1.05, 1.25
_ENDS = ("answered", "late", "dropped", "refused", "unpromised", "tight")


@dataclass(slots=True)
class _Ended:
    """Queries that ended since ``since_s``, by how."""

    since_s: float
    good: float = 0.0
    missed: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    tight: float = 0.0  # of the good


class SeenCapacity:
    """The share of the planned capacity to admit by; ``observe`` and ``serves`` update it in
    place."""

    __slots__ = (
        "_bad", "_clean", "_draining", "_falls", "_last", "_level", "_most_qps", "_now",
        "_planned_qps",
    )  # fmt: skip

    def __init__(self) -> None:
        self._level = 1.0
        self._draining = False
        self._last: dict[str, Report] = {}  # by egress
        self._now: _Ended | None = None  # of this window
        self._bad = self._clean = self._falls = 0  # windows and falls in a row
        # The capacity of the plan in force, and the most that was planned since the level fell; 0:
        # not known, as after another control app.
        self._planned_qps = self._most_qps = 0.0

    @property
    def share(self) -> float:
        """The part of the capacity to admit now, 0..1."""
        return self._level * DRAIN if self._draining else self._level

    def serves(self, admitted_qps: float | None) -> None:
        """Note the plan in force, by the queries per second that it admits at the present share
        (None: no limit)."""
        if admitted_qps is None:
            return
        planned_qps, most_qps = admitted_qps / self.share, self._most_qps
        self._planned_qps = planned_qps
        if planned_qps > most_qps:
            if most_qps > 0:
                self._level = 1.0 - (1.0 - self._level) * most_qps / planned_qps
            self._most_qps = planned_qps

    def observe(self, report: Report) -> None:
        """Update the share with a report; only an egress's report changes it."""
        if report.role != "egress":
            return
        before = self._last.get(report.node)
        if before is not None and report.incarnation < before.incarnation:
            return
        self._last[report.node] = report
        window = self._now = self._now or _Ended(report.sent_s)
        if before is not None and report.incarnation == before.incarnation:
            _add(window, report, before)
        if report.sent_s >= window.since_s + WINDOW_S:
            self._now = _Ended(report.sent_s)
            self._judge(window, report.sent_s - window.since_s)

    def _judge(self, ended: _Ended, seconds: float) -> None:
        admitted = ended.good + ended.missed
        missed = ended.missed / admitted if admitted >= FEWEST else 0.0
        if self._draining:
            self._draining, self._bad = False, -1
        elif missed <= MISSED:
            self._bad = self._falls = 0
            self._level = min(1.0, self._level * self._growth(ended))
        else:
            self._bad, self._clean = self._bad + 1, 0
            if self._bad > 1:
                self._level = max(LEAST, self._fallen(ended, seconds))
                self._most_qps = self._planned_qps
                self._draining = missed > CLEAR

    def _growth(self, ended: _Ended) -> float:
        if ended.refused == 0:
            return RETURN
        if 2 * ended.tight > ended.good:
            self._clean = 0
            return CREEP
        self._clean += 1
        return min(RETURN, GROWTH**self._clean)

    def _fallen(self, ended: _Ended, seconds: float) -> float:
        """Return the level below the present one."""
        self._bad, self._falls = 0, self._falls + 1
        level = self._level * KEPT
        if self._falls < FALLS or self._planned_qps == 0:
            return level
        late = min(ended.late, ended.missed)
        served = ended.good + late + SERVED * (ended.missed - late)
        return min(level, served / seconds / self._planned_qps)


def _add(window: _Ended, report: Report, before: Report) -> None:
    now, then = report.counts, before.counts
    new = [max(0.0, now.get(name, 0.0) - then.get(name, 0.0)) for name in _ENDS]
    window.good += new[0]
    window.missed += max(0.0, new[1] + new[2] - new[4])
    window.late += new[1]
    window.refused += new[3]
    window.tight += new[5]
