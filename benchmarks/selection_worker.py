"""Simulate one worker under a table, query by query, to check the table's expected values.

The worker gets every K-th query. As in the table, a batch is late as a whole if the query with the
earliest deadline is late, and a full queue counts as N + 1.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from control.policies.ramsis.mdp import DecisionProcess, Setting

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


def with_increments(setting: Setting, queries: int, rng: np.random.Generator) -> Floats:
    """Draw arrival times at one worker, in seconds, from the process that the table assumes."""
    arrivals, total = setting.arrivals, queries * setting.workers
    if arrivals.dispersion == 1:
        times = np.cumsum(rng.exponential(1 / arrivals.qps, total))
    else:
        # A negative binomial process: bursts at the times of a Poisson process, of logarithmic
        # size with parameter p = 1 - 1 / dispersion.
        p = 1 - 1 / arrivals.dispersion
        sizes = rng.logseries(p, total)
        bursts = arrivals.qps * -np.log1p(-p) * (1 - p) / p
        times = np.repeat(np.cumsum(rng.exponential(1 / bursts, total)), sizes)[:total]
    return times[setting.workers - 1 :: setting.workers]


def with_gamma_gaps(
    setting: Setting, squared_variation: float, queries: int, rng: np.random.Generator
) -> Floats:
    """Draw arrival times at one worker, in seconds, with gamma distributed gaps overall."""
    gap = 1 / setting.arrivals.qps
    shape = 1 / squared_variation
    times = np.cumsum(rng.gamma(shape, gap / shape, queries * setting.workers))
    return times[setting.workers - 1 :: setting.workers]


def decisions(process: DecisionProcess, choice: Ints) -> tuple[Ints, Ints]:
    """Return the model and the batch of every state, [n - 1, j], from its choice."""
    batch = np.take_along_axis(process.served, choice, axis=1)
    return process.model[choice], batch.astype(np.intp)


def follow(setting: Setting, model: Ints, batch: Ints, arrivals: Floats) -> tuple[float, float]:
    """Return the accuracy of queries on time, and the violation, under a table [n - 1, j]."""
    latency, busy_s = setting.latencies_s().tolist(), setting.busy_s().tolist()
    levels = list(setting.levels_s)
    times, models, batches = arrivals.tolist(), model.tolist(), batch.tolist()
    now, at, late, on_time, right = 0.0, 0, 0, 0, 0.0
    while at < len(times):
        now = max(now, times[at])
        end = bisect_right(times, now, at)
        n = min(end - at, setting.longest + 1)
        # The tolerance covers rounding: a worker that was idle sees the full slack.
        slack = times[at] + setting.slo_s - now + 1e-12
        level = max(bisect_right(levels, slack) - 1, 0) if n <= setting.longest else 0
        m, b = models[n - 1][level], batches[n - 1][level]
        if latency[b - 1][m] <= levels[level] and n <= setting.longest:
            on_time, right = on_time + b, right + b * setting.models[m].accuracy
        else:
            late += b
        now, at = now + busy_s[b - 1][m], end if b == n else at + b
    return right / max(on_time, 1), late / (late + on_time)
