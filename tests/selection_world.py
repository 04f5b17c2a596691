"""Small settings of model selection, and one query's worker simulated query by query."""

from bisect import bisect_right

import numpy as np

from control.selection_arrivals import Arrivals
from control.selection_model import Setting, fixed_levels
from control.selection_profile import Model

FAST = Model("fast", 0.60, (0.020, 0.030, 0.040))
GOOD = Model("good", 0.75, (0.045, 0.080, 0.110))
BEST = Model("best", 0.90, (0.090, 0.170, 0.250))
SLO_S = 0.1


def a_setting(
    qps: float = 30.0,
    workers: int = 2,
    models: tuple[Model, ...] = (FAST, GOOD, BEST),
    levels: tuple[float, ...] | None = None,
    dispersion: float = 1.0,
    slo_s: float = SLO_S,
) -> Setting:
    return Setting(
        models=models,
        slo_s=slo_s,
        workers=workers,
        arrivals=Arrivals(qps, dispersion),
        levels_s=levels or fixed_levels(slo_s, 5),
    )


def follow(
    setting: Setting, choice: np.ndarray, queries: int, seed: int, runs: int
) -> tuple[list[float], list[float]]:
    """Accuracy on time and violation of one worker under a table, run by run.

    The worker gets every K-th of the queries that all workers get. As the table counts, a batch is
    late as a whole where the query with the earliest deadline is.
    """
    seen = [
        _run(setting, choice, _arrivals(setting, queries, np.random.default_rng((seed, run))))
        for run in range(runs)
    ]
    return [accuracy for accuracy, _ in seen], [violation for _, violation in seen]


def _arrivals(setting: Setting, queries: int, rng: np.random.Generator) -> np.ndarray:
    """Arrival times at one worker, in seconds."""
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


def _run(setting: Setting, choice: np.ndarray, arrivals: np.ndarray) -> tuple[float, float]:
    latency, levels = setting.latencies_s().tolist(), list(setting.levels_s)
    times, chosen = arrivals.tolist(), choice.tolist()
    now, at, late, on_time, right = 0.0, 0, 0, 0, 0.0
    while at < len(times):
        now = max(now, times[at])
        end = bisect_right(times, now, at)
        n = min(end - at, setting.longest + 1)
        # A worker that waited has all the slack there is, but for rounding.
        slack = times[at] + setting.slo_s - now + 1e-12
        level = max(bisect_right(levels, slack) - 1, 0) if n <= setting.longest else 0
        model = chosen[n - 1][level]
        if latency[n - 1][model] <= levels[level] and n <= setting.longest:
            on_time, right = on_time + n, right + n * setting.models[model].accuracy
        else:
            late += n  # a full queue counts as N + 1, as in the table
        now, at = now + latency[n - 1][model], end
    return right / max(on_time, 1), late / (late + on_time)
