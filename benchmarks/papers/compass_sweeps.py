"""Sweeps over the modelled benchmark of query plans: load, budgets, SLOs, tiers, pieces, and more.

    python -m benchmarks.papers.compass_sweeps DATA_DIR OUT_DIR [--sweeps load budget ...]
        [--seeds N] [--queries N] [--page PAGE] [--again]

These play the hour of ``compass_online`` at each point, with planning time as in the papers and,
except for ``slo``, ``pieces``, ``alone`` and ``moves``, as modelled (Compass, Section 6.4 and
Appendix F):

- ``load``: 0.25 to 2 (Visual Tracking);
- ``budget``: 1 to 30 s of planning for every method (Live Video Chat);
- ``tiers``: one, two and three tiers of GPUs, each with SLOs of 1.5 and 0.8 times its own front's
  means (Visual Tracking);
- ``clusters``: the two clusters of Circinus and the cloud alone, with costs (Live Video Chat);
- ``slo``: latencies of 2.0, 1.5 and 1.1 and accuracies of 0.7, 0.8 and 0.9 times the mean of the
  query's Pareto front (Speech Recognition);
- ``pieces``: without our profiler, our search or our scheduler, every method for 5 s; ``alone``:
  sessions that are planned without regard to others, all plans known; ``moves``: running sessions
  that move at no cost (each for Visual Tracking and Live Video Chat).

The others take single searches. ``knobs`` takes random subsets of Speech Recognition's 80
configurations and accuracies of 30 to 70 %: how many queries have a compliant plan at all, and what
the cheapest plan costs after 5 s. ``optimal``: how soon a plan costs at most 1.1 times the cheapest
compliant one. ``searches``, ``analysers`` and ``costs``: ``compass_search_sweeps``. Rows are kept
in OUT_DIR/sweeps.jsonl and not played again.
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
from benchmarks.papers.compass_compare import HISTORY
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
    LIVES_S,
    Gpus,
    Hour,
    RepackedHour,
    ReplannedHour,
    arrivals,
    by_first_come,
    by_greedy,
    fitting,
    mean_cost,
    papers_pace,
)
from benchmarks.papers.compass_plans import (
    OurSearch,
    Planned,
    by_truth_on_whole_gpus,
    near_optimal_s,
)
from benchmarks.papers.compass_search_sweeps import analysers, costs, searches
from benchmarks.papers.compass_searches import RIVALS, VIDEOSTORM, VULCAN, Searches, slowed
from benchmarks.papers.compass_sweep_rows import Row
from benchmarks.papers.compass_sweeps_page import ORACLE, OURS, page
from benchmarks.papers.sources import DataError
from benchmarks.row_file import RowFile, RowFileError

PAGE = Path("docs/results/compass-sweeps.md")
OURS_S, RIVALS_S = 5.0, 15.0
LOADS = (0.25, 0.5, 1.0, 2.0)
BUDGETS_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
LATENCIES = {"easy": 2.0, "medium": 1.5, "hard": 1.1}  # times the mean of the Pareto front
ACCURACIES = {"easy": 0.7, "medium": 0.8, "hard": 0.9}
SUBSETS = (15, 30, 45, 60)  # configurations
FLOORS = (0.3, 0.4, 0.5, 0.6, 0.7)
NEAR_OPTIMAL_S = 60.0  # of searching

NO_SCHEDULER, BASELINE = "no scheduler", "videostorm-like, first come"
ALONE, ALONE_WHOLE = "all plans known, first come", "all plans known, whole GPUs, first come"
FIRST_COME = (NO_SCHEDULER, BASELINE, ALONE, ALONE_WHOLE)

MOVES = {"compass, repacked": RepackedHour, "compass, replanned": ReplannedHour}

Change = Callable[[DrawnQuery], DrawnQuery]


def unchanged(query: DrawnQuery) -> DrawnQuery:
    """Return the query."""
    return query


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An hour at one point of a sweep, with the papers' planning time and, where ``modelled``,
    with the modelled one too."""

    sweep: str
    point: str
    app: str
    load: float = 1.0
    cluster: str = "medium"
    tiers: tuple[str, ...] = TIERS
    ours_s: float = OURS_S
    rivals_s: float = RIVALS_S
    modelled: bool = True
    costs: bool = False  # also $ an hour without a limit on GPUs
    change: Change = unchanged


def _loads() -> Iterator[Scene]:
    for load in LOADS:
        yield Scene(sweep="load", point=f"load {load:g}", app="VT", load=load)


def _budgets() -> Iterator[Scene]:
    for limit_s in BUDGETS_S:
        yield Scene(
            sweep="budget", point=f"{limit_s:g} s", app="LVC", ours_s=limit_s, rivals_s=limit_s
        )


