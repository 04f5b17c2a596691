"""The part of a plan's capacity that is seen to be there, from how queries end.

A plan's capacity follows from the profile. Where devices are slower, or share a machine, ingress
would admit more than they serve: queues stay full, and many queries are late. Of the queries that
end in a window (``ended_queries.py``), let m be the share of the admitted ones that is late or
dropped although it had the SLO that the plan is made for, and q those per second that are answered,
late ones too, with the part ``SERVED`` of those dropped: some are dropped behind the task that is
short.
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

from typing import NamedTuple

from control.estimation.ended_queries import Window

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


class AdmittedPlan(NamedTuple):
    """The plan in force: its capacity at the speeds of the profile in queries per second (0: not
    known, as after another control app), the part of it that is admitted, and whether no plan
    would bring more."""

    capacity_qps: float = 0.0
    admitted: float = 1.0
    final: bool = False


class SeenCapacity:
    """The share of the planned capacity to admit by; ``judge`` and ``serves`` update it in
    place."""

    __slots__ = (
        "_bad", "_clean", "_draining", "_falls", "_known", "_least", "_level", "_most_qps", "_plan",
    )  # fmt: skip

    def __init__(self) -> None:
        self._level = self._known = 1.0
        self._least: float | None = None  # of the level while a queue stands
        self._draining = False
        self._bad = self._clean = self._falls = 0  # windows and falls in a row
        self._plan = AdmittedPlan()
        self._most_qps = 0.0  # the largest capacity of a plan since the level fell; 0: not known

    @property
    def share(self) -> float:
        """The part of the capacity to admit now, 0..1."""
        return self._level * DRAIN if self._draining else self._level

    def serves(self, capacity_qps: float, admitted_qps: float, *, final: bool) -> None:
        """Note the plan in force, by its capacity at the speeds of the profile and by what it
        admits, both in queries per second; ``final``: no plan would bring more."""
        if admitted_qps < LESS * self._plan.admitted * self._plan.capacity_qps:
            self._bad = min(self._bad, -1)
        self._plan = AdmittedPlan(capacity_qps, admitted_qps / capacity_qps, final)
        most_qps = self._most_qps
        if capacity_qps > most_qps:
            if most_qps > 0:
                self._level = 1.0 - (1.0 - self._level) * most_qps / capacity_qps
                self._known = 1.0 if capacity_qps > MORE * most_qps else self._known
            self._most_qps = capacity_qps

    def judge(self, ended: Window) -> None:
        """Update the share with the queries that ended in a window."""
        missed = ended.missed / ended.admitted if ended.admitted >= FEWEST else 0.0
        if self._draining:
            self._draining, self._bad = False, -1
        elif missed <= MISSED:
            self._bad = self._falls = 0
            self._grow(ended)
        else:
            self._bad, self._clean = self._bad + 1, 0
            if self._bad > 1:
                self._fall(ended)
                self._draining = missed > CLEAR

    def _grow(self, ended: Window) -> None:
        if self._level > NEAR * self._plan.admitted:
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

    def _fall(self, ended: Window) -> None:
        plan = self._plan
        self._bad, self._falls, self._least = 0, self._falls + 1, None
        self._level = max(LEAST, KEPT * min(self._level, plan.admitted))
        self._most_qps = plan.capacity_qps
        at_once = plan.final and not ended.loading and ended.stands
        if plan.capacity_qps > 0 and (at_once or self._falls >= FALLS):
            served_qps = ended.served_qps + SERVED * ended.dropped_qps
            self._level = max(LEAST, min(self._level, served_qps / plan.capacity_qps))
        if not ended.loading:
            self._known = self._level
