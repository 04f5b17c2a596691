"""The searches of drawn queries, each of which runs once for all points of a sweep.

The points of a sweep differ in loads, clusters or time limits, not in the queries. A search goes on
only as far as the longest limit needs it (``compass_plans``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from benchmarks.papers.compass_compare import HISTORY
from benchmarks.papers.compass_model import DrawnQuery
from benchmarks.papers.compass_plans import BaselineSearch, OurSearch, Planned, by_truth

VULCAN, VIDEOSTORM = "vulcan-like", "videostorm-like"
RIVALS = (VULCAN, VIDEOSTORM)


class Searches:
    """What methods know of queries, the first ``HISTORY`` of which are the history of the others.

    Results are by query, for the queries that are not history.
    """

    def __init__(self, drawn: Sequence[DrawnQuery]) -> None:
        self._drawn = drawn
        self._alone = [OurSearch(query) for query in drawn[:HISTORY]]
        self._ours: dict[tuple[float, bool], list[Planned]] = {}
        self._baselines: dict[tuple[str, bool], list[BaselineSearch]] = {}

    @property
    def queries(self) -> Sequence[DrawnQuery]:
        """The queries that are not history."""
        return self._drawn[HISTORY:]

    @cached_property
    def truth(self) -> list[Planned]:
        """The plans of every configuration that truly complies, known at once."""
        return [by_truth(query) for query in self.queries]

    @cached_property
    def first_plan_s(self) -> float:
        """The mean modelled seconds of `vulcan-like` to its first plan, over all queries."""
        return float(np.mean([each.first_plan_s for each in self._searches(VULCAN)]))

    def compass(self, limit_s: float, *, profiler: bool = True) -> list[Planned]:
        """Return what our search knows after ``limit_s``. ``profiler``: with ours; without, it
        takes a fixed number of samples and reuses no prefixes."""
        if (limit_s, profiler) not in self._ours:
            history = [each.past(limit_s) for each in self._alone]
            self._ours[limit_s, profiler] = [
                OurSearch(query, history, profiler=profiler).until(limit_s)
                for query in self.queries
            ]
        return self._ours[limit_s, profiler]

    def baseline(
        self, name: str, limit_s: float, *, profiler: bool = False
    ) -> list[tuple[Planned, Planned]]:
        """Return what a baseline knows after ``limit_s``, with our shares of GPUs and on whole
        GPUs. ``profiler``: with ours."""
        own = self._searches(name, profiler=profiler)[HISTORY:]
        return [search.until(limit_s) for search in own]

    def _searches(self, name: str, *, profiler: bool = False) -> list[BaselineSearch]:
        if (name, profiler) not in self._baselines:
            self._baselines[name, profiler] = [
                BaselineSearch(name, query, profiler=profiler) for query in self._drawn
            ]
        return self._baselines[name, profiler]


def slowed(found: Iterable[Planned], pace: float) -> list[Planned]:
    """Return what is known where a modelled second of planning takes ``pace`` seconds."""
    return [replace(each, seconds=pace * each.seconds) for each in found]
