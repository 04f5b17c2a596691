"""Workers that are slower than the others of their kind, from their reports.

A worker's stretch is the seconds taken over the seconds that the profile plans, over about the last
``MEMORY`` batches of its variant. Its pace is the stretch over the larger of two medians: that of
all workers of its kind of device, and that of the other workers of the kind with its variant. A
worker is slow from a pace of ``SLOW`` on.

A profile that is wrong about a variant affects every worker that runs it. The pace of the only
worker of a variant can therefore fall, but not rise.

Before ``FEWEST`` batches, the stretch is the least of the reports' stretches, once ``REPORTS``
reports have batches: large batches are few, and a stall affects only one report. ``slowdown.py``
averages over a kind, which hides one slow worker of twenty. Not from a paper.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from control.estimation.slowdown import FEWEST, NONE_RAN, Ran
from schemas.records import Report
from schemas.variant_id import VariantId

MEMORY = 60.0  # batches
REPORTS = 5
SLOW = 1.3
FASTER = 1.15  # a slow worker stays slow until its pace falls below
LEAST_WORKERS = 3  # of a kind: of two, either may be the slow one


@dataclass(slots=True)
class _Worker:
    device: str
    variant: VariantId
    incarnation: float
    ran: Ran = NONE_RAN  # batches of this variant
    reports: int = 0  # with batches of it
    least: float = inf  # stretch of these reports
    pace: float = 0.0  # 0: not slow
    lost: bool = False  # and so none of the others of its kind

    def runs(self, variant: VariantId) -> None:
        """Start to measure another variant; keep the pace."""
        self.variant, self.ran, self.reports, self.least = variant, NONE_RAN, 0, inf

    def observe(self, new: Ran) -> None:
        """Add a report's batches."""
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
        """Record a worker's report and its batches since the previous one."""
        worker, variant = self._workers.get(report.node), VariantId(report.task, report.variant)
        if worker is None or worker.incarnation != report.incarnation:
            worker = _Worker(report.device, variant, report.incarnation)
            self._workers[report.node] = worker
            self._paces = None
        elif worker.variant != variant:
            worker.runs(variant)
            self._paces = None
        if new.batches > 0 or worker.lost:
            self._paces, worker.lost = None, False
        if new.batches > 0:
            worker.observe(new)

    def lose(self, nodes: Iterable[str]) -> None:
        """Leave workers out until they report again: they are lost, or have ended."""
        for node in nodes:
            if node in self._workers:
                self._workers[node].lost = True
        self._paces = None

    def forget(self, node: str) -> None:
        """Forget a worker that is gone: it is no longer one of its kind."""
        if self._workers.pop(node, None) is not None:
            self._paces = None

    def slow(self, node: str) -> bool:
        """Return whether a worker is slow, as of the last call of ``paces``."""
        worker = self._workers.get(node)
        return worker is not None and worker.pace > 0.0

    def paces(self) -> dict[str, float]:
        """Return the pace of each slow worker: its time over that of others of its kind."""
        if self._paces is None:
            self._paces = self._judged()
        return self._paces

    def _judged(self) -> dict[str, float]:
        kinds: dict[str, list[tuple[_Worker, float]]] = {}
        for worker in self._workers.values():
            stretch = None if worker.lost else worker.stretch
            if stretch is not None:
                kinds.setdefault(worker.device, []).append((worker, stretch))
        for known in kinds.values():
            _judge(known)
        return {name: w.pace for name, w in self._workers.items() if w.pace and not w.lost}


def _judge(known: Sequence[tuple[_Worker, float]]) -> None:
    """Set the paces of the workers of one kind of device, with their stretches."""
    if len(known) < LEAST_WORKERS:
        for worker, _ in known:
            worker.pace = 0.0
        return
    usual = median([stretch for _, stretch in known])
    alike: dict[VariantId, list[float]] = {}
    for worker, stretch in known:
        alike.setdefault(worker.variant, []).append(stretch)
    for stretches in alike.values():
        stretches.sort()
    for worker, stretch in known:
        same = alike[worker.variant]
        same_pace = stretch / _median_of_others(same, stretch) if len(same) > 1 else worker.pace
        pace = min(stretch / usual, same_pace)
        worker.pace = pace if pace >= (FASTER if worker.pace else SLOW) else 0.0


def _median_of_others(ordered: Sequence[float], own: float) -> float:
    """Return the median of two or more ascending numbers without one of them."""
    at, count = bisect_left(ordered, own), len(ordered) - 1
    low, high = (k if k < at else k + 1 for k in ((count - 1) // 2, count // 2))
    return (ordered[low] + ordered[high]) / 2
