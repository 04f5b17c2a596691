"""Sweeps over the modelled benchmark of query plans: load, budgets, SLOs, tiers, configurations.

    python -m benchmarks.papers.compass_sweeps DATA_DIR OUT_DIR [--sweeps load budget ...]
        [--seeds N] [--queries N] [--page PAGE] [--again]

``load``, ``budget``, ``slo`` and ``tiers`` play the hour of ``compass_online`` at each point, with
the seconds of planning as modelled and as the papers' (Compass, Section 6.4 and Appendix F):
``load`` 0.25 to 2 (Visual Tracking); ``budget`` 1 to 30 s of planning for every method (Live Video
Chat); ``slo`` latencies of 2.0, 1.5 and 1.1 and accuracies of 0.7, 0.8 and 0.9 times the mean of
the query's Pareto front (Speech Recognition, the large cluster); ``tiers`` one, two and three tiers
of GPUs, each with SLOs of 1.5 and 0.8 times its own front's means (Visual Tracking). ``knobs``
takes random subsets of Speech Recognition's 80 configurations and accuracies of 30 to 70 %: how
many queries have a compliant plan at all, and what the cheapest plan costs after 5 s. ``optimal``:
how soon a plan costs at most 1.1 times the cheapest compliant one. Rows are kept in
OUT_DIR/sweeps.jsonl and not played again.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.papers.compass import CLUSTERS, NEAR_EDGE
from benchmarks.papers.compass_model import (
    CLOUD,
    EDGE,
    NEAR,
    TIERS,
    Application,
    DrawnQuery,
    applications,
    draw,
)
from benchmarks.papers.compass_online import (
    HISTORY,
    LIVES_S,
    Gpus,
    Hour,
    arrivals,
    fitting,
    papers_pace,
)
from benchmarks.papers.compass_plans import (
    Planned,
    by_baseline,
    by_compass,
    by_truth,
    near_optimal_s,
    past_of,
)
from benchmarks.papers.compass_sweeps_page import page
from benchmarks.papers.sources import DataError
from benchmarks.row_file import RowFile, RowFileError

PAGE = Path("docs/results/compass-sweeps.md")
OURS_S, RIVALS_S = 5.0, 15.0
RIVALS = ("vulcan-like", "videostorm-like")
LOADS = (0.25, 0.5, 1.0, 2.0)
BUDGETS_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
LATENCIES = {"easy": 2.0, "medium": 1.5, "hard": 1.1}  # times the mean of the Pareto front
ACCURACIES = {"easy": 0.7, "medium": 0.8, "hard": 0.9}
SUBSETS = (15, 30, 45, 60)  # configurations
FLOORS = (0.3, 0.4, 0.5, 0.6, 0.7)
NEAR_OPTIMAL_S = 60.0  # of searching

Change = Callable[[DrawnQuery], DrawnQuery]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point of a sweep with one seed and one method.

    Hours have ``planned`` and ``served``, shares of the sessions, and ``goodput``, sessions a
    minute that were served by a plan that truly meets their objectives. ``pace``: what a modelled
    second of planning takes. ``knobs`` has ``planned``, the share of queries with a plan, and
    ``usd_per_h``, the mean of the cheapest one of the queries that all methods can plan;
    ``optimal`` the seconds of each query, infinite as None.
    """

    sweep: str
    point: str
    app: str
    seed: int
    method: str
    pace: float = 1.0
    planned: float = 0.0
    served: float = 0.0
    goodput: float = 0.0
    usd_per_h: float | None = None
    seconds: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An hour at one point of a sweep."""

    sweep: str
    point: str
    app: str
    load: float = 1.0
    cluster: str = "medium"
    tiers: tuple[str, ...] = TIERS
    ours_s: float = OURS_S
    rivals_s: float = RIVALS_S
    change: Change = lambda query: query


def scenes(sweep: str) -> Iterator[Scene]:
    """Yield the points of a sweep that are hours."""
    if sweep == "load":
        for load in LOADS:
            yield Scene(sweep=sweep, point=f"load {load:g}", app="VT", load=load)
    if sweep == "budget":
        for limit_s in BUDGETS_S:
            yield Scene(
                sweep=sweep, point=f"{limit_s:g} s", app="LVC", ours_s=limit_s, rivals_s=limit_s
            )
    if sweep == "slo":
        for (quick, latency), (right, accuracy) in product(LATENCIES.items(), ACCURACIES.items()):
            yield Scene(
                sweep=sweep, point=f"latency {quick}, accuracy {right}", app="SR", cluster="large",
                change=partial(tightened, latency=latency, accuracy=accuracy),
            )  # fmt: skip
    if sweep == "tiers":
        # The drawn SLO is out of reach in the cloud alone: each deployment has its own.
        medium = partial(tightened, latency=LATENCIES["medium"], accuracy=ACCURACIES["medium"])
        yield Scene(
            sweep=sweep, point="cloud", app="VT", cluster="one-tier",
            change=lambda query: medium(in_cloud(query)),
        )  # fmt: skip
        yield Scene(sweep=sweep, point="edge, near, cloud", app="VT", change=medium)
        yield Scene(
            sweep=sweep, point="edge, T4, near, cloud", app="VT", cluster="four-tier",
            tiers=(EDGE, NEAR_EDGE, NEAR, CLOUD), change=medium,
        )  # fmt: skip


# ---------------------------------------------------------------------- changed queries


def tightened(query: DrawnQuery, latency: float, accuracy: float) -> DrawnQuery:
    """Return the query with an SLO of these multiples of its Pareto front's means."""
    quickest, best = query.latency.min(axis=1), -np.inf
    front = []
    for c in np.lexsort((-query.accuracy, quickest)).tolist():
        if np.isfinite(quickest[c]) and query.accuracy[c] > best + 1e-9:
            front.append(c)
            best = float(query.accuracy[c])
    slo = replace(
        query.slo,
        latency_s=latency * float(quickest[front].mean()),
        accuracy=accuracy * float(query.accuracy[front].mean()),
    )
    return replace(query, slo=slo)


