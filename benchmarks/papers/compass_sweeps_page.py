"""Render docs/results/compass-sweeps.md from the rows of ``compass_sweeps``."""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from benchmarks.commit import commit
from benchmarks.papers.compass_page import ratio
from benchmarks.papers.compass_sweep_rows import Row
from benchmarks.papers.compass_sweeps_texts import COSTS, HEAD, NO_SLO, OCCUPANCY, TEXTS, TITLES
from headrace.results.statistics import CERTAINTY, mean_of

OURS, ORACLE = "compass", "all plans known"
MISSED = " **not reproduced**"
NEAR_OPTIMAL_S = 20.0  # required
EDGE = "edge"
PIECE, WHOLE = 1.7, 3.0  # the papers' least factor of a piece, and over their baseline
WHOLE_RIVAL = "videostorm-like, first come"
LATENCY, ACCURACY = 2.5, 1.5  # the papers' least factors over SLOs of both kinds
CLOUD_ONLY = "cloud only"
V1_GOODPUT, V1_CHEAPER, ALONE_CHEAPER = 3.2, 3.1, 5.0  # the least factors of Circinus (v1)
DIFFER = 0.5  # of the searches have two committees, at least
PROFILING = {"SR": 0.8, "VT": 0.8, "LVC": 0.8, "DVC": 0.99, "ACG": 0.99}  # of planning, papers
LARGEST = {"load": "load 0.25"}  # where the papers' factor is largest
COST = 0.11  # of Vulcan's, the papers' least
SOONER, CHEAPER = 6.0, 2.0  # the papers' least factors of DVC and ACG: profiling, cost at its end
THROUGHPUT = ("DVC", "ACG")
LIMITS_S = {"SR": 60.0, "VT": 60.0, "LVC": 60.0, "DVC": 36_000.0, "ACG": 36_000.0}
SEEDS = 20  # required
WITHOUT_FACTORS = ("knobs", "optimal", "searches")
GPU_H = 3600.0


def page(rows: Sequence[Row], queries: int) -> str:
    """Return the page; ``queries`` are drawn for each application and seed."""
    parts = [
        HEAD.format(
            queries=queries, day=datetime.now(UTC).date(), commit=commit() or "no repository",
            python=platform.python_version(), machine=platform.machine(),
            slo="" if any(row.sweep == "slo" for row in rows) else NO_SLO,
        )
    ]  # fmt: skip
    for sweep, title in TITLES.items():
        own = [row for row in rows if row.sweep == sweep]
        if own:
            seeds = len({row.seed for row in own})
            required = f" ({SEEDS} required)" if seeds < SEEDS else ""
            few = "" if sweep in WITHOUT_FACTORS else few_seeds(seeds)
            parts.append(f"## {title}\n\n{TEXTS[sweep]}\nSeeds: {seeds}{required}.{few}\n")
            parts += TABLES.get(sweep, _hours)(own)
    return "\n".join(parts)


def few_seeds(seeds: int) -> str:
    """Return what the bootstrap's intervals over so few seeds miss; "" if they can cover 95 %.

    They lie within the range of the seeds' own factors, which has all of n seeds on one side of the
    median with probability 2^(1 - n).
    """
    covered = 1 - 2.0 ** (1 - seeds)
    if covered >= CERTAINTY:
        return ""
    return (
        f" **The intervals of the factors cover some {100 * covered:.0f} % at most, not 95 %**: a "
        "bootstrap does not leave the range of so few seeds."
    )


# ---------------------------------------------------------------------- hours


def _hours(rows: Sequence[Row]) -> Iterator[str]:
    for modelled, title in ((True, "as modelled"), (False, "as in the papers")):
        own = [row for row in rows if (row.pace == 1.0) == modelled]
        if own:
            yield f"Planning time {title}:\n"
            yield _table(own, _methods(own), _goodput)
            rivals = [name for name in _methods(own) if name not in (ORACLE, OURS)]
            yield "Goodput of `compass` over that of each baseline:\n"
            yield _table(own, rivals, _factor_of(own))
            yield from _largest(own, rivals)


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.method for row in rows))


