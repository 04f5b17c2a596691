"""Arrival rate of root queries, from counts of the input topic or of ingresses.

The log-end offsets of the input topic count every query before any queue (``Counted``). While they
cannot be read, the ingresses' reports count the queries that ingress has consumed. Either count
a(t) is monotonic for the life of its source. Readings (t0, a0), (t1, a1) of one source give

    recent   r <- r + (1 - exp(-(t1 - t0) / TAU_S)) ((a1 - a0) / (t1 - t0) - r), for display
    bins     queries in each clock second, with each reading's queries spread evenly over its
             interval, for estimators
    line     the count between readings of the last ``LINE_S``, to detect a jump within a fraction
             of a second

The demand is the sum over the sources read within the last ``SILENT_AFTER_S``.

The marker of a transaction takes an offset, too. Ingress counts the offsets without a record, so
offsets count as queries by the share that held one lately.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, floor

from schemas.effects import QUERIES, Counted
from schemas.records import Report

TAU_S = 2.0
SILENT_AFTER_S = 2.0
BINS = 60  # seconds of history
LINE_S = 1.5  # history of single readings
SHARED_OVER = 200.0  # offsets over which the share with a record is taken


def counted(at_s: float, ends: Mapping[int, int], done: Mapping[int, int]) -> Counted:
    """Return the sums over the input topic's partitions, as read at ``at_s``.

    ``ends`` are the log-end offsets, ``done`` the offsets that ingress has committed. A partition
    without a committed offset adds nothing to ``waiting``.
    """
    waiting = sum([max(0, end - done[p]) for p, end in ends.items() if p in done])
    return Counted(arrived=sum(ends.values()), waiting=waiting, at_s=at_s)


class CountLine:
    """What one source has counted: points (time, queries) with straight lines between them."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def add(self, since_s: float, until_s: float, new: float) -> None:
        """Add the queries of an interval that begins at the last point or later."""
        points = self._points
        count = points[-1][1] if points else 0.0
        if not points or since_s > points[-1][0]:
            points.append((since_s, count))
        points.append((until_s, count + new))
        while points[1][0] <= until_s - LINE_S:
            points.popleft()

    @property
    def times_s(self) -> list[float]:
        """The times of the points."""
        return [at_s for at_s, _ in self._points]

    def at(self, time_s: float) -> float:
        """Return the count at a time, at most that of the last point, at least that of the first;
        0 without a point."""
        for (from_s, low), (until_s, high) in pairwise(self._points):
            if from_s <= time_s < until_s:
                return low + (high - low) * (time_s - from_s) / (until_s - from_s)
        if not self._points:
            return 0.0
        return self._points[0 if time_s < self._points[0][0] else -1][1]


@dataclass(slots=True, kw_only=True)
class _DemandReading:
    """The newest count of one source: the input topic or an ingress."""

    incarnation: float
    at_s: float
    arrived: float
    waiting: float = 0.0
    missing: float = 0.0  # offsets without a record, of an ingress
    rate_qps: float | None = None  # None until there are two readings
    line: CountLine = field(default_factory=CountLine)  # up to this reading


Bins = Mapping[int, float]  # second -> queries
_NO_BINS: Bins = {}


@dataclass(slots=True)
class _Counts:
    """Readings of sources of one kind, by name, and the queries in each bin."""

    readings: dict[str, _DemandReading] = field(default_factory=dict)
    bins: dict[int, float] = field(default_factory=dict)

    def read(self, name: str, reading: _DemandReading) -> None:
        before = self.readings.get(name)
        after, since_s, new = _read(before, reading)
        if after is before:
            return
        self.readings[name] = after
        if reading.at_s > since_s:
            _spread(self.bins, since_s, reading.at_s, new)
            reading.line.add(since_s, reading.at_s, new)

    def fresh(self, now: float) -> list[_DemandReading]:
        return [each for each in self.readings.values() if now - each.at_s <= SILENT_AFTER_S]


@dataclass(slots=True)
class _InputRecords:
    """The records among the offsets of the input topic."""

    share: float = 1.0
    records: float = 0.0
    _offsets: float = 0.0

    def learn(self, before: _DemandReading | None, reading: _DemandReading) -> None:
        """Learn the share from two readings of an ingress.

        A transaction has at most one marker for each of its records. Further offsets without one
        held queries that the broker has deleted.
        """
        if before is None or reading.incarnation != before.incarnation:
            return
        records = reading.arrived - before.arrived
        offsets = records + min(reading.missing - before.missing, records)
        if records > 0:
            weight = 1 - exp(-offsets / SHARED_OVER)
            self.share += weight * (records / offsets - self.share)

    def count(self, offsets: float) -> None:
        """Count up to a log-end offset; a recreated topic starts at 0."""
        self.records += max(0.0, offsets - self._offsets) * self.share
        self._offsets = offsets


