"""Time from the start of a task's batch to an item's arrival at egress.

For each task on an arriving item's path, egress counts ``to_egress/TASK`` items and the sums of
their seconds (``to_egress_s/TASK``) and squared seconds (``to_egress_s2/TASK``). It samples one
item per ``EVERY_S``.
"""

from schemas.count_names import to_egress_names
from schemas.records import ANSWERED, Work

EVERY_S = 0.01


class EgressTimes:
    """The sums, in ``counts``."""

    __slots__ = ("_counts", "_names", "_next_s")

    def __init__(self, counts: dict[str, float]) -> None:
        self._counts = counts
        self._names: dict[str, tuple[str, str, str]] = {}  # names of the counts, by task
        self._next_s = float("-inf")  # when the next item is sampled

    def arrived(self, work: Work, now: float) -> None:
        """Count a record's first item once per ``EVERY_S``, unless it has no answer or belongs to a
        session or a shadow, whose paths differ."""
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
