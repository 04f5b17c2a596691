"""Render docs/results/compass-sweeps.md from the rows of ``compass_sweeps``."""

import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.papers.compass_sweeps import Row

OURS, ORACLE = "compass", "all plans known"
TITLES = {
    "load": "Load (Visual Tracking)",
    "budget": "Planning budgets (Live Video Chat)",
    "slo": "Tighter SLOs (Speech Recognition, the large cluster)",
    "tiers": "Tiers (Visual Tracking)",
    "knobs": "More configurations, higher accuracy (Speech Recognition)",
    "optimal": "How soon a near-optimal plan is known",
}
NEAR_OPTIMAL_S = 20.0  # asked


def page(rows: Sequence["Row"], queries: int) -> str:
    """Return the page; ``queries`` are drawn for each application and seed."""
    parts = [
        HEAD.format(
            queries=queries, day=datetime.now(UTC).date(), python=platform.python_version(),
            machine=platform.machine(),
        )
    ]  # fmt: skip
    for sweep, title in TITLES.items():
        own = [row for row in rows if row.sweep == sweep]
        if own:
            seeds = len({row.seed for row in own})
            parts.append(f"## {title}\n\n{TEXTS[sweep]} Seeds: {seeds}.\n")
            parts += {"knobs": _knobs, "optimal": _optimal}.get(sweep, _hours)(own)
    return "\n".join(parts)


# ---------------------------------------------------------------------- hours


def _hours(rows: Sequence["Row"]) -> Iterator[str]:
    for modelled, title in ((True, "as modelled"), (False, "as the papers'")):
        own = [row for row in rows if (row.pace == 1.0) == modelled]
        if own:
            yield f"Seconds of planning {title}:\n"
            yield _table(own, _methods(own), _goodput)
            rivals = [name for name in _methods(own) if name not in (ORACLE, OURS)]
            yield "How many times the goodput of a baseline `compass` has:\n"
            yield _table(own, rivals, _factor_of(own))
            yield from _largest(own, rivals)


def _methods(rows: Sequence["Row"]) -> list[str]:
    return list(dict.fromkeys(row.method for row in rows))


def _table(
    rows: Sequence["Row"], methods: Sequence[str], cell: Callable[[Sequence["Row"]], str]
) -> str:
    lines = [["point", *methods], ["---"] * (1 + len(methods))]
    for point in dict.fromkeys(row.point for row in rows):
        found = [
            cell([row for row in rows if (row.point, row.method) == (point, name)])
            for name in methods
        ]
        lines.append([point, *found])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _goodput(rows: Sequence["Row"]) -> str:
    goodput, planned, served = (
        float(np.mean([getattr(row, name) for row in rows]))
        for name in ("goodput", "planned", "served")
    )
    return f"{goodput:.1f} ({100 * planned:.0f}, {100 * served:.0f} %)"


def _factor_of(rows: Sequence["Row"]) -> Callable[[Sequence["Row"]], str]:
    ours = {(row.point, row.seed): row.goodput for row in rows if row.method == OURS}

    def factor(own: Sequence["Row"]) -> str:
        found = [ours[row.point, row.seed] / row.goodput for row in own if row.goodput]
        none = len(own) - len(found)
        if not found:
            return "none of theirs"
        spread = f"{np.mean(found):.2f}x ({min(found):.2f} to {max(found):.2f})"
        return spread + (f", {none} seeds with none of theirs" if none else "")

    return factor


def _largest(rows: Sequence["Row"], rivals: Sequence[str]) -> Iterator[str]:
    """Say at which point the factor of the mean goodputs is largest, where there are several."""
    points = list(dict.fromkeys(row.point for row in rows))
    if len(points) < 2:
        return
    found = []
    for rival in rivals:
        ours, theirs = (
            {at: _mean([r for r in rows if (r.point, r.method) == (at, name)], "goodput")
             for at in points}
            for name in (OURS, rival)
        )  # fmt: skip
        factors = {at: ours[at] / theirs[at] for at in points if theirs[at]}
        if factors:
            found.append(f"at {max(factors, key=factors.__getitem__)} over `{rival}`")
    if found:
        yield "The factor of the mean goodputs is largest " + "; ".join(found) + ".\n"