def in_cloud(query: DrawnQuery) -> DrawnQuery:
    """Return the query with every stage in the cloud."""
    space, deployment = query.app.space, query.deployment
    whole = (space.placements == space.tiers.index(CLOUD)).all(axis=1)
    return replace(query, deployment=replace(deployment, fits=deployment.fits & whole[None]))


def among(query: DrawnQuery, configurations: int, floor: float, seed: int) -> DrawnQuery:
    """Return the query with a random subset of the configurations and another accuracy SLO.

    A larger subset has the configurations of the smaller ones.
    """
    count = query.app.space.configuration_count
    order = np.random.default_rng([seed, query.number, 17]).permutation(count)
    kept = np.zeros(count, dtype=bool)
    kept[order[:configurations]] = True
    fits = query.deployment.fits & kept[:, None]
    slo = replace(query.slo, accuracy=floor)
    return replace(query, deployment=replace(query.deployment, fits=fits), slo=slo)


# ---------------------------------------------------------------------- the sweeps


def hours(apps: Mapping[str, Application], scene: Scene, seed: int, queries: int) -> Iterator[Row]:
    """Play an hour of each method, by both paces."""
    app = replace(apps[scene.app], tiers=scene.tiers)
    drawn = [scene.change(query) for query in draw(app, HISTORY + queries, 100 + seed)]
    counts = CLUSTERS[scene.cluster]
    prices = {tier: app.model["tiers"][tier]["usd_per_gpu_h"] for tier in counts}
    truth = [by_truth(query) for query in drawn[HISTORY:]]
    if not any(each.plans for each in truth):
        raise DataError(f"{scene.sweep}, {scene.point}: no query has a compliant plan")
    rate = scene.load * fitting(truth, counts, prices) / LIVES_S[app.name]
    coming = arrivals(rate, LIVES_S[app.name], queries, 100 + seed)
    for pace in (1.0, papers_pace(app, drawn)):
        for method, known in (("all plans known", truth), *methods(scene, drawn, pace)):
            hour = Hour(coming, known, Gpus(counts, prices))
            hour.play()
            good = sum(known[coming[n].query].complies[at] for n, at in hour.chosen.items())
            yield Row(
                sweep=scene.sweep, point=scene.point, app=app.name, seed=seed, method=method,
                pace=pace, served=len(hour.chosen) / len(coming), goodput=good / 60,
                planned=sum(bool(known[each.query].plans) for each in coming) / len(coming),
            )  # fmt: skip