def _table(
    rows: Sequence[Row], methods: Sequence[str], cell: Callable[[Sequence[Row]], str]
) -> str:
    lines = [["point", *methods], ["---"] * (1 + len(methods))]
    for point in dict.fromkeys(row.point for row in rows):
        found = [
            cell([row for row in rows if (row.point, row.method) == (point, name)])
            for name in methods
        ]
        lines.append([point, *found])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _goodput(rows: Sequence[Row]) -> str:
    planned, served = (_mean(rows, name) for name in ("planned", "served"))
    goodput = _spread([row.goodput for row in rows])
    return f"{goodput} ({100 * planned:.0f}, {100 * served:.0f} %)"


def _spread(values: Sequence[float], digits: int = 1) -> str:
    """Return a mean with its 95 % interval."""
    mean = mean_of(values)
    half = "" if mean.half is None else f" ± {mean.half:.{digits}f}"
    return f"{mean.value:.{digits}f}{half}"


def _alone(rows: Sequence[Row]) -> Iterator[str]:
    yield _table(rows, _methods(rows), _goodput)
    yield f"Goodput of `{ORACLE}` over that of each other method:\n"
    yield _table(
        rows, [name for name in _methods(rows) if name != ORACLE], _factor_of(rows, ORACLE)
    )


def _moves(rows: Sequence[Row]) -> Iterator[str]:
    yield _table(rows, _methods(rows), _goodput)
    yield "Goodput over that of `compass`, whose running sessions stay:\n"
    moved = [name for name in _methods(rows) if name not in (ORACLE, OURS)]
    yield _table(rows, moved, _over(rows, OURS))


def _clusters(rows: Sequence[Row]) -> Iterator[str]:
    yield from _hours(rows)
    for modelled, title in ((True, "as modelled"), (False, "as in the papers")):
        own = [row for row in rows if (row.pace == 1.0) == modelled]
        if own:
            yield COSTS.format(title=title)
            yield _table(own, _methods(own), _cost)
            rivals = [name for name in _methods(own) if name not in (ORACLE, OURS)]
            yield "Cost of each baseline over that of `compass`:\n"
            yield _table(own, rivals, _dearer(own))


def _dearer(rows: Sequence[Row]) -> Callable[[Sequence[Row]], str]:
    ours = {(row.point, row.seed): row.usd_per_h for row in rows if row.method == OURS}

    def factor(own: Sequence[Row]) -> str:
        pairs = [(row.usd_per_h, ours[row.point, row.seed]) for row in own]
        known = [(theirs, usd) for theirs, usd in pairs if theirs is not None and usd is not None]
        return _times(known, ALONE_CHEAPER if own[0].point == CLOUD_ONLY else V1_CHEAPER)

    return factor


def _factor_of(rows: Sequence[Row], method: str = OURS) -> Callable[[Sequence[Row]], str]:
    ours = {(row.point, row.seed): row.goodput for row in rows if row.method == method}

    def factor(own: Sequence[Row]) -> str:
        theirs = [row.goodput for row in own]
        if not any(theirs):
            return "baseline serves none"
        low, value, high = ratio([ours[row.point, row.seed] for row in own], theirs)
        return f"{value:.2f}x ({low:.2f} to {high:.2f}){_missed(own[0], value)}"

    return factor


def _over(rows: Sequence[Row], method: str) -> Callable[[Sequence[Row]], str]:
    """Return the goodput of a cell over that of ``method`` at the same points and seeds."""
    theirs = {(row.point, row.seed): row.goodput for row in rows if row.method == method}

    def factor(own: Sequence[Row]) -> str:
        pairs = [(row.goodput, theirs[row.point, row.seed]) for row in own]
        return _times(pairs, 0.0)

    return factor


def _missed(row: Row, factor: float) -> str:
    """Return the mark of a factor that is below the papers' least one at the row's point."""
    least = 0.0
    if row.sweep == "pieces":
        least = WHOLE if row.method == WHOLE_RIVAL else PIECE
    elif row.sweep == "slo":
        least = LATENCY if row.point.startswith("latency") else ACCURACY
    elif row.sweep == "clusters" and row.point != CLOUD_ONLY:
        least = V1_GOODPUT
    return "" if factor >= least else MISSED


