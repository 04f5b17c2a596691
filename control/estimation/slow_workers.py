"""Workers that are slower than the others of their kind, from their reports.

Per worker the seconds of its batches over the seconds that the profile plans for them, over about
the last ``MEMORY`` batches of its variant. Its pace is this stretch over the larger one of two
medians: of all workers of its kind of device, and of the others of them that run its variant. A
profile that is wrong about a variant concerns all who run it: of the only one that does, a pace
that is known from before can fall, and none rises. A worker is slow from a pace of ``SLOW`` on.
As long as a worker has run fewer than ``FEWEST`` batches its stretch is the least of its reports,
once there are ``REPORTS`` with batches: large batches are few, and one stall is in one report.
``slowdown.py`` averages over a kind, where one of twenty does not show. Not from a paper.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from control.estimation.slowdown import FEWEST, NONE_RAN, Ran
from schemas.records import Report
from schemas.variant_id import VariantId

MEMORY = 60.0  # batches
REPORTS = 5
SLOW = 1.3
FASTER = 1.15  # a slow worker counts as slow until it is below
LEAST_WORKERS = 3  # of a kind: of two nothing says which one is slow


@dataclass(slots=True)
class _Worker:
    device: str
    variant: VariantId
    incarnation: float
    ran: Ran = NONE_RAN  # batches of this variant
    reports: int = 0  # that have batches of it
    least: float = inf  # of the stretches of these reports
    pace: float = 0.0  # 0: not slow

    def runs(self, variant: VariantId) -> None:
        """Begin with the batches of another variant; the pace is that of before."""
        self.variant, self.ran, self.reports, self.least = variant, NONE_RAN, 0, inf

    def observe(self, new: Ran) -> None:
        """Take a report's batches."""
        self.ran = self.ran.followed_by(new, MEMORY)
        self.reports += 1
        self.least = min(self.least, new.stretch)

    @property
    def stretch(self) -> float | None:
        """Seconds taken for a planned second; None: not known yet."""
        if self.ran.batches >= FEWEST:
            return self.ran.stretch
        return self.least if self.reports >= REPORTS else None


class SlowWorkers:
    """The paces of workers."""

    __slots__ = ("_paces", "_workers")

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._paces: dict[str, float] | None = None  # None: not known since the last report

    def observe(self, report: Report, new: Ran) -> None:
        """Take a worker's report and its batches since the one before."""
        worker, variant = self._workers.get(report.node), VariantId(report.task, report.variant)
        if worker is None or worker.incarnation != report.incarnation:
            worker = _Worker(report.device, variant, report.incarnation)
            self._workers[report.node] = worker
            self._paces = None
        elif worker.variant != variant:
            worker.runs(variant)
            self._paces = None
        if new.batches > 0:
            worker.observe(new)
            self._paces = None

    def slow(self, node: str) -> bool:
        """Return whether a worker is slow, as of the last look at all paces."""
        worker = self._workers.get(node)
        return worker is not None and worker.pace > 0.0

    def paces(self) -> dict[str, float]:
        """Return, by slow worker, how many times as long as others of its kind it takes."""
        if self._paces is None:
            self._paces = self._judged()
        return self._paces

    def _judged(self) -> dict[str, float]:
        known = [(w, s) for w in self._workers.values() if (s := w.stretch) is not None]
        kinds: dict[str, list[float]] = {}
        alike: dict[tuple[str, VariantId], list[float]] = {}
        for worker, stretch in known:
            kinds.setdefault(worker.device, []).append(stretch)
            alike.setdefault((worker.device, worker.variant), []).append(stretch)
        usual = {device: median(of) for device, of in kinds.items() if len(of) >= LEAST_WORKERS}
        for stretches in alike.values():
            stretches.sort()
        for worker, stretch in known:
            same = alike[worker.device, worker.variant]
            pace = stretch / usual.get(worker.device, inf)
            same_pace = stretch / _median_of_others(same, stretch) if len(same) > 1 else worker.pace
            pace = min(pace, same_pace)
            worker.pace = pace if pace >= (FASTER if worker.pace else SLOW) else 0.0
        return {name: worker.pace for name, worker in self._workers.items() if worker.pace}


def _median_of_others(ordered: Sequence[float], own: float) -> float:
    """Return the median of two or more ascending numbers without one of them."""
    at, count = bisect_left(ordered, own), len(ordered) - 1
    low, high = (k if k < at else k + 1 for k in ((count - 1) // 2, count // 2))
    return (ordered[low] + ordered[high]) / 2