def _slos() -> Iterator[Scene]:
    """Yield the points of one objective that is easy or hard, the other being medium."""
    levels = {
        **{f"latency {level}": (level, "medium") for level in ("easy", "hard")},
        "both medium": ("medium", "medium"),
        **{f"accuracy {level}": ("medium", level) for level in ("easy", "hard")},
    }
    for point, (quick, right) in levels.items():
        change = partial(tightened, latency=LATENCIES[quick], accuracy=ACCURACIES[right])
        yield Scene(sweep="slo", point=point, app="SR", modelled=False, change=change)


def _tiers() -> Iterator[Scene]:
    # The drawn SLO is out of reach in the cloud alone: each deployment has its own.
    medium = partial(tightened, latency=LATENCIES["medium"], accuracy=ACCURACIES["medium"])
    yield Scene(
        sweep="tiers", point="cloud", app="VT", cluster="one-tier",
        change=lambda query: medium(in_cloud(query)),
    )  # fmt: skip
    yield Scene(sweep="tiers", point="edge, near, cloud", app="VT", change=medium)
    yield Scene(
        sweep="tiers", point="edge, T4, near, cloud", app="VT", cluster="four-tier",
        tiers=(EDGE, NEAR_EDGE, NEAR, CLOUD), change=medium,
    )  # fmt: skip


def _pieces() -> Iterator[Scene]:
    for app in ("VT", "LVC"):
        yield Scene(sweep="pieces", point=app, app=app, rivals_s=OURS_S, modelled=False)


def _alone() -> Iterator[Scene]:
    for app in ("VT", "LVC"):
        yield Scene(sweep="alone", point=app, app=app, modelled=False)


def _moves() -> Iterator[Scene]:
    for app in ("VT", "LVC"):
        yield Scene(sweep="moves", point=app, app=app, modelled=False)


def _clusters() -> Iterator[Scene]:
    for cluster in ("small-v1", "large-v1"):
        yield Scene(sweep="clusters", point=cluster, app="LVC", cluster=cluster, costs=True)
    medium = partial(tightened, latency=LATENCIES["medium"], accuracy=ACCURACIES["medium"])
    yield Scene(
        sweep="clusters", point="cloud only", app="LVC", cluster="one-tier", costs=True,
        change=lambda query: medium(in_cloud(query)),
    )  # fmt: skip


# Sweeps whose points are hours.
SCENES: Mapping[str, Callable[[], Iterator[Scene]]] = {
    "load": _loads,
    "budget": _budgets,
    "slo": _slos,
    "tiers": _tiers,
    "pieces": _pieces,
    "alone": _alone,
    "moves": _moves,
    "clusters": _clusters,
}


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


class SharedSearches:
    """The searches of the queries of the last seed, shared by scenes with the same queries."""

    def __init__(self, apps: Mapping[str, Application], queries: int) -> None:
        self._apps, self._queries, self._seed = apps, queries, -1
        self._kept: dict[tuple[str, tuple[str, ...], Change], Searches] = {}

    def of(self, scene: Scene, seed: int) -> Searches:
        if seed != self._seed:
            self._seed, self._kept = seed, {}
        key = scene.app, scene.tiers, scene.change
        if key not in self._kept:
            app = replace(self._apps[scene.app], tiers=scene.tiers)
            drawn = draw(app, HISTORY + self._queries, 100 + seed)
            self._kept[key] = Searches([scene.change(query) for query in drawn])
        return self._kept[key]


def hours(shared: SharedSearches, scene: Scene, seed: int) -> Iterator[Row]:
    """Play an hour of each method, by each pace."""
    searches = shared.of(scene, seed)
    truth, app = searches.truth, searches.queries[0].app
    counts = CLUSTERS[scene.cluster]
    prices = {tier: app.model["tiers"][tier]["usd_per_gpu_h"] for tier in counts}
    if not any(each.plans for each in truth):
        raise DataError(f"{scene.sweep}, {scene.point}: no query has a compliant plan")
    rate = scene.load * fitting(truth, counts, prices) / LIVES_S[app.name]
    coming = arrivals(rate, LIVES_S[app.name], len(truth), 100 + seed)
    for pace in (*((1.0,) if scene.modelled else ()), papers_pace(app, searches)):
        found = [(ORACLE, truth), *KNOWN.get(scene.sweep, methods)(scene, searches, pace)]
        planned = [all(each[n].plans for _, each in found) for n in range(len(truth))]
        common = [each for each in coming if planned[each.query]]
        for method, known in found:
            assign = by_first_come if method in FIRST_COME else by_greedy
            hour = MOVES.get(method, Hour)(coming, known, Gpus(counts, prices), assign)
            hour.play()
            good = sum(known[coming[n].query].complies[at] for n, at in hour.chosen.items())
            yield Row(
                sweep=scene.sweep, point=scene.point, app=app.name, seed=seed, method=method,
                pace=pace, served=len(hour.chosen) / len(coming), goodput=good / 60,
                planned=sum(bool(known[each.query].plans) for each in coming) / len(coming),
                usd_per_h=mean_cost(common, known, prices) if scene.costs and common else None,
                figures=hour.occupancy,
            )  # fmt: skip


