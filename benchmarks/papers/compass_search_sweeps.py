"""Sweeps over single searches: committees, the time of planning, larger analysers.

``searches`` takes searches with history to their first plan. For each it compares the committee of
the past searches that predict the accuracy of its profiles best with that of those that predict
their seconds best, and takes the share of profiling in the time of planning: with the papers' 40 ms
for a proposal, and with the measured CPU time of ours. ``analysers`` takes searches of Agentic Code
Generation to their first plan, with the model's six analysers and with two larger ones. ``costs``
goes on until ``LIMITS_S``: when does a search know a truly compliant plan of at most 2, 1.5 and 1.1
times the cost of the cheapest one, and what does its cheapest one cost at the end?
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.compass_compare import (
    HISTORY,
    METHODS,
    STEP_S,
    Method,
    run_baseline,
    searched,
)
from benchmarks.papers.compass_compare import Row as SearchRow
from benchmarks.papers.compass_model import Application, DrawnQuery, draw
from benchmarks.papers.compass_plans import BaselineSearch, Costs, OurSearch, by_truth, until
from benchmarks.papers.compass_searches import RIVALS
from benchmarks.papers.compass_sweep_rows import Row
from control.policies.compass.search.camo import Past, posterior
from control.policies.compass.search.committee import top_k
from control.policies.compass.search.composition import StageTimes
from control.policies.compass.search.sequential_test import StopRule
from control.problem.space import Space

OURS = "compass"
TIMES = (2.0, 1.5, 1.1)  # the cost of the cheapest compliant plan
LIMITS_S = {True: 60.0, False: 36_000.0}  # of interactive searches, and of others
# Of 14 and 32 billion parameters. The model has none: seconds and sizes follow those of its own
# analysers (0.5 to 7 billion) as a power of the parameters; the quality rises ever less.
LARGER: Sequence[Mapping[str, str | float]] = (
    {"option": "qwen2.5-14b", "a100_seconds": 7.7, "quality": 1.04, "model_gb": 29.5},
    {"option": "qwen2.5-32b", "a100_seconds": 13.5, "quality": 1.07, "model_gb": 65.5},
)


def searches(apps: Mapping[str, Application], seed: int, queries: int) -> Iterator[Row]:
    """Take searches of every application to their first plan."""
    for app in apps.values():
        found = [
            _figures(app.space, history, row, past)
            for history, row, past in _with_history(app, seed, queries)
        ]
        yield Row(
            sweep="searches", point=app.name, app=app.name, seed=seed, method=OURS,
            figures={name: float(np.mean([each[name] for each in found])) for name in found[0]},
        )  # fmt: skip


def analysers(apps: Mapping[str, Application], seed: int, queries: int) -> Iterator[Row]:
    """Take searches of Agentic Code Generation to their first plan, with and without ``LARGER``."""
    six = apps["ACG"]
    for point, app in (("6 analysers", six), ("8 analysers", with_larger_analysers(six))):
        own = _drawn(app, seed, queries)[HISTORY:]
        seconds = {OURS: [row.seconds for _, row, _ in _with_history(app, seed, queries)]}
        for name in RIVALS:
            seconds[name] = [run_baseline(name, query).seconds for query in own]
        for method, found in seconds.items():
            yield Row(
                sweep="analysers", point=point, app=app.name, seed=seed, method=method,
                seconds=tuple(found),
            )  # fmt: skip


def costs(apps: Mapping[str, Application], seed: int, queries: int) -> Iterator[Row]:
    """Search until ``LIMITS_S``, for queries that have a compliant plan."""
    for app in apps.values():
        drawn, rule = _drawn(app, seed, queries), StopRule(most=app.most_samples)
        history = [searched(query, Method(), (), rule)[1] for query in drawn[:HISTORY]]
        own = [query for query in drawn[HISTORY:] if by_truth(query).plans]
        least = [by_truth(query).plans[0].cost for query in own]
        found = _costs(own, history, LIMITS_S[app.parallelism > 1])
        last = {name: [_least(each) for each in costs] for name, costs in found.items()}
        common = np.isfinite(np.array(list(last.values()))).all(axis=0)
        for method, costs in found.items():
            for times in TIMES:
                yield Row(
                    sweep="costs", point=f"{app.name}, {times:g} times", app=app.name, seed=seed,
                    method=method, seconds=tuple(
                        until(each, times * usd) for each, usd in zip(costs, least, strict=True)
                    ),
                )  # fmt: skip
            ends = np.array(last[method])
            yield Row(
                sweep="costs", point=app.name, app=app.name, seed=seed, method=method,
                planned=float(np.isfinite(ends).mean()),
                usd_per_h=float(ends[common].mean()) if common.any() else None,
            )  # fmt: skip


def _costs(
    queries: Sequence[DrawnQuery], history: Sequence[Past], limit_s: float
) -> Mapping[str, Sequence[Sequence[tuple[float, float]]]]:
    """Return the costs over time of each query by method."""
    found: dict[str, list[Sequence[tuple[float, float]]]] = {
        OURS: [list(OurSearch(query, history).costs(limit_s)) for query in queries]
    }
    for name in RIVALS:
        both = [BaselineSearch(name, query).costs(limit_s) for query in queries]
        found[name] = [list(shared) for shared, _ in both]
        found[f"{name}, whole GPUs"] = [list(whole) for _, whole in both]
    return found


def _least(costs: Costs) -> float:
    return min((usd for _, usd in costs), default=np.inf)


def with_larger_analysers(app: Application) -> Application:
    """Return Agentic Code Generation with the options ``LARGER`` of its analyser."""
    stages = [
        {**op, "knobs": [{**k, "options": [*k["options"], *LARGER]} for k in op["knobs"]]}
        if op["name"] == "analyzer"
        else op
        for op in app.data["ops"]
    ]
    return replace(app, data={**app.data, "ops": stages})


def _drawn(app: Application, seed: int, queries: int) -> Sequence[DrawnQuery]:
    return draw(app, HISTORY + queries, 100 + seed)


def _with_history(
    app: Application, seed: int, queries: int
) -> Iterator[tuple[Sequence[Past], SearchRow, Past]]:
    """Yield the history, the row and the observations of each search."""
    rule = StopRule(most=app.most_samples)
    drawn = _drawn(app, seed, queries)
    history = [searched(query, Method(), (), rule)[1] for query in drawn[:HISTORY]]
    for query in drawn[HISTORY:]:
        yield history, *searched(query, METHODS[OURS], history, rule, OURS)


# ---------------------------------------------------------------------- figures of a search


def _figures(
    space: Space, history: Sequence[Past], row: SearchRow, past: Past
) -> Mapping[str, float]:
    right = _voters([_accuracy_error(space, each, past) for each in history])
    quick = _voters([_seconds_error(space, each, past) for each in history])
    profiling_s = row.seconds - STEP_S * row.steps
    return {
        "first voter differs": float(right[0] != quick[0]),
        "voters differ": float(set(right) != set(quick)),
        "voters shared": len(set(right) & set(quick)) / len(right),
        "profiling": profiling_s / row.seconds,
        "profiling, measured": profiling_s / (profiling_s + 1e-3 * row.propose_ms * row.steps),
    }


def _voters(errors: Sequence[float]) -> list[int]:
    """Return the members of the committee, those with the least error first."""
    weights = top_k(np.array(errors), np.inf)
    return [int(n) for n in np.argsort(-weights, kind="stable") if weights[n] > 0]


def _accuracy_error(space: Space, member: Past, past: Past) -> float:
    mean, _ = posterior(space.configurations, member)
    return float(np.abs(mean[past.configuration] - past.accuracy).mean())


def _seconds_error(space: Space, member: Past, past: Past) -> float:
    """Return the mean error of the logarithm of the seconds that a past search predicts."""
    times = StageTimes(space)
    for c, seconds in zip(member.configuration.tolist(), member.seconds, strict=True):
        times.tell(c, seconds.tolist())
    predicted: NDArray[np.float64] = times.seconds()[past.configuration].sum(axis=1)
    return float(np.abs(np.log(predicted / past.seconds.sum(axis=1))).mean())
