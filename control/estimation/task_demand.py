"""Items per second that arrive for each variant, from workers' reports.

For planners that treat tasks separately and split a task's traffic among its variants as observed.
Readings (t0, a0), (t1, a1) of one worker and variant give

    r <- r + (1 - exp(-(t1 - t0) / TAU_S)) ((a1 - a0) / (t1 - t0) - r)

and a variant's rate is the sum over the workers that reported within ``SILENT_AFTER_S``. Items that
were dropped or refused upstream do not arrive, so the rates are not the demand; only their
proportions are used, as the split.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp

from schemas.count_names import count_name
from schemas.records import Report

TAU_S = 2.0  # weights fall to 1 - 1 / 2.6 per second, as in Loki's code
SILENT_AFTER_S = 2.0

_ARRIVED = "arrived"


@dataclass(frozen=True, slots=True)
class _TaskReading:
    incarnation: float
    sent_s: float
    arrived: Mapping[str, float]  # by "task/variant"
    rates_qps: Mapping[str, float]
    queued: Mapping[str, float]


class TaskDemand:
    """Arrival rates. Updated in place: a thousand workers report five times a second."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings: dict[str, _TaskReading] = {}

    def observe(self, report: Report) -> None:
        """Update the rates with a report; only a worker's report changes them."""
        if report.role != "worker":
            return
        before = self._readings.get(report.node)
        if before is not None and _stale(before, report):
            return
        arrived = {
            count_name(name).of: count
            for name, count in report.counts.items()
            if count_name(name).what == _ARRIVED
        }
        rates: Mapping[str, float] = {}
        if before is not None and before.incarnation == report.incarnation:
            rates = _rates(before, report.sent_s, arrived)
        queued: dict[str, float] = {}
        for slot in report.slots:
            queued[slot.task] = queued.get(slot.task, 0.0) + slot.queued
        reading = _TaskReading(report.incarnation, report.sent_s, arrived, rates, queued)
        self._readings[report.node] = reading

    def forget(self, node: str) -> None:
        """Forget a worker that is gone."""
        self._readings.pop(node, None)

    def arriving(self, now: float) -> dict[str, float]:
        """Return items per second by "task/variant", for variants with any arrivals."""
        sums: dict[str, float] = {}
        for reading in self._readings.values():
            if now - reading.sent_s <= SILENT_AFTER_S:
                for variant, rate in reading.rates_qps.items():
                    sums[variant] = sums.get(variant, 0.0) + rate
        return sums

    def queued(self, now: float) -> dict[str, float]:
        """Return the items queued at workers, by task."""
        sums: dict[str, float] = {}
        for reading in self._readings.values():
            if now - reading.sent_s <= SILENT_AFTER_S:
                for task, count in reading.queued.items():
                    sums[task] = sums.get(task, 0.0) + count
        return sums


def _stale(before: _TaskReading, report: Report) -> bool:
    """Return whether a report is older than the newest known one or of an earlier incarnation."""
    if report.incarnation != before.incarnation:
        return report.incarnation < before.incarnation
    return report.sent_s <= before.sent_s


def _rates(before: _TaskReading, sent_s: float, arrived: Mapping[str, float]) -> dict[str, float]:
    seconds = sent_s - before.sent_s
    weight = 1 - exp(-seconds / TAU_S)
    rates: dict[str, float] = {}
    for variant, count in arrived.items():
        was = before.rates_qps.get(variant, 0.0)
        came = (count - before.arrived.get(variant, 0.0)) / seconds
        rates[variant] = was + weight * (came - was)
    return rates
