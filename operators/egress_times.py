"""How long items take from the begin of a task's batch to egress, as egress counts it.

Per task on the path of an item that arrives: ``to_egress/TASK`` items, ``to_egress_s/TASK`` the sum
of their seconds, ``to_egress_s2/TASK`` that of the squares. One item in ``EVERY_S`` is enough.
"""

from schemas.count_names import to_egress_names
from schemas.records import ANSWERED, Work

EVERY_S = 0.01


class EgressTimes:
    """The sums, in ``counts``."""

    __slots__ = ("_counts", "_names", "_next_s")

    def __init__(self, counts: dict[str, float]) -> None:
        self._counts = counts
        self._names: dict[str, tuple[str, str, str]] = {}  # of the counts, by task
        self._next_s = float("-inf")  # when another item counts

    def arrived(self, work: Work, now: float) -> None:
        """Count the first item of a record at egress, unless it was dropped or is a session's or a
        shadow's: those have ways of their own."""
        if now < self._next_s:
            return
        item = work.items[0]
        if work.session is not None or (item.end is not None and item.end.outcome != ANSWERED):
            return
        self._next_s = now + EVERY_S
        counts = self._counts
        for hop in item.path:
            seconds = now - hop.started_s if now > hop.started_s else 0.0
            items, sums, squares = self._names.get(hop.task) or self._begin(hop.task)
            counts[items] += 1.0
            counts[sums] += seconds
            counts[squares] += seconds * seconds

    def _begin(self, task: str) -> tuple[str, str, str]:
        names = self._names[task] = to_egress_names(task)
        self._counts.update(dict.fromkeys(names, 0.0))
        return names
