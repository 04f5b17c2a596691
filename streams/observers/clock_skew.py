"""Clock skew of the nodes against the control app, measured by their reports.

An observer of the control role. No decision depends on it: a report's age counts from its arrival.
But deadlines count from a producer's time stamp, so skewed clocks cost queries.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.effects import Arrived, Effect, Event
from schemas.records import Report
from streams.observers.journal import tell
from streams.observers.metrics import MetricSample

log = logging.getLogger("headrace.node")

SKEW_S = 1.0  # least skew that is logged
WINDOW_S = 60.0  # interval between two lines of a node; its fastest report counts for as long
LIVING_S = 3.0  # a node without a report for this long after its window has gone

LEVELS = {"clock.skewed": logging.WARNING}


@dataclass(slots=True)
class _SeenSkew:
    until_s: float
    ahead_s: float  # by the fastest report


class ClockSkews:
    """An observer that folds reports; ``samples`` may be called from another thread."""

    kinds: frozenset[type] = frozenset((Report,))

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._seen: dict[str, _SeenSkew] = {}  # the oldest window first
        self._now = 0.0

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        if type(event) is not Arrived or type(event.record) is not Report:
            return
        report, self._now = event.record, now
        if report.pipeline != self._pipeline:
            return
        ahead_s, seen = report.sent_s - now, self._seen.get(report.node)
        if seen is None or now >= seen.until_s:
            self._seen.pop(report.node, None)
            self._seen[report.node] = _SeenSkew(now + WINDOW_S, ahead_s)
            self._forget()
            if abs(ahead_s) >= SKEW_S:
                self._warn(report.node, ahead_s)
        else:
            seen.ahead_s = max(seen.ahead_s, ahead_s)

    def _forget(self) -> None:
        """Forget the nodes that have gone: a new window would have replaced theirs."""
        while self._gone((oldest := next(iter(self._seen.items())))[1]):
            del self._seen[oldest[0]]

    def _gone(self, seen: _SeenSkew) -> bool:
        return self._now > seen.until_s + LIVING_S

    def _warn(self, node: str, ahead_s: float) -> None:
        way = "ahead of" if ahead_s > 0 else "behind"
        text = (
            f"the clock of {node} is {abs(ahead_s):.1f} s {way} the control app's, or its reports "
            "are delayed; synchronize both hosts with NTP"
        )
        fields = {"of": node, "ahead_s": round(ahead_s, 3)}
        tell(log, LEVELS["clock.skewed"], "clock.skewed", text, pipeline=self._pipeline, **fields)

    def samples(self) -> Iterator[MetricSample]:
        """Yield the largest skew of any living node, in seconds."""
        ahead = [seen.ahead_s for seen in list(self._seen.values()) if not self._gone(seen)]
        if ahead:
            yield "clock_skew_seconds", (), max(map(abs, ahead))
