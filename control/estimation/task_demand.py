"""How much arrives at each task? Items per second, from workers' reports, task by task.

For planners that look at each task alone. Workers count what arrives for a variant; from readings
(t0, a0), (t1, a1) of one worker and task

    r <- r + (1 - exp(-(t1 - t0) / TAU_S)) ((a1 - a0) / (t1 - t0) - r)

and a task's rate is the sum over the workers that reported within ``SILENT_AFTER_S``. What was
dropped or refused before the task does not arrive there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

from schemas.records import Report

TAU_S = 2.0  # of weights that fall to 1 - 1 / 2.6 a second, as Loki's code has them
SILENT_AFTER_S = 2.0

_ARRIVED = "arrived/"


@dataclass(frozen=True, slots=True)
class _Reading:
    incarnation: float
    sent_s: float
    arrived: Mapping[str, float]  # by task
    rates_qps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """What was seen; ``observe`` gives the next state."""

    _readings: Mapping[str, _Reading] = field(default_factory=dict)

    def observe(self, report: Report) -> "TaskDemand":
        """After a worker's report; others change nothing."""
        if report.role != "worker":
            return self
        arrived: dict[str, float] = {}
        for name, count in report.counts.items():
            if name.startswith(_ARRIVED):
                task = name.split("/", 2)[1]
                arrived[task] = arrived.get(task, 0.0) + count
        before = self._readings.get(report.node)
        rates: Mapping[str, float] = {}
        if before is not None and before.incarnation == report.incarnation:
            if report.sent_s <= before.sent_s:
                return self
            rates = _rates(before, report.sent_s, arrived)
        reading = _Reading(report.incarnation, report.sent_s, arrived, rates)
        return TaskDemand({**self._readings, report.node: reading})

    def arriving(self, now: float) -> dict[str, float]:
        """Items per second by task, for tasks at which anything ever arrived."""
        sums: dict[str, float] = {}
        for reading in self._readings.values():
            if now - reading.sent_s <= SILENT_AFTER_S:
                for task, rate in reading.rates_qps.items():
                    sums[task] = sums.get(task, 0.0) + rate
        return sums


def _rates(before: _Reading, sent_s: float, arrived: Mapping[str, float]) -> dict[str, float]:
    seconds = sent_s - before.sent_s
    weight = 1 - exp(-seconds / TAU_S)
    rates: dict[str, float] = {}
    for task, count in arrived.items():
        was = before.rates_qps.get(task, 0.0)
        came = (count - before.arrived.get(task, 0.0)) / seconds
        rates[task] = was + weight * (came - was)
    return rates
