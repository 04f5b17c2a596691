"""How much is coming? Root queries per second, from what ingress reports.

Ingress counts the queries that arrived since it started. From two readings (t0, a0), (t1, a1)
of one ingress the rate r moves towards what was seen in between, the more the longer that was:

    r  <-  r + (1 - exp(-(t1 - t0) / TAU_S)) ((a1 - a0) / (t1 - t0) - r)

The demand is the sum over the ingresses that reported within the last ``SILENT_AFTER_S``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

from schemas.records import Report

TAU_S = 2.0
SILENT_AFTER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    incarnation: float
    sent_s: float
    arrived: float
    rate_qps: float | None = None  # None until there are two readings


@dataclass(frozen=True, slots=True)
class Demand:
    """An estimate; ``observe`` gives the next one."""

    _readings: Mapping[str, _Reading] = field(default_factory=dict)

    def observe(self, report: Report) -> "Demand":
        """The estimate after an ingress's report; others change nothing."""
        if report.role != "ingress":
            return self
        before = self._readings.get(report.node)
        after = _read(before, report)
        return self if after is before else Demand({**self._readings, report.node: after})

    def rate_qps(self, now: float) -> float:
        """Queries per second now."""
        return sum(
            reading.rate_qps or 0.0
            for reading in self._readings.values()
            if now - reading.sent_s <= SILENT_AFTER_S
        )


def _read(before: _Reading | None, report: Report) -> _Reading:
    arrived = report.counts.get("arrived", 0.0)
    first = _Reading(incarnation=report.incarnation, sent_s=report.sent_s, arrived=arrived)
    if before is None:
        return first
    if report.incarnation > before.incarnation:
        # Its counts began again at 0 when it started.
        since_s, seen = max(report.incarnation, before.sent_s), 0.0
    else:
        since_s, seen = before.sent_s, before.arrived
    seconds = report.sent_s - since_s
    if report.incarnation < before.incarnation or seconds <= 0:
        return before
    rate = (arrived - seen) / seconds
    if before.rate_qps is not None:
        rate = before.rate_qps + (1 - exp(-seconds / TAU_S)) * (rate - before.rate_qps)
    return _Reading(
        incarnation=report.incarnation, sent_s=report.sent_s, arrived=arrived, rate_qps=rate
    )
