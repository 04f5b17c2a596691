"""A trial of a table with one central queue: K workers with all models, Poisson arrivals, no hops.

The pooled model that makes such tables ignores single workers (``central_queue.py``); the trial
models them. As in the nodes, the rescue batch replaces a batch that would be late, and queries that
would be late even so are dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapreplace

import numpy as np

from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.tables import Table

QUERIES = 20_000
ROUNDING_S = 1e-9  # times are sums of floats
LEAST_QPS = 1e-3  # stands for a load of 0: queries are alone


@dataclass(frozen=True, slots=True)
class TrialQuality:
    """The outcome, as fractions of 1: accuracy of the queries in time, and dropped queries."""

    accuracy: float
    violation: float

    @property
    def right(self) -> float:
        """The fraction of all queries that are in time and right."""
        return self.accuracy * (1 - self.violation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Identical workers that hold all models; ``rescue`` is (index of a model, largest batch)."""

    models: tuple[CandidateModel, ...]
    slo_s: float
    count: int
    rescue: tuple[int, int]


def trial_of(table: Table, workers: Workers) -> TrialQuality:
    """Return the outcome of ``QUERIES`` queries at the table's load, drawn with a fixed seed."""
    return trial_quality(table, workers, _times_s(table.qps))


def trial_quality(table: Table, workers: Workers, times_s: Sequence[float]) -> TrialQuality:
    """Return the outcome of queries that arrive at these times; ``table`` has the models of
    ``workers`` in their order."""
    seconds = [model.latency_s for model in workers.models]
    fastest_s = min(latency_s[0] for latency_s in seconds)
    free_s = [0.0] * workers.count
    head = arrived = 0
    right, in_time, total = 0.0, 0, len(times_s)
    while head < total:
        now = max(free_s[0], times_s[head])
        while arrived < total and times_s[arrived] <= now:
            arrived += 1
        slack_s = times_s[head] + workers.slo_s - now + ROUNDING_S
        if slack_s < fastest_s:
            head += 1
            continue
        model, size = table.decision(arrived - head, slack_s)
        if seconds[model][size - 1] > slack_s:
            model, size = workers.rescue[0], min(arrived - head, workers.rescue[1])
        earliest_s = now + seconds[model][size - 1] - workers.slo_s - ROUNDING_S
        head, served = _taken(times_s, head, arrived, size, earliest_s)
        if served:
            heapreplace(free_s, now + seconds[model][served - 1])
            right += served * workers.models[model].accuracy
            in_time += served
    return TrialQuality(right / in_time if in_time else 0.0, 1 - in_time / total)


def _taken(
    times_s: Sequence[float], head: int, arrived: int, size: int, earliest_s: float
) -> tuple[int, int]:
    """Return the queue's head after a batch, and how many queries the batch serves: only those that
    arrived at ``earliest_s`` or later are in time."""
    served = 0
    while head < arrived and served < size:
        served += times_s[head] >= earliest_s
        head += 1
    return head, served


@cache  # a fixed seed: every table is tried with the same arrivals, so a result repeats
def _gaps() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(0).exponential(size=QUERIES)  # noqa: TID251


def _times_s(qps: float) -> list[float]:
    times: list[float] = np.cumsum(_gaps() / max(qps, LEAST_QPS)).tolist()
    return times
