"""Arrival rate of root queries, from counts of the input topic or of ingresses.

The log-end offsets of the input topic count every query before any queue (``Counted``). While they
cannot be read, the ingresses' reports count the queries that ingress has consumed. Either count
a(t) is monotonic for the life of its source. Readings (t0, a0), (t1, a1) of one source give

    recent   r <- r + (1 - exp(-(t1 - t0) / TAU_S)) ((a1 - a0) / (t1 - t0) - r), for display
    bins     queries in each clock second, with each reading's queries spread evenly over its
             interval, for estimators
    fine     the same per 50 ms over the last ``FINE_S``, to detect a jump within a fraction of a
             second

The demand is the sum over the sources read within the last ``SILENT_AFTER_S``.

The marker of a transaction takes an offset, too. Ingress counts the offsets without a record, so
offsets count as queries by the share that held one lately.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp, floor

from schemas.effects import QUERIES, Counted
from schemas.records import Report

TAU_S = 2.0
SILENT_AFTER_S = 2.0
BINS = 60  # seconds of history
FINE_S, FINE_BIN_S = 1.5, 0.05  # history in fine bins, and their width
FINE_BINS = round(FINE_S / FINE_BIN_S)
SHARED_OVER = 200.0  # offsets over which the share with a record is taken


def counted(at_s: float, ends: Mapping[int, int], done: Mapping[int, int]) -> Counted:
    """Return the sums over the input topic's partitions, as read at ``at_s``.

    ``ends`` are the log-end offsets, ``done`` the offsets that ingress has committed. A partition
    without a committed offset adds nothing to ``waiting``.
    """
    waiting = sum([max(0, end - done[p]) for p, end in ends.items() if p in done])
    return Counted(arrived=sum(ends.values()), waiting=waiting, at_s=at_s)


@dataclass(slots=True, kw_only=True)
class _DemandReading:
    """The newest count of one source: the input topic or an ingress."""

    incarnation: float
    at_s: float
    arrived: float
    waiting: float = 0.0
    missing: float = 0.0  # offsets without a record, of an ingress
    rate_qps: float | None = None  # None until there are two readings


Bins = Mapping[int, float]  # index of the bin (time / width) -> queries
_NO_BINS: Bins = {}
ROUNDING = 1e-6  # of a bin


@dataclass(slots=True)
class _Counts:
    """Readings of sources of one kind, by name, and the queries in each bin."""

    readings: dict[str, _DemandReading] = field(default_factory=dict)
    bins: dict[int, float] = field(default_factory=dict)
    fine: dict[int, float] = field(default_factory=dict)

    def read(self, name: str, reading: _DemandReading) -> None:
        before = self.readings.get(name)
        after, since_s, new = _read(before, reading)
        if after is before:
            return
        self.readings[name] = after
        if reading.at_s > since_s:
            _spread(self.bins, 1.0, BINS, (since_s, reading.at_s), new)
            _spread(self.fine, FINE_BIN_S, FINE_BINS, (since_s, reading.at_s), new)

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
        readings, bins, _ = self._recent(now)
        if not readings:
            return ()
        end = floor(min(reading.at_s for reading in readings))
        if not bins or min(bins) + 1 >= end:
            return ()
        first = max(min(bins) + 1, end - BINS)  # the first second may be partly observed
        return tuple(bins.get(second, 0.0) for second in range(first, end))

    def lately(self, now: float) -> tuple[tuple[float, float], ...]:
        """Return (seconds, queries) of windows that end at the newest reading, the shortest first.

        Windows consist of whole fine bins that every source has covered, up to ``FINE_S``.
        """
        readings, _, fine = self._recent(now)
        if not readings or not fine:
            return ()
        end = floor(min(reading.at_s for reading in readings) / FINE_BIN_S + ROUNDING)
        first = max(min(fine) + 1, end - FINE_BINS)
        counts = accumulate(fine.get(at, 0.0) for at in range(end - 1, first - 1, -1))
        return tuple((FINE_BIN_S * wide, count) for wide, count in enumerate(counts, 1))

    def _recent(self, now: float) -> tuple[list[_DemandReading], Bins, Bins]:
        """Return the fresh readings with their bins and fine bins, of the input topic if there are
        any, else of the ingresses."""
        topic = [each for each in self._topic.fresh(now) if each.rate_qps is not None]
        if topic:
            return topic, self._topic.bins, self._topic.fine
        ingresses = self._ingresses.fresh(now)
        if not ingresses:
            return [], _NO_BINS, _NO_BINS
        return ingresses, self._ingresses.bins, self._ingresses.fine


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
    reading.rate_qps = rate
    return reading, since_s, new


def _spread(
    bins: dict[int, float], width_s: float, kept: int, interval: tuple[float, float], count: float
) -> None:
    """Spread ``count`` evenly over the bins of an interval; keep the newest ``kept`` bins."""
    since_s, until_s = interval
    first, last = floor(since_s / width_s), floor(until_s / width_s)
    if first == last and last in bins:
        bins[last] += count
        return
    while bins and (oldest := next(iter(bins))) < last - kept - 1:
        del bins[oldest]
    per_s = count / (until_s - since_s)
    begins_s = since_s
    if first < last - kept:
        first = last - kept
        begins_s = first * width_s
    for at in range(first, last + 1):
        ends_s = (at + 1) * width_s
        ends_s = ends_s if ends_s < until_s else until_s
        if ends_s > begins_s:
            bins[at] = bins.get(at, 0.0) + per_s * (ends_s - begins_s)
        begins_s = ends_s
