"""Outcomes of queries in windows of ``WINDOW_S``, from egress's reports."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from control.estimation.report_deltas import News
from schemas.enumerations import NodeState
from schemas.records import Report

WINDOW_S = 1.0
FEWEST = 10  # answers of a class that show whether a queue stands


@dataclass(slots=True)
class ClassEnds:
    """Queries of an SLO class that were answered in time, and the tight ones of them."""

    good: float = 0.0
    tight: float = 0.0

    def add(self, news: News, name: str) -> None:
        """Add the queries that ended between two reports of an egress."""
        self.good += max(0.0, news.since(f"class/{name}/answered"))
        self.tight += max(0.0, news.since(f"tight/{name}"))


@dataclass(slots=True)
class Window:
    """Queries that ended since ``since_s``, by outcome; ``loading``: a worker loaded meanwhile."""

    since_s: float
    seconds: float = 0.0
    good: float = 0.0
    missed: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    tight: float = 0.0  # of the good
    loading: bool = False
    classes: dict[str, ClassEnds] = field(default_factory=dict)

    def add(self, news: News) -> None:
        """Add the queries that ended between two reports of an egress."""
        good, late, dropped, refused, unpromised, tight = [
            max(0.0, news.since(name))
            for name in ("answered", "late", "dropped", "refused", "unpromised", "tight")
        ]
        self.good += good
        self.missed += max(0.0, late + dropped - unpromised)
        self.late += late
        self.refused += refused
        self.tight += tight
        for name, ends in self.classes.items():
            ends.add(news, name)

    @property
    def admitted(self) -> float:
        """The admitted queries that ended, without those that no plan promised to answer."""
        return self.good + self.missed

    @property
    def stands(self) -> bool:
        """Whether a queue stands: of the answers in time, at least half were tight."""
        return self.admitted > 0 and 2 * self.tight >= self.good

    @property
    def stands_in_class(self) -> bool:
        """Whether a queue stands in an SLO class: at least half of its answers in time were tight.

        Fewer than half of all answers may be tight then, as items of tight classes pass those of
        slack ones.
        """
        classes = self.classes.values()
        return any([x.good >= FEWEST and 2 * x.tight >= x.good for x in classes])

    @property
    def served_qps(self) -> float:
        """The answers per second, including late ones."""
        return (self.good + min(self.late, self.missed)) / self.seconds

    @property
    def dropped_qps(self) -> float:
        """The missed queries per second that were not answered late."""
        return (self.missed - min(self.late, self.missed)) / self.seconds


class EndedQueries:
    """The current window; ``take`` and ``loads`` update it in place.

    Each egress measures the window by its own clock, from its first report in it; the first one
    that finds it complete ends it. The clocks of hosts may differ, and an egress may end. One that
    restarts within the window begins a new one, as nobody counted meanwhile.
    """

    __slots__ = ("_began_s", "_classes", "_loading", "_window")

    def __init__(self, classes: Iterable[str] = ()) -> None:
        """``classes``: the SLO classes, with "" for queries of none; empty without classes."""
        self._classes = tuple(classes)
        self._window: Window | None = None
        self._began_s: dict[str, float] = {}  # by egress
        self._loading: dict[str, float] = {}  # loading workers -> time of their last report

    def loads(self, report: Report) -> None:
        """Record from a worker's report whether it is loading."""
        if report.state == NodeState.LOADING:
            self._loading[report.node] = report.sent_s
        else:
            self._loading.pop(report.node, None)

    def forget(self, node: str) -> None:
        """Forget a worker that is gone."""
        self._loading.pop(node, None)

    def take(self, news: News) -> Window | None:
        """Add an egress report to the window; return the window if this report ends it."""
        now, node = news.report.sent_s, news.report.node
        if news.seconds is None and node in self._began_s:  # it has restarted, and counts anew
            self._window, self._began_s = None, {}
        began_s = self._began_s.setdefault(node, now)
        window = self._window = self._window or self._empty(now)
        if news.seconds is not None:  # else the counts may be old
            window.add(news)
        if now < began_s + WINDOW_S:
            return None
        self._window, self._began_s = self._empty(now), {node: now}
        window.seconds = now - began_s
        window.loading = any(at_s >= window.since_s for at_s in self._loading.values())
        return window

    def _empty(self, now: float) -> Window:
        return Window(now, classes={name: ClassEnds() for name in self._classes})
