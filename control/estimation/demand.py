"""How much is coming? Root queries per second, from what is read off the input topic.

The log-end offsets of the input topic count every query before any queue (``input_report``);
where nobody reads them, ingresses say how many they took in. Either count a(t) only grows while
its source lives. From readings (t0, a0), (t1, a1) of one source come

    recent   r <- r + (1 - exp(-(t1 - t0) / TAU_S)) ((a1 - a0) / (t1 - t0) - r), for display
    bins     queries in each second, a reading's spread evenly over its time, for estimators

The demand is the sum over the sources that reported within the last ``SILENT_AFTER_S``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, floor

from schemas.records import Report

TAU_S = 2.0
SILENT_AFTER_S = 2.0
INPUT = "input"  # role of a report that nobody sends: the control app tells it its controller
BINS = 60  # seconds that are remembered


def input_report(
    pipeline: str, now: float, ends: Mapping[int, int], done: Mapping[int, int]
) -> Report:
    """The input topic's partitions as the controller is told of them.

    ``ends`` are their log-end offsets and ``done`` the offsets that ingress has committed, where
    that is known; between the two lie queries that nobody has taken in yet.
    """
    waiting = sum(max(0, end - done[p]) for p, end in ends.items() if p in done)
    return Report(
        node=INPUT, role=INPUT, pipeline=pipeline, epoch=0, incarnation=0.0, sent_s=now,
        state="ready",
        counts={"arrived": float(sum(ends.values())), "waiting": float(waiting)},
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    role: str
    incarnation: float
    sent_s: float
    arrived: float
    waiting: float = 0.0
    rate_qps: float | None = None  # None until there are two readings


@dataclass(frozen=True, slots=True)
class Demand:
    """What was seen; ``observe`` gives the next state."""

    _readings: Mapping[str, _Reading] = field(default_factory=dict)
    _bins: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # role -> second -> n

    def observe(self, report: Report) -> "Demand":
        """After a report of an ingress or of the input topic; others change nothing."""
        if report.role not in ("ingress", INPUT):
            return self
        before = self._readings.get(report.node)
        after, since_s, new = _read(before, report)
        if after is before:
            return self
        bins = self._bins
        if report.sent_s > since_s:
            added = _spread(bins.get(report.role, {}), since_s, report.sent_s, new)
            bins = {**bins, report.role: added}
        return Demand({**self._readings, report.node: after}, bins)

    def rate_qps(self, now: float) -> float:
        """Queries per second now."""
        return sum(reading.rate_qps or 0.0 for reading in self._heard(now))

    def waiting(self, now: float) -> float:
        """Queries on the input topic that no ingress has taken in."""
        return sum(reading.waiting for reading in self._heard(now))

    def by_second(self, now: float) -> tuple[float, ...]:
        """Queries in each whole second that was seen to its end, the newest last."""
        heard = self._heard(now)
        if not heard:
            return ()
        bins = self._bins.get(heard[0].role, {})
        end = floor(min(reading.sent_s for reading in heard))
        if not bins or min(bins) + 1 >= end:
            return ()
        first = max(min(bins) + 1, end - BINS)  # the first of all may be seen in part only
        return tuple(bins.get(second, 0.0) for second in range(first, end))

    def latest(self, now: float) -> tuple[float, float]:
        """The second that has not ended: how much of it was seen, and the queries in that."""
        heard = self._heard(now)
        if not heard:
            return 0.0, 0.0
        until_s = min(reading.sent_s for reading in heard)
        return until_s - floor(until_s), self._bins.get(heard[0].role, {}).get(floor(until_s), 0.0)

    def _heard(self, now: float) -> list[_Reading]:
        """The newest readings that count: of the input topic, else of the ingresses."""
        fresh = [each for each in self._readings.values() if now - each.sent_s <= SILENT_AFTER_S]
        topic = [each for each in fresh if each.role == INPUT and each.rate_qps is not None]
        return topic or [each for each in fresh if each.role != INPUT]


def _read(before: _Reading | None, report: Report) -> tuple[_Reading, float, float]:
    """The reading after a report, and how many queries are new since when."""
    arrived = report.counts.get("arrived", 0.0)
    reading = _Reading(
        role=report.role, incarnation=report.incarnation, sent_s=report.sent_s, arrived=arrived,
        waiting=report.counts.get("waiting", 0.0),
    )  # fmt: skip
    if before is None:
        return reading, report.sent_s, 0.0
    if report.incarnation > before.incarnation:
        # Its counts began again at 0 when it started.
        since_s, seen = max(report.incarnation, before.sent_s), 0.0
    else:
        since_s, seen = before.sent_s, before.arrived
    seconds = report.sent_s - since_s
    if report.incarnation < before.incarnation or seconds <= 0:
        return before, report.sent_s, 0.0
    new = max(0.0, arrived - seen)  # a topic that was made anew begins at 0, too
    rate = new / seconds
    if before.rate_qps is not None:
        rate = before.rate_qps + (1 - exp(-seconds / TAU_S)) * (rate - before.rate_qps)
    return (
        _Reading(
            role=report.role, incarnation=report.incarnation, sent_s=report.sent_s,
            arrived=arrived, waiting=reading.waiting, rate_qps=rate,
        ),
        since_s,
        new,
    )  # fmt: skip


def _spread(
    bins: Mapping[int, float], since_s: float, until_s: float, count: float
) -> dict[int, float]:
    """The bins with a count spread evenly over its time; those of long ago are forgotten."""
    last = floor(until_s)
    kept = {second: n for second, n in bins.items() if second >= last - BINS - 1}
    per_s = count / (until_s - since_s)
    for second in range(max(floor(since_s), last - BINS), last + 1):
        inside = min(until_s, second + 1) - max(since_s, second)
        kept[second] = kept.get(second, 0.0) + per_s * inside
    return kept
