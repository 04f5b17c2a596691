"""The time from the start of a task's batch to egress, from egress's reports.

With m the mean and s the standard deviation over about the last ``MEMORY`` items that egress
counted (``operators/egress/egress_times.py``), most items took at most

    m + LIKELY x s

Items that were dropped downstream are not counted. While many are dropped, the estimate is first
too short; with fewer drops more items arrive, including the later ones, and it rises. Not from a
paper: Loki takes hops and batches from its profile.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from control.estimation.report_deltas import News
from schemas.count_names import to_egress_names

MEMORY = 200.0  # items
FEWEST = 20.0  # items before a time is known
LIKELY = 2.0


@dataclass(frozen=True, slots=True)
class _TimeSums:
    """Items with decaying weights, and the sums of their seconds and squared seconds."""

    items: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0

    def followed_by(self, items: float, seconds: float, squares: float) -> "_TimeSums":
        kept = max(0.0, 1.0 - items / MEMORY)
        return _TimeSums(
            self.items * kept + items, self.seconds * kept + seconds, self.squares * kept + squares
        )

    @property
    def most_s(self) -> float:
        mean_s = self.seconds / self.items
        return mean_s + LIKELY * sqrt(max(0.0, self.squares / self.items - mean_s**2))


class TimeToEgress:
    """The times of all tasks of a pipeline; ``observe`` updates them in place."""

    __slots__ = ("_names", "_sums")

    def __init__(self, tasks: Iterable[str]) -> None:
        self._names = {task: to_egress_names(task) for task in tasks}
        self._sums: dict[str, _TimeSums] = {}  # by task

    def observe(self, news: News) -> None:
        """Update the times with an egress's report."""
        if news.seconds is None:
            return  # the counts cover an unknown interval
        for task, names in self._names.items():
            if names[0] in news.report.counts:
                items, seconds, squares = [news.since(name) for name in names]
                if items > 0:
                    before = self._sums.get(task, _TimeSums())
                    self._sums[task] = before.followed_by(items, seconds, squares)

    def seconds(self) -> dict[str, float]:
        """Return by task the seconds that most items take from the start of a batch to egress."""
        return {task: sums.most_s for task, sums in self._sums.items() if sums.items >= FEWEST}