@dataclass(slots=True)
class Demand:
    """The counts so far; ``observe`` and ``count`` update them in place."""

    _topic: _Counts = field(default_factory=_Counts)
    _ingresses: _Counts = field(default_factory=_Counts)
    _input: _InputRecords = field(default_factory=_InputRecords)

    def observe(self, report: Report) -> None:
        """Update the counts from an ingress's report; ignore other roles."""
        if report.role != "ingress":
            return
        reading = _DemandReading(
            incarnation=report.incarnation,
            at_s=report.sent_s,
            arrived=report.counts.get("arrived", 0.0),
            waiting=report.counts.get("waiting", 0.0),
            missing=report.counts.get("missing", 0.0),
        )
        self._input.learn(self._ingresses.readings.get(report.node), reading)
        self._ingresses.read(report.node, reading)

    def forget(self, node: str) -> None:
        """Forget an ingress that is gone."""
        self._ingresses.readings.pop(node, None)

    def count(self, event: Counted) -> None:
        """Add a reading of the input topic."""
        self._input.count(event.arrived)
        reading = _DemandReading(
            incarnation=0.0,
            at_s=event.at_s,
            arrived=self._input.records,
            waiting=event.waiting * self._input.share,
        )
        self._topic.read(QUERIES, reading)

    def rate_qps(self, now: float) -> float:
        """Return the arrival rate now, in queries per second."""
        return sum(reading.rate_qps or 0.0 for reading in self._recent(now)[0])

    def waiting(self, now: float) -> float:
        """Return the number of queries on the input topic that ingress has not consumed."""
        return sum(reading.waiting for reading in self._recent(now)[0])

    def by_second(self, now: float) -> tuple[float, ...]:
        """Return the queries in each fully observed second, the newest last."""
        readings, bins = self._recent(now)
        if not readings:
            return ()
        end = floor(min(reading.at_s for reading in readings))
        if not bins or min(bins) + 1 >= end:
            return ()
        first = max(min(bins) + 1, end - BINS)  # the first second may be partly observed
        return tuple(bins.get(second, 0.0) for second in range(first, end))

    def lately(self, now: float) -> tuple[tuple[float, float], ...]:
        """Return (seconds, queries) of windows that end at the newest reading, the shortest first.

        Each begins at a reading of the last ``LINE_S``, and all sources have covered it.
        """
        readings, _ = self._recent(now)
        if not readings:
            return ()
        last = min(readings, key=lambda reading: reading.at_s)
        lines = [reading.line for reading in readings]
        count = sum(line.at(last.at_s) for line in lines)
        return tuple(
            (last.at_s - at_s, count - sum(line.at(at_s) for line in lines))
            for at_s in reversed(last.line.times_s)
            if at_s < last.at_s
        )

    def _recent(self, now: float) -> tuple[list[_DemandReading], Bins]:
        """Return the fresh readings with their bins, of the input topic if there are any, else of
        the ingresses."""
        topic = [each for each in self._topic.fresh(now) if each.rate_qps is not None]
        if topic:
            return topic, self._topic.bins
        ingresses = self._ingresses.fresh(now)
        return (ingresses, self._ingresses.bins) if ingresses else ([], _NO_BINS)


def _read(
    before: _DemandReading | None, reading: _DemandReading
) -> tuple[_DemandReading, float, float]:
    """Return the newest reading with its rate, the start of its interval, and the queries in it."""
    if before is None:
        return reading, reading.at_s, 0.0
    if reading.incarnation > before.incarnation:
        # A restarted source counts from 0.
        since_s, seen = max(reading.incarnation, before.at_s), 0.0
    else:
        since_s, seen = before.at_s, before.arrived
    seconds = reading.at_s - since_s
    if reading.incarnation < before.incarnation or seconds <= 0:
        return before, reading.at_s, 0.0
    new = max(0.0, reading.arrived - seen)  # a recreated topic starts at 0 too
    rate = new / seconds
    if before.rate_qps is not None:
        rate = before.rate_qps + (1 - exp(-seconds / TAU_S)) * (rate - before.rate_qps)
    reading.rate_qps, reading.line = rate, before.line
    return reading, since_s, new


def _spread(bins: dict[int, float], since_s: float, until_s: float, count: float) -> None:
    """Spread ``count`` evenly over the seconds of an interval; keep the newest ``BINS``."""
    first, last = floor(since_s), floor(until_s)
    if first == last and last in bins:
        bins[last] += count
        return
    while bins and (oldest := next(iter(bins))) < last - BINS - 1:
        del bins[oldest]
    per_s = count / (until_s - since_s)
    begins_s = since_s
    if first < last - BINS:
        first = last - BINS
        begins_s = first
    for at in range(first, last + 1):
        ends_s = at + 1.0 if at + 1.0 < until_s else until_s
        if ends_s > begins_s:
            bins[at] = bins.get(at, 0.0) + per_s * (ends_s - begins_s)
        begins_s = ends_s