def methods(scene: Scene, searches: Searches, pace: float) -> Iterator[tuple[str, list[Planned]]]:
    """Yield the methods with what they know of each query."""
    yield OURS, slowed(searches.compass(scene.ours_s / pace), pace)
    for name in RIVALS:
        found = searches.baseline(name, scene.rivals_s / pace)
        yield name, slowed((shared for shared, _ in found), pace)
        yield f"{name}, whole GPUs", slowed((whole for _, whole in found), pace)


def without_pieces(
    scene: Scene, searches: Searches, pace: float
) -> Iterator[tuple[str, list[Planned]]]:
    """Yield our method, whole and without one piece each, and the papers' baseline.

    Without our optimizer the search is `vulcan-like`, with our profiler and our shares.
    """
    limit_s = scene.ours_s / pace
    ours = slowed(searches.compass(limit_s), pace)
    yield OURS, ours
    yield "no profiler", slowed(searches.compass(limit_s, profiler=False), pace)
    searched = searches.baseline(VULCAN, limit_s, profiler=True)
    yield "no optimizer", slowed((shared for shared, _ in searched), pace)
    yield NO_SCHEDULER, ours
    yield BASELINE, slowed((whole for _, whole in searches.baseline(VIDEOSTORM, limit_s)), pace)


def planned_alone(
    scene: Scene, searches: Searches, pace: float
) -> Iterator[tuple[str, list[Planned]]]:
    """Yield our method, and two that know every truly compliant plan on arrival, more than any time
    of planning finds, but choose without regard to other sessions."""
    yield OURS, slowed(searches.compass(scene.ours_s / pace), pace)
    yield ALONE, searches.truth
    yield ALONE_WHOLE, [by_truth_on_whole_gpus(query) for query in searches.queries]


def moving(scene: Scene, searches: Searches, pace: float) -> Iterator[tuple[str, list[Planned]]]:
    """Yield our method, whose running sessions stay, and twice with sessions that move."""
    ours = slowed(searches.compass(scene.ours_s / pace), pace)
    yield from ((method, ours) for method in (OURS, *MOVES))


KNOWN = {"pieces": without_pieces, "alone": planned_alone, "moves": moving}


def knobs(apps: Mapping[str, Application], seed: int, queries: int) -> Iterator[Row]:
    """Take subsets of the configurations: feasibility, and cost after five seconds."""
    drawn = draw(apps["SR"], HISTORY + queries, 100 + seed)
    for count, floor in product(SUBSETS, FLOORS):
        searches = Searches([among(query, count, floor, seed) for query in drawn])
        rival = searches.baseline(VULCAN, OURS_S)
        found = {
            "all plans known": searches.truth,
            "compass": searches.compass(OURS_S),
            "vulcan-like": [shared for shared, _ in rival],
            "vulcan-like, whole GPUs": [whole for _, whole in rival],
        }
        common = [n for n in range(queries) if all(each[n].plans for each in found.values())]
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
        history = [OurSearch(query).past(OURS_S) for query in drawn[:HISTORY]]
        found = [near_optimal_s(query, NEAR_OPTIMAL_S, history) for query in drawn[HISTORY:]]
        yield Row(
            sweep="optimal", point=name, app=name, seed=seed, method="compass",
            seconds=tuple(found),
        )  # fmt: skip


# Sweeps that are played at all points at once.
WHOLE: Mapping[str, Callable[[Mapping[str, Application], int, int], Iterator[Row]]] = {
    "knobs": knobs,
    "optimal": optimal,
    "searches": searches,
    "analysers": analysers,
    "costs": costs,
}
SWEEPS = (*SCENES, *WHOLE)


def play(options: argparse.Namespace, rows: RowFile[Row]) -> None:
    """Play what is not in the file yet."""
    apps = applications(options.data)
    shared = SharedSearches(apps, options.queries)
    known = {(row.sweep, row.point, row.seed) for row in rows.read()}
    for seed, sweep in product(range(options.seeds), options.sweeps):
        parts: list[tuple[str, Callable[[], Iterator[Row]]]]
        if sweep in WHOLE:
            parts = [("", partial(WHOLE[sweep], apps, seed, options.queries))]
        else:
            parts = [
                (scene.point, partial(hours, shared, scene, seed)) for scene in SCENES[sweep]()
            ]
        for point, made in parts:
            if any(k[0] == sweep and k[2] == seed and point in ("", k[1]) for k in known):
                continue
            for row in list(made()):  # a part of a point is not kept
                rows.append(row)
            print(f"played: {sweep} {point}, seed {seed}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the sweeps and write the page; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.compass_sweeps")
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--sweeps", nargs="+", choices=SWEEPS, default=list(SWEEPS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=12, help="that are drawn anew (12)")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--again", action="store_true", help="only write the page again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = RowFile(options.out / "sweeps.jsonl", Row)
    try:
        if not options.again:
            play(options, rows)
        if not (found := rows.read()):
            raise DataError(f"{rows.path} has no row; leave out --again")
        options.page.write_text(page(found, options.queries), encoding="utf-8")
    except (DataError, RowFileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
