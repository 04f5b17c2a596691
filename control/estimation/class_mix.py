"""The SLO classes that plans are made for, selected by their share of the queries.

A class starts to count when its share of the queries of about the last minute reaches ``ENTERS``,
and stops when the share falls below ``LEAVES`` of at least ``KNOWN`` queries. A class with a floor
always counts. Until ``KNOWN`` queries have ended every class counts, so that the first queries of a
tight class do not meet a plan made for a slack one. For the same reason fewer queries suffice for a
class to start to count.
"""

from collections.abc import Mapping
from math import exp

from control.estimation.report_deltas import NONE, News
from schemas.count_names import count_name
from schemas.pipeline import Pipeline

ENTERS, LEAVES = 0.05, 0.025
MEMORY_S = 60.0  # time constant
KNOWN = 100
COUNT = "class"  # prefix of counts in egress's reports: "class/gold/answered"


class ClassMix:
    """The classes that count; ``observe`` updates them in place."""

    __slots__ = ("_always", "_counting", "_ended", "_seen_s", "_slos_s")

    def __init__(self, pipeline: Pipeline) -> None:
        self._slos_s = pipeline.slo_classes
        shares = pipeline.class_shares
        self._always = {name for name in self._slos_s if name in shares and shares[name].floor > 0}
        self._counting = set(self._slos_s)
        self._ended: dict[str, float] = {}  # by class, exponentially weighted
        self._seen_s = 0.0

    def counting(self) -> dict[str, float]:
        """Return the SLOs of the classes that count, in seconds."""
        return {name: slo_s for name, slo_s in self._slos_s.items() if name in self._counting}

    def observe(self, news: News) -> None:
        """Update the mix with an egress's report."""
        if news.before is None or not self._slos_s:  # the counts may be old
            return
        before = NONE if news.seconds is None else news.before
        self._add(_new(news.report.counts, before), news.report.sent_s)
        self._judge()

    def _add(self, ended: Mapping[str, float], now: float) -> None:
        kept = exp(-max(0.0, now - self._seen_s) / MEMORY_S)
        self._seen_s = max(self._seen_s, now)
        self._ended = {name: count * kept for name, count in self._ended.items()}
        for name, count in ended.items():
            self._ended[name] = self._ended.get(name, 0.0) + count

    def _judge(self) -> None:
        total = sum(self._ended.values())
        if total <= 0:
            return
        for name in self._slos_s:
            share = self._ended.get(name, 0.0) / total
            if name in self._always or share >= ENTERS:
                self._counting.add(name)
            elif share < LEAVES and total >= KNOWN:
                self._counting.discard(name)


def _new(counts: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return the queries that ended since ``before``, by class."""
    found: dict[str, float] = {}
    for text, count in counts.items():
        name = count_name(text)
        if name.what == COUNT:
            ended = found.get(name.labels[0], 0.0) + count - before.get(text, 0.0)
            found[name.labels[0]] = ended
    return found
