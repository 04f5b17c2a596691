"""The part of a plan's capacity that is seen to be there, from how queries end.

A plan's capacity follows from the profile. Where devices are slower, or share a machine, ingress
would admit more than they serve: queues stay full, and many queries are late. Of the queries that
end in a window of ``WINDOW_S``, let m be the share of the admitted ones that is late or dropped
although it had the SLO that the plan is made for, and q those per second that are answered, late
ones too, with the part ``SERVED`` of those dropped: some are dropped behind the task that is short.
With C the capacity of the plan at the speeds of the profile, and ``level`` the part of it to admit,

    m > MISSED      in every second such window in a row, level <- KEPT x what is admitted; and
                    level <- min(level, q / C) from the ``FALLS``-th time on, or at once where a
                    queue stands, no worker loads and no plan would bring more; if m > CLEAR,
                    admission is then at ``DRAIN`` of it for a window, so that the queues empty
    m <= MISSED     level <- min(1, level x f) with f = min(g^n, most) in the n-th such window in a
                    row, and f = most where ingress refused none

A queue stands where half of the answers were tight. Without many misses the level then falls by
``EASED`` a window instead, to ``EASED_TO`` of what it was when that began.

The level is known up to where it last fell while no worker loaded: below it g and most are
``RETURN``, beyond it ``PROBE``. A plan that brings more capacity, from C to C', is trusted with
what it adds; if that is ``MORE``, no level is known:

    level <- (level x C + C' - C) / C'

Deadlines that no plan promised (already over as ingress read them, or nearer than the SLO) say
nothing about the capacity: a client that sends such queries harms itself only.

The window after a drained one, or after a plan that admits ``LESS``, is not judged: its queries
were admitted before. Decrease to what was served and slow growth, as in congestion control (Chiu
and Jain 1989; Mascolo et al. 2001 for the decrease; Brakmo and Peterson 1995 for the queue that
stands). The level is at most 1: a plan that keeps its word is left alone.
"""

from dataclasses import dataclass

from schemas.enumerations import NodeState
from schemas.records import Report

WINDOW_S = 1.0
MISSED = 0.1
FEWEST = 10  # queries in a window that can show an overload
CLEAR = 0.5
FALLS = 3  # a plan that has begun may lack its capacity for seconds
KEPT, DRAIN = 0.9, 0.5
SERVED = 0.5  # of the dropped
LEAST = 0.05
RETURN, PROBE = (1.05, 1.25), (1.03, 1.15)
EASED, EASED_TO = 0.98, 0.95
MORE, LESS = 1.05, 0.95
NEAR = 1.25  # a level that far above what is admitted is not tried
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

    @property
    def stands(self) -> bool:
        """Whether a queue stands: half of the answers at least were tight, if there were any."""
        return self.good + self.missed > 0 and 2 * self.tight >= self.good


class SeenCapacity:
    """The share of the planned capacity to admit by; ``observe`` and ``serves`` update it in
    place."""

    __slots__ = (
        "_bad", "_clean", "_draining", "_falls", "_final", "_known", "_last", "_least", "_level",
        "_loading", "_most_qps", "_now", "_planned_qps", "_tried",
    )  # fmt: skip

    def __init__(self) -> None:
        self._level = self._known = 1.0
        self._least: float | None = None  # of the level while a queue stands
        self._loading: dict[str, float] = {}  # workers that load -> when they said so
        self._draining = False
        self._last: dict[str, Report] = {}  # by egress
        self._now: _Ended | None = None  # of this window
        self._bad = self._clean = self._falls = 0  # windows and falls in a row
        # The capacity of the plan in force, and the most that was planned since the level fell; 0:
        # not known, as after another control app.
        self._planned_qps = self._most_qps = 0.0
        self._tried, self._final = 1.0, False  # of that capacity, what is admitted

    @property
    def share(self) -> float:
        """The part of the capacity to admit now, 0..1."""
        return self._level * DRAIN if self._draining else self._level

    def serves(self, planned_qps: float, admitted_qps: float, *, final: bool) -> None:
        """Note the plan in force, by its capacity at the speeds of the profile and by what it
        admits, both in queries per second; ``final``: no plan would bring more."""
        if admitted_qps < LESS * self._tried * self._planned_qps:
            self._bad = min(self._bad, -1)
        most_qps = self._most_qps
        self._planned_qps, self._tried = planned_qps, admitted_qps / planned_qps
        self._final = final
        if planned_qps > most_qps:
            if most_qps > 0:
                self._level = 1.0 - (1.0 - self._level) * most_qps / planned_qps
                self._known = 1.0 if planned_qps > MORE * most_qps else self._known
            self._most_qps = planned_qps

    def observe(self, report: Report) -> None:
        """Update the share with a report: an egress's, or a worker's for whether it loads."""
        if report.role == "worker":
            if report.state == NodeState.LOADING:
                self._loading[report.node] = report.sent_s
            else:
                self._loading.pop(report.node, None)
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
            self._grow(ended)
        else:
            self._bad, self._clean = self._bad + 1, 0
            if self._bad > 1:
                self._fall(ended, seconds)
                self._draining = missed > CLEAR

    def _grow(self, ended: _Ended) -> None:
        if self._level > NEAR * self._tried:
            return
        if self._level < 1.0 and ended.stands:
            self._clean = 0
            self._least = self._least or EASED_TO * self._level
            self._level = self._known = max(self._least, EASED * self._level)
            return
        self._least = None
        self._clean += 1
        growth, most = RETURN if self._level < self._known else PROBE
        if ended.refused:
            most = min(most, growth**self._clean)
        if self._level < self._known <= most * self._level:
            self._level, self._clean = self._known, 0
        else:
            self._level = min(1.0, most * self._level)
            self._known = max(self._known, self._level)

    def _fall(self, ended: _Ended, seconds: float) -> None:
        self._bad, self._falls, self._least = 0, self._falls + 1, None
        self._level = max(LEAST, KEPT * min(self._level, self._tried))
        self._most_qps = self._planned_qps
        loading = any(at_s >= ended.since_s for at_s in self._loading.values())
        stands = self._final and not loading and ended.stands
        if self._planned_qps > 0 and (stands or self._falls >= FALLS):
            late = min(ended.late, ended.missed)
            served = ended.good + late + SERVED * (ended.missed - late)
            self._level = max(LEAST, min(self._level, served / seconds / self._planned_qps))
        if not loading:
            self._known = self._level


def _add(window: _Ended, report: Report, before: Report) -> None:
    now, then = report.counts, before.counts
    new = [max(0.0, now.get(name, 0.0) - then.get(name, 0.0)) for name in _ENDS]
    window.good += new[0]
    window.missed += max(0.0, new[1] + new[2] - new[4])
    window.late += new[1]
    window.refused += new[3]
    window.tight += new[5]