# ---------------------------------------------------------------------- knobs, optimal


def _knobs(rows: Sequence["Row"]) -> Iterator[str]:
    yield "The share of queries that have a plan, in percent:\n"
    yield _table(rows, _methods(rows), lambda own: f"{100 * _mean(own, 'planned'):.0f} %")
    yield "The mean of the cheapest plan, $ an hour, of the queries that all methods can plan:\n"
    yield _table(rows, _methods(rows), _cost)


def _mean(rows: Sequence["Row"], name: str) -> float:
    return float(np.mean([getattr(row, name) for row in rows]))


def _cost(rows: Sequence["Row"]) -> str:
    costs = [row.usd_per_h for row in rows if row.usd_per_h is not None]
    return f"{np.mean(costs):.2f}" if costs else "-"


def _optimal(rows: Sequence["Row"]) -> Iterator[str]:
    lines = ["| application | queries | median, s | p90, s | within 20 s, % | never |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for app in dict.fromkeys(row.app for row in rows):
        every = [each for row in rows if row.app == app for each in row.seconds]
        seconds = np.array([np.inf if each is None else each for each in every])
        p50, p90 = np.quantile(seconds, [0.5, 0.9], method="higher")
        lines.append(
            f"| {app} | {len(seconds)} | {p50:.1f} | {p90:.1f} |"
            f" {100 * np.mean(seconds <= NEAR_OPTIMAL_S):.0f} | {np.isinf(seconds).sum()} |"
        )
    yield "\n".join(lines) + "\n"


HEAD = """\
# Compass: sweeps over the modelled benchmark

**Every figure here is modelled** (docs/results/compass.md says by what); hours are those of
docs/results/compass-online.md, where methods, load and the two kinds of seconds are explained.
`compass` plans for 5 s and the baselines for 15 s where nothing else is said; {queries} queries are
drawn for each seed. In brackets behind a goodput (sessions a minute that were served by a plan that
truly meets their objectives): the shares of the sessions that got a plan in time, and that were
served. A session without a plan and one that was not admitted are so told apart.

Not played: four GPU tiers with the papers' data sets, and analysers of 14 and 32 billion parameters
(Compass, Figure 25): the model has neither their accuracies nor their seconds. The four tiers below
have the model's T4. Tighter SLOs (Figures 21 and 22; `--sweeps slo`): one of the nine points took
more than 24 minutes of a core, and was stopped. The rows are in
`docs/results/rows/compass-sweeps.jsonl`; in OUT_DIR/sweeps.jsonl they are not played again.

Written by `python -m benchmarks.papers.compass_sweeps DATA_DIR OUT_DIR` on {day}, Python {python},
{machine}.
"""
TEXTS = {
    "load": (
        "Compass, Figure 14a: the gap is largest at 0.25, where baselines find no plan in 15 s for "
        "many requests."
    ),
    "budget": (
        "Compass, Figure 14b: every method plans for the same time; Compass is level with "
        "baselines that have ten times its time."
    ),
    "slo": (
        "Compass, Figures 21 and 22: latencies of 2.0, 1.5 and 1.1 times and accuracies of 0.7, "
        "0.8 and 0.9 times the mean of the query's Pareto front; 2.5 to 5.0 and 1.5 to 3.5 times "
        "the goodput of the baselines."
    ),
    "tiers": (
        "Compass, Figure 24: with every stage in the cloud, on two tiers of GPUs (16 A100, 16 "
        "V100) and on three (16 T4 more), each with SLOs of 1.5 times the latency and 0.8 times "
        "the accuracy of its own front's means; VideoStorm is slightly ahead of Vulcan in the "
        "cloud."
    ),
    "knobs": (
        "Compass, Figure 32: random subsets of the 80 configurations and accuracies of 30 to 70 "
        "%; every method plans for 5 s. Asked: feasibility grows with the configurations; the cost "
        "is down to 0.11 of Vulcan's."
    ),
    "optimal": (
        "Compass, Table 1: modelled seconds until our search knows a truly compliant plan that "
        "costs at most 1.1 times the cheapest compliant one; within 20 s was asked."
    ),
}
