"""Nodes that run another pipeline file than the control app, by the fingerprints in reports.

An observer of the control role. Roles with different files disagree on slots, SLOs or formats, so
that one may never read what another writes.
"""

import logging
from collections.abc import Iterator, Sequence

from schemas.effects import Arrived, Effect, Event
from schemas.pipeline import Pipeline
from schemas.pipeline_fingerprint import fingerprint
from schemas.records import Report
from streams.observers.journal import tell
from streams.observers.metrics import MetricSample

log = logging.getLogger("headrace.node")

LEVELS = {"file.differs": logging.ERROR}
LIVING_S = 3.0  # a node without a report for this long does not count
GONE_S = 3600.0  # and is forgotten after this long: new pods and rented workers have new names


class FileMismatch:
    """An observer that folds reports; ``samples`` may be called from another thread."""

    kinds: frozenset[type] = frozenset((Report,))

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline.name
        self._file = fingerprint(pipeline)
        # By node its file and the time of its last report, the oldest first.
        self._others: dict[str, tuple[str, float]] = {}
        self._now = 0.0

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        if type(event) is not Arrived or type(event.record) is not Report:
            return
        report, self._now = event.record, now
        if report.pipeline != self._pipeline:
            return
        known = self._others.pop(report.node, None)
        if report.file in ("", self._file):  # "": the node's release reports no fingerprint
            return
        self._others[report.node] = (report.file, now)
        while now - (oldest := next(iter(self._others.items())))[1][1] > GONE_S:
            del self._others[oldest[0]]
        if known is None or known[0] != report.file:
            self._tell(report)

    def _tell(self, report: Report) -> None:
        text = (
            f"{report.node} runs another pipeline file (fingerprint {report.file}) than the "
            f"control app ({self._file}): start every role of {self._pipeline} with the same file"
        )
        fields = {"of": report.node, "file": report.file, "control_file": self._file}
        tell(log, LEVELS["file.differs"], "file.differs", text, pipeline=self._pipeline, **fields)

    def samples(self) -> Iterator[MetricSample]:
        """Yield the number of living nodes with another file."""
        last = [at_s for _, at_s in list(self._others.values())]
        yield "nodes_with_other_file", (), float(sum(self._now - at <= LIVING_S for at in last))
