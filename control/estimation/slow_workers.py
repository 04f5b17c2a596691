"""Workers that are slower than the others of their kind, from their reports.

Per worker the seconds of its batches over the seconds that the profile plans for them, over about
the last ``MEMORY`` batches; a worker is slow where that is ``SLOW`` times the median of its kind.
``slowdown.py`` averages over a kind, where one of twenty does not show. Not from a paper.
"""

from dataclasses import dataclass
from statistics import median

from control.estimation.slowdown import FEWEST, NONE_RAN, Ran
from schemas.records import Report

MEMORY = 60.0  # batches
SLOW = 1.3  # times the median
FASTER = 1.15  # a slow worker counts as slow until it is below
LEAST_WORKERS = 3  # of a kind: of two nothing says which one is slow


@dataclass(slots=True)
class _Worker:
    device: str
    incarnation: float
    ran: Ran
    slow: bool = False


class SlowWorkers:
    """The paces of workers."""

    __slots__ = ("_paces", "_workers")

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._paces: dict[str, float] | None = None  # None: not known since the last report

    def observe(self, report: Report, new: Ran) -> None:
        """Take a worker's report and its batches since the one before."""
        worker = self._workers.get(report.node)
        if worker is None or worker.incarnation != report.incarnation:
            worker = self._workers[report.node] = _Worker(
                report.device, report.incarnation, NONE_RAN
            )
            self._paces = None
        if new.batches > 0:
            worker.ran = worker.ran.followed_by(new, MEMORY)
            self._paces = None

    def paces(self) -> dict[str, float]:
        """Return, by slow worker, how many times as long as others of its kind it takes."""
        if self._paces is None:
            self._paces = self._judged()
        return self._paces

    def _judged(self) -> dict[str, float]:
        kinds: dict[str, list[float]] = {}
        known = {name: w for name, w in self._workers.items() if w.ran.batches >= FEWEST}
        for worker in known.values():
            kinds.setdefault(worker.device, []).append(worker.ran.stretch)
        found: dict[str, float] = {}
        for name, worker in known.items():
            stretches = kinds[worker.device]
            pace = worker.ran.stretch / median(stretches)
            least = FASTER if worker.slow else SLOW
            worker.slow = len(stretches) >= LEAST_WORKERS and pace >= least
            if worker.slow:
                found[name] = pace
        return found
