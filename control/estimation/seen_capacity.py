"""The observed share of a plan's capacity, from the outcomes of queries.

A plan's capacity is computed from the profile. If devices are slower, or share a machine, ingress
would admit more than they serve, queues would stay full and many queries would be late. For the
queries that end in a window (``ended_queries.py``):

    m       share of the admitted queries that were late or dropped although they had the SLO of
            the plan
    q       answers per second, including late ones, plus ``SERVED`` of the dropped queries per
            second, because some are dropped downstream of the bottleneck task
    C       capacity of the plan at the speeds of the profile; for plans made at those speeds, at
            the speeds of the devices
    level   the part of C to admit

    m > MISSED      in every second such window in a row, level <- KEPT x what is admitted; and
                    level <- min(level, q / C) from the ``FALLS``-th fall in a row on, or at once if
                    a queue stands, no worker loads and no plan would add capacity; if m > CLEAR,
                    admission is at ``DRAIN`` of the level for a window, so that queues drain
    m <= MISSED     level <- min(1, level x f) with f = min(g^n, most) in the n-th such window in a
                    row, and f = most if ingress refused no query

A queue stands if at least half of the answers in time were tight. If m <= MISSED and a queue
stands, or ingress refuses queries and m > FEW, the level falls by ``EASED`` per window instead,
down to ``EASED_TO`` of its first value.

With SLO classes a queue stands in the slack ones first, as the earliest deadline goes first. Their
items then wait until their deadlines are as near as those of tight classes, and all classes miss
alike. If a queue stands in a class and ingress refuses queries, half of FEW is enough to ease
admission, and with fewer misses the level stays.

The known level is where the level last fell while no worker loaded. Below it g and most are
``RETURN``, above it ``PROBE``. A plan that raises the capacity from C to C' is trusted with the
addition; if the ratio exceeds ``MORE``, the known level is reset to 1:

    level <- (level x C + C' - C) / C'

Queries with deadlines that no plan promised (expired when ingress read them, or nearer than the
SLO) do not count, so that a client that sends them harms only itself.

The window after a drained one, or after a plan that admits ``LESS`` or has ``MORE`` capacity than
any since the last fall, is not judged, because its queries were admitted before. The decrease to
the served rate and the slow growth follow congestion control (Chiu and Jain 1989; Mascolo et al.
2001 for the decrease; Brakmo and Peterson 1995 for the standing queue). The level is at most 1, so
a plan that delivers its capacity is not throttled.
"""

from typing import NamedTuple

from control.estimation.ended_queries import Window

MISSED, FEW = 0.1, 0.03
FEWEST = 10  # queries in a window that can show an overload
CLEAR = 0.5
FALLS = 3  # a new plan may lack its capacity for seconds
KEPT, DRAIN = 0.9, 0.5
SERVED = 0.5  # part of the dropped queries
LEAST = 0.05
RETURN, PROBE = (1.05, 1.25), (1.03, 1.15)
EASED, EASED_TO = 0.98, 0.95
MORE, LESS = 1.05, 0.95
NEAR = 1.25  # the level stays as it is further above the admitted share


class AdmittedPlan(NamedTuple):
    """The plan in force: its capacity at the speeds of the profile in queries per second (0: not
    known, as after a restart), the admitted part of it, and whether no plan would add capacity."""

    capacity_qps: float = 0.0
    admitted: float = 1.0
    final: bool = False


class SeenCapacity:
    """The share of the planned capacity to admit; ``judge`` and ``serves`` update it in place."""

    __slots__ = (
        "_bad", "_clean", "_draining", "_falls", "_known", "_least", "_level", "_most_qps", "_plan",
    )  # fmt: skip

    def __init__(self) -> None:
        self._level = self._known = 1.0
        self._least: float | None = None  # lower bound of the level while a queue stands
        self._draining = False
        self._bad = self._clean = self._falls = 0  # windows and falls in a row
        self._plan = AdmittedPlan()
        self._most_qps = 0.0  # the largest capacity of a plan since the level fell; 0: not known

    @property
    def share(self) -> float:
        """The part of the capacity to admit now, 0..1."""
        return self._level * DRAIN if self._draining else self._level

    def serves(self, capacity_qps: float, admitted_qps: float, *, final: bool) -> None:
        """Record the plan in force: its capacity at the speeds of the profile and its admission
        rate, both in queries per second; ``final``: no plan would add capacity."""
        if admitted_qps < LESS * self._plan.admitted * self._plan.capacity_qps:
            self._bad = min(self._bad, -1)
        self._plan = AdmittedPlan(capacity_qps, admitted_qps / capacity_qps, final)
        most_qps = self._most_qps
        if capacity_qps > most_qps:
            if most_qps > 0:
                self._level = 1.0 - (1.0 - self._level) * most_qps / capacity_qps
                if capacity_qps > MORE * most_qps:
                    self._known, self._bad = 1.0, min(self._bad, -1)
            self._most_qps = capacity_qps

    def judge(self, ended: Window) -> None:
        """Update the share with the queries that ended in a window."""
        missed = ended.missed / ended.admitted if ended.admitted >= FEWEST else 0.0
        if self._draining:
            self._draining, self._bad = False, -1
        elif missed <= MISSED:
            self._bad = self._falls = 0
            if self._level <= NEAR * self._plan.admitted:
                self._adapt(ended, missed)
        else:
            self._bad, self._clean = self._bad + 1, 0
            if self._bad > 1:
                self._fall(ended)
                self._draining = missed > CLEAR

    def _adapt(self, ended: Window, missed: float) -> None:
        few = FEW / 2 if ended.stands_in_class else FEW
        if (self._level < 1.0 and ended.stands) or (ended.refused > 0 and missed > few):
            self._clean = 0
            self._least = self._least or EASED_TO * self._level
            self._level = self._known = max(self._least, EASED * self._level)
            return
        if ended.refused > 0 and ended.stands_in_class:
            self._clean = 0
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
