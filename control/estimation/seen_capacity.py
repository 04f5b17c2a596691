"""The part of a plan's capacity that is seen to be there, from how queries end.

A plan's capacity follows from the profile. Where devices are slower, or share a machine, ingress
would admit more than they serve: queues stay full, and nearly every answer is late. Of the queries
that end in a window of ``WINDOW_S``, with m the share of the admitted ones that are late or
dropped although they had the SLO that the plan is made for,

    m > MISSED      level <- level x KEPT, where the window before was so too; admission is at
                    ``DRAIN`` of it for a window, so that the queues empty
    m <= MISSED     level <- min(1, level x GROWTH), x RETURN where ingress refused none

A plan that brings more capacity, from C to C', is trusted with what it adds:

    level <- (level x C + C' - C) / C'

Deadlines that no plan promised (already over as ingress read them, or nearer than the SLO) say
nothing about the capacity: a client that sends such queries harms itself only.

The window after a drained one is not judged: its queries were admitted before. Multiplicative
decrease and slow growth, as in congestion control (Chiu and Jain 1989). The level is at most 1: a
plan that keeps its word is left alone.
"""

from dataclasses import dataclass

from schemas.records import Report

WINDOW_S = 1.0
MISSED = 0.1
FEWEST = 10  # queries in a window that can show an overload
KEPT, DRAIN = 0.9, 0.5
LEAST = 0.05
GROWTH, RETURN = 1.02, 1.25
_ENDS = ("answered", "late", "dropped", "refused", "unpromised")


@dataclass(slots=True)
class _Ended:
    """Queries that ended, by how."""

    good: float = 0.0
    missed: float = 0.0
    refused: float = 0.0


class SeenCapacity:
    """The share of the planned capacity to admit by; ``observe`` and ``serves`` update it in
    place."""

    __slots__ = (
        "_bad", "_draining", "_ends_s", "_last", "_level", "_most_qps", "_now", "_planned_qps",
    )  # fmt: skip

    def __init__(self) -> None:
        self._level = 1.0
        self._draining = False
        self._last: dict[str, Report] = {}  # by egress
        self._now = _Ended()  # of this window
        self._ends_s: float | None = None
        self._bad = 0  # windows in a row
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
        if before is not None and report.incarnation == before.incarnation:
            self._add(report, before)
        if self._ends_s is None:
            self._ends_s = report.sent_s + WINDOW_S
        elif report.sent_s >= self._ends_s:
            self._ends_s = report.sent_s + WINDOW_S
            ended, self._now = self._now, _Ended()
            self._judge(ended)

    def _add(self, report: Report, before: Report) -> None:
        now, then = report.counts, before.counts
        new = [max(0.0, now.get(name, 0.0) - then.get(name, 0.0)) for name in _ENDS]
        self._now.good += new[0]
        self._now.missed += max(0.0, new[1] + new[2] - new[4])
        self._now.refused += new[3]

    def _judge(self, ended: _Ended) -> None:
        admitted = ended.good + ended.missed
        missed = ended.missed / admitted if admitted >= FEWEST else 0.0
        if self._draining:
            self._draining, self._bad = False, -1
        elif missed <= MISSED:
            self._bad = 0
            self._level = min(1.0, self._level * (GROWTH if ended.refused > 0 else RETURN))
        else:
            self._bad += 1
            if self._bad > 1:
                self._level = max(LEAST, self._level * KEPT)
                self._most_qps = self._planned_qps
                self._draining = True