def _largest(rows: Sequence[Row], rivals: Sequence[str]) -> Iterator[str]:
    """Yield the point of the largest factor over each baseline, if there are several points."""
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
            largest = max(factors, key=factors.__getitem__)
            other = " **not reproduced**" if largest != LARGEST.get(rows[0].sweep, largest) else ""
            found.append(f"- over `{rival}` at {largest}{other}")
    if found:
        yield "The factor of the mean goodputs is largest:\n\n" + "\n".join(found) + "\n"


# ---------------------------------------------------------------------- knobs, optimal


def _knobs(rows: Sequence[Row]) -> Iterator[str]:
    yield "Share of the queries that have a plan:\n"
    yield _table(rows, _methods(rows), lambda own: f"{100 * _mean(own, 'planned'):.0f} %")
    yield "Mean cost of the cheapest plan, $ per hour, for queries that all methods can plan:\n"
    yield _table(rows, _methods(rows), _cost)
    yield from _least_costs(rows)


def _least_costs(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the point at which the cost is the smallest share of each baseline's."""
    costs: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.usd_per_h is not None:
            costs.setdefault((row.method, row.point), []).append(row.usd_per_h)
    means = {key: mean_of(each).value for key, each in costs.items()}
    for rival in (name for name in _methods(rows) if name not in (ORACLE, OURS)):
        parts = {
            point: means[OURS, point] / cost
            for (method, point), cost in means.items()
            if method == rival and (OURS, point) in means
        }
        if parts:
            least = min(parts, key=parts.__getitem__)
            other = " **not reproduced**" if parts[least] > COST else ""
            found = f"{parts[least]:.2f}, at {least}{other}"
            yield f"Least cost of `compass` over that of `{rival}`: {found}.\n"


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(np.mean([getattr(row, name) for row in rows]))


def _cost(rows: Sequence[Row]) -> str:
    costs = [row.usd_per_h for row in rows if row.usd_per_h is not None]
    return f"{np.mean(costs):.2f}" if costs else "-"


def _optimal(rows: Sequence[Row]) -> Iterator[str]:
    lines = ["| application | queries | median, s | p90, s | within 20 s, % | never |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for app in dict.fromkeys(row.app for row in rows):
        own = [row for row in rows if row.app == app]
        seconds = np.array(
            [np.inf if each is None else each for row in own for each in row.seconds]
        )
        soon = [
            100.0 * float(np.mean([s is not None and s <= NEAR_OPTIMAL_S for s in row.seconds]))
            for row in own
        ]
        p50, p90 = np.quantile(seconds, [0.5, 0.9], method="higher")
        late = " **not reproduced**" if p90 > NEAR_OPTIMAL_S else ""
        lines.append(
            f"| {app} | {len(seconds)} | {p50:.1f} | {p90:.1f}{late} |"
            f" {_spread(soon)} | {np.isinf(seconds).sum()} |"
        )
    yield "\n".join(lines) + "\n"


def _costs(rows: Sequence[Row]) -> Iterator[str]:
    timed = [row for row in rows if row.seconds]
    ended = [row for row in rows if not row.seconds]
    rivals = [name for name in _methods(rows) if name != OURS]
    ours = {(row.point, row.seed): row for row in rows if row.method == OURS}

    def sooner(own: Sequence[Row]) -> str:
        pairs = [(_limited_s(row), _limited_s(ours[row.point, row.seed])) for row in own]
        return _times(pairs, SOONER if own[0].app in THROUGHPUT else 0.0)

    def cheaper(own: Sequence[Row]) -> str:
        pairs = [(row.usd_per_h, ours[row.point, row.seed].usd_per_h) for row in own]
        known = [(theirs, usd) for theirs, usd in pairs if theirs is not None and usd is not None]
        return _times(known, CHEAPER if own[0].app in THROUGHPUT else 0.0)

    yield "Planning time until such a plan is known; in brackets the queries that never have one:\n"
    yield _table(timed, _methods(rows), _until)
    yield "Time of each baseline over that of `compass`:\n"
    yield _table(timed, rivals, sooner)
    yield "$ per hour at the end, for queries that all methods can plan; in brackets their plans:\n"
    yield _table(
        ended, _methods(rows), lambda own: f"{_cost(own)} ({100 * _mean(own, 'planned'):.0f} %)"
    )
    yield "Cost of each baseline over that of `compass`:\n"
    yield _table(ended, rivals, cheaper)


def _times(pairs: Sequence[tuple[float, float]], least: float) -> str:
    """Return a baseline's figure over ours, by seed, marked if it is below ``least``."""
    if not pairs:
        return "nothing to compare"
    low, value, high = ratio(*zip(*pairs, strict=True))
    return f"{value:.2f}x ({low:.2f} to {high:.2f}){'' if value >= least else MISSED}"


def _limited_s(row: Row) -> float:
    """Return the mean seconds; a query that never has such a plan counts with the limit."""
    limit_s = LIMITS_S[row.app]
    return float(np.mean([limit_s if each is None else each for each in row.seconds]))


def _until(rows: Sequence[Row]) -> str:
    hours = rows[0].app in THROUGHPUT
    mean = _spread([_limited_s(row) / (GPU_H if hours else 1.0) for row in rows], 2)
    never = [each is None for row in rows for each in row.seconds]
    return f"{mean} {'GPU-h' if hours else 's'} ({100 * float(np.mean(never)):.0f} %)"


# ---------------------------------------------------------------------- pieces, searches


def _pieces(rows: Sequence[Row]) -> Iterator[str]:
    yield from _hours(rows)
    yield OCCUPANCY
    tiers = list(rows[0].figures)
    yield _table(
        [row for row in rows if row.figures], _methods(rows), lambda own: _occupied(own, tiers)
    )


def _occupied(rows: Sequence[Row], tiers: Sequence[str]) -> str:
    return ", ".join(
        f"{tier} {100 * float(np.mean([row.figures[tier] for row in rows])):.0f} %"
        for tier in tiers
    )


def _searches(rows: Sequence[Row]) -> Iterator[str]:
    names = list(rows[0].figures)
    lines = [["application", *names], ["---"] * (1 + len(names))]
    for app in dict.fromkeys(row.app for row in rows):
        own = [row for row in rows if row.app == app]
        lines.append([app, *(_share(own, name) for name in names)])
    yield "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _share(rows: Sequence[Row], name: str) -> str:
    """Return a named share in percent, marked if its mean is below the papers' figure."""
    values = [100 * row.figures[name] for row in rows]
    least = {"voters differ": DIFFER, "profiling": PROFILING[rows[0].app]}.get(name, 0.0)
    return f"{_spread(values)} %{'' if np.mean(values) >= 100 * least else MISSED}"


def _analysers(rows: Sequence[Row]) -> Iterator[str]:
    rivals = [name for name in _methods(rows) if name != OURS]
    ours = {(row.point, row.seed): _mean_s(row) for row in rows if row.method == OURS}

    def factor(own: Sequence[Row]) -> str:
        fast = [ours[row.point, row.seed] for row in own]
        low, value, high = ratio([_mean_s(row) for row in own], fast)
        return f"{value:.2f}x ({low:.2f} to {high:.2f})"

    yield "Mean GPU-hours of profiling until the first accepted plan:\n"
    yield _table(rows, _methods(rows), lambda own: _spread([_mean_s(r) / GPU_H for r in own], 2))
    yield "Time of each baseline over that of `compass` (95 % interval of a paired bootstrap):\n"
    yield _table(rows, rivals, factor)


def _mean_s(row: Row) -> float:
    return float(np.mean([each for each in row.seconds if each is not None]))


TABLES: Mapping[str, Callable[[Sequence[Row]], Iterator[str]]] = {
    "knobs": _knobs,
    "optimal": _optimal,
    "costs": _costs,
    "pieces": _pieces,
    "alone": _alone,
    "moves": _moves,
    "clusters": _clusters,
    "searches": _searches,
    "analysers": _analysers,
}
