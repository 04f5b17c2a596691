"""Observe whether a control app is in charge, and how many reports it ignores as out of date.

An observer of the control role. A report that took much longer than its sender's fastest one is out
of date: its node may have died meanwhile. Many of them mean that reports reach the app late, for
instance because it is overloaded or its network is slow.
"""

from collections.abc import Iterable, Iterator, Sequence

from control.controller.membership import REPORT_AGE_S, ReportAges
from schemas.effects import Arrived, Effect, Event, Heartbeats
from schemas.records import Report
from streams.observers.metric_table import BY_NAME, GAUGE
from streams.observers.metrics import MetricSample


class ControlStanding:
    """An observer that folds reports; ``samples`` may be called from another thread."""

    kinds: frozenset[type] = frozenset((Report, Heartbeats))

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._ages = ReportAges()
        self._stale = 0
        self._in_charge = False

    def began(self) -> None:
        """Record that this app is in charge from now on; ages count anew."""
        self._in_charge, self._ages = True, ReportAges()

    def ended(self) -> None:
        """Record that another app is in charge."""
        self._in_charge = False

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        if type(event) is Heartbeats:
            ages = [self._ages.beat_age_s(b, now) for b in event.beats if self._own(b.pipeline)]
            self._stale += sum(age_s > REPORT_AGE_S for age_s in ages)
        elif type(event) is Arrived and type(event.record) is Report:
            report = event.record
            if self._own(report.pipeline):
                self._stale += self._ages.age_s(report, now) > REPORT_AGE_S

    def _own(self, pipeline: str) -> bool:
        return pipeline == self._pipeline

    def samples(self) -> Iterator[MetricSample]:
        """Yield whether this app is in charge, and the number of reports out of date."""
        yield "control_in_charge", (), float(self._in_charge)
        yield "reports_stale_total", (), float(self._stale)

    def current(self, samples: Iterable[MetricSample]) -> Iterator[MetricSample]:
        """Yield those of this app's samples that hold now: on standby no gauges, because they are
        those of its last term."""
        for sample in samples:
            if self._in_charge or BY_NAME[sample[0]].kind != GAUGE:
                yield sample