def methods(
    scene: Scene, drawn: Sequence[DrawnQuery], pace: float
) -> Iterator[tuple[str, list[Planned]]]:
    """Yield the methods with what they know of each query; the first ones are the history."""
    history = [past_of(query, scene.ours_s / pace) for query in drawn[:HISTORY]]

    def known(plan: Callable[[DrawnQuery], Planned]) -> list[Planned]:
        found = [plan(query) for query in drawn[HISTORY:]]
        return [replace(each, seconds=pace * each.seconds) for each in found]

    limit_s = scene.ours_s / pace
    yield "compass", known(lambda query: by_compass(query, limit_s, history))
    for name, trimmed in product(RIVALS, (True, False)):
        rival = partial(by_baseline, name, limit_s=scene.rivals_s / pace, trimmed=trimmed)
        yield f"{name}{'' if trimmed else ', whole GPUs'}", known(rival)


def knobs(apps: Mapping[str, Application], seed: int, queries: int) -> Iterator[Row]:
    """Take subsets of the configurations: feasibility, and cost after five seconds."""
    drawn = draw(apps["SR"], HISTORY + queries, 100 + seed)
    for count, floor in product(SUBSETS, FLOORS):
        changed = [among(query, count, floor, seed) for query in drawn]
        history = [past_of(query, OURS_S) for query in changed[:HISTORY]]
        own = changed[HISTORY:]
        found = {
            "all plans known": [by_truth(query) for query in own],
            "compass": [by_compass(query, OURS_S, history) for query in own],
            "vulcan-like": [by_baseline(RIVALS[0], q, OURS_S, trimmed=True) for q in own],
            "vulcan-like, whole GPUs": [
                by_baseline(RIVALS[0], q, OURS_S, trimmed=False) for q in own
            ],
        }
        common = [n for n in range(len(own)) if all(each[n].plans for each in found.values())]
        for method, known in found.items():
            costs = [known[n].plans[0].cost for n in common]
            yield Row(
                sweep="knobs", point=f"{count} configurations, {floor:.0%}", app="SR", seed=seed,
                method=method, planned=sum(bool(each.plans) for each in known) / len(known),
                usd_per_h=float(np.mean(costs)) if costs else None,
            )  # fmt: skip


def optimal(apps: Mapping[str, Application], seed: int, queries: int) -> Iterator[Row]:
    """Search until a plan costs at most 1.1 times the cheapest compliant one."""
    for name in LIVES_S:
        drawn = draw(apps[name], HISTORY + queries, 100 + seed)
        history = [past_of(query, OURS_S) for query in drawn[:HISTORY]]
        found = [near_optimal_s(query, NEAR_OPTIMAL_S, history) for query in drawn[HISTORY:]]
        yield Row(
            sweep="optimal", point=name, app=name, seed=seed, method="compass",
            seconds=tuple(found),
        )  # fmt: skip


def play(options: argparse.Namespace, rows: RowFile[Row]) -> None:
    """Play what is not in the file yet."""
    apps = applications(options.data)
    known = {(row.sweep, row.point, row.seed) for row in rows.read()}
    for seed, sweep in product(range(options.seeds), options.sweeps):
        parts: list[tuple[str, Callable[[], Iterator[Row]]]] = [
            (scene.point, partial(hours, apps, scene, seed, options.queries))
            for scene in scenes(sweep)
        ]
        if sweep in ("knobs", "optimal"):
            whole = knobs if sweep == "knobs" else optimal
            parts = [("", partial(whole, apps, seed, options.queries))]
        for point, made in parts:
            if any(k[0] == sweep and k[2] == seed and point in ("", k[1]) for k in known):
                continue
            for row in list(made()):  # a part of a point is not kept
                rows.append(row)
            print(f"played: {sweep} {point}, seed {seed}", file=sys.stderr, flush=True)


SWEEPS = ("load", "budget", "slo", "tiers", "knobs", "optimal")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the sweeps and write the page; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.compass_sweeps")
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--sweeps", nargs="+", choices=SWEEPS, default=list(SWEEPS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=12, help="that are drawn anew (12)")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--again", action="store_true", help="only write the page once more")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = RowFile(options.out / "sweeps.jsonl", Row)
    try:
        if not options.again:
            play(options, rows)
        options.page.write_text(page(list(rows.read()), options.queries), encoding="utf-8")
    except (DataError, RowFileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
