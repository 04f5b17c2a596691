"""Record a run, simulated or live, as a time series over intervals of equal length.

A ``Recorder`` samples the run's metrics (``streams/observers/run_metrics.py``) at the end of every
interval. Its values are over the queries and items that ended in the interval; demand is over the
queries created in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

from schemas.effects import RESULTS, Effect, Event, Send
from schemas.records import ANSWERED, Answer, Plan
from streams.observers.run_metrics import RunMetrics

WIDTHS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
MOST_STRETCHES = 200
# Shares of the queries with a result at which the latency distribution is sampled.
SHARES = (*(at / 200 for at in range(1, 200)), 0.997, 0.999, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """Values over intervals of ``width_s`` seconds that end at ``ends_s``; None: no data.

    ``violation`` are shares of the queries that ended, ``accuracy`` is over leaves in time
    of known accuracy.
    ``latency`` are (seconds, share of all queries that had a result within them); ``bad`` counts
    items by task and reason for giving them up, late leaves included.
    """

    width_s: float
    ends_s: tuple[float, ...]
    demand_qps: tuple[float, ...]
    capacity_qps: tuple[float | None, ...]
    devices: tuple[int, ...]
    accuracy: tuple[float | None, ...]
    violation: tuple[float | None, ...]
    latency: tuple[tuple[float, float], ...]
    bad: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class _Mark:
    """The metrics at the end of an interval."""

    at_s: float
    ended: int
    answered: int
    judged: int
    rights: float
    capacity_qps: float | None
    devices: int


class Recorder:
    """An observer of a simulation; live, call ``reach``, ``answer`` and ``plan`` in time order."""

    def __init__(self, metrics: RunMetrics, width_s: float) -> None:
        self._metrics = metrics
        self._width_s = width_s
        self._marks: list[_Mark] = []
        self._next_s = 0.0
        self._made: dict[int, int] = {}  # created queries by interval
        self._plan: Plan | None = None

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        if now >= self._next_s:
            self.reach(now)
        for effect in effects:
            if type(effect) is Send:
                if effect.topic == RESULTS:
                    self.answer(effect.record)  # type: ignore[arg-type]
                elif type(effect.record) is Plan:
                    self.plan(effect.record)

    def reach(self, now: float) -> None:
        """Advance to ``now``: sample the metrics for every interval that has ended."""
        if not self._marks:  # the first call
            self._next_s = floor(now / self._width_s) * self._width_s
        if now >= self._next_s:
            metrics, plan = self._metrics, self._plan
            capacity_qps = plan.capacity_qps if plan else None
            devices = len(plan.leases) if plan else 0
            ended, answered = sum(metrics.counts.values()), metrics.counts[ANSWERED]
            judged = metrics.judged
            rights = (metrics.accuracy or 0.0) * judged
            while now >= self._next_s:
                self._marks.append(
                    _Mark(self._next_s, ended, answered, judged, rights, capacity_qps, devices)
                )
                self._next_s += self._width_s

    def plan(self, plan: Plan) -> None:
        """Note the plan that comes into force."""
        self._plan = plan

    def answer(self, answer: Answer) -> None:
        """Count an answered query in the interval of its creation."""
        if answer.created_s < self._metrics.since_s:
            return
        stretch = floor(answer.created_s / self._width_s)
        self._made[stretch] = self._made.get(stretch, 0) + 1

    def recording(self, first_s: float, last_s: float) -> TimeSeries:
        """Return the time series from ``first_s`` to ``last_s``, with seconds since ``first_s``."""
        self.reach(last_s + self._width_s)
        inside = [
            (before, after)
            for before, after in pairwise(self._marks)
            if after.at_s > first_s and before.at_s < last_s
        ]
        return TimeSeries(
            width_s=self._width_s,
            ends_s=tuple(after.at_s - first_s for _, after in inside),
            demand_qps=tuple(self._demand_qps(after) for _, after in inside),
            capacity_qps=tuple(after.capacity_qps for _, after in inside),
            devices=tuple(after.devices for _, after in inside),
            accuracy=tuple(_accuracy(*each) for each in inside),
            violation=tuple(_violation(*each) for each in inside),
            latency=tuple(self._latency()),
            bad=dict(sorted(self._metrics.bad.items())),
        )

    def _demand_qps(self, mark: _Mark) -> float:
        return self._made.get(round(mark.at_s / self._width_s) - 1, 0) / self._width_s

    def _latency(self) -> Iterator[tuple[float, float]]:
        metrics = self._metrics
        queries = sum(metrics.counts.values())
        for share in SHARES if metrics.latency.count else ():
            yield metrics.latency.at(share) or 0.0, share * metrics.latency.count / queries


def width_s(seconds: float) -> float:
    """Return the shortest interval, seconds, that gives at most ``MOST_STRETCHES`` intervals."""
    fitting = [width for width in WIDTHS_S if seconds / width <= MOST_STRETCHES]
    return fitting[0] if fitting else WIDTHS_S[-1]


def _accuracy(before: _Mark, after: _Mark) -> float | None:
    judged = after.judged - before.judged
    return min(1.0, (after.rights - before.rights) / judged) if judged else None


def _violation(before: _Mark, after: _Mark) -> float | None:
    ended = after.ended - before.ended
    return 1 - (after.answered - before.answered) / ended if ended else None


__all__ = ["MOST_STRETCHES", "SHARES", "WIDTHS_S", "Recorder", "TimeSeries", "width_s"]
