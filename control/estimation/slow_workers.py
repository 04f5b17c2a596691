"""Workers that are slower than the others of their kind, from their reports.

Per worker the seconds of its batches over the seconds that the profile plans for them, over about
the last ``MEMORY`` batches; a worker is slow where that is ``SLOW`` times the median of its kind.
``slowdown.py`` averages over a kind, where one of twenty does not show. Not from a paper.
"""

from dataclasses import dataclass
from statistics import median

from control.estimation.report_deltas import News
from control.estimation.slowdown import FEWEST, Ran, ran_since
from profiles.profile_table import ProfileTable

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

    __slots__ = ("_profile", "_workers")

    def __init__(self, profile: ProfileTable | None) -> None:
        self._profile = profile
        self._workers: dict[str, _Worker] = {}

    def observe(self, news: News) -> None:
        """Take a worker's report."""
        report = news.report
        new = ran_since(news, self._profile) if news.seconds is not None else Ran()
        worker = self._workers.get(report.node)
        if worker is None or worker.incarnation != report.incarnation:
            worker = self._workers[report.node] = _Worker(report.device, report.incarnation, Ran())
        if new.batches > 0:
            worker.ran = worker.ran.followed_by(new, MEMORY)

    def paces(self) -> dict[str, float]:
        """Return, by slow worker, how many times as long as others of its kind it takes."""
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
