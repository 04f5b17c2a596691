"""The plans at the end of searches over the modelled benchmark: do they comply, what do they cost?

    python -m benchmarks.papers.compass_final_plans DATA_DIR ROWS --seeds 7 101 --queries 40

A search goes on after its first plan, and its session is served by the cheapest one. Every query is
searched twice with the same samples and the same history: ``sampled`` takes the verdict of samples
alone, ``confirmed`` profiles a doubtful plan further, with the prediction as prior. Searches end by
themselves, after ``MOST_STEPS`` profiles, or at the limit of their application. Seconds are those
of ``compass_compare.py``; a cost is compared with that of the cheapest truly compliant plan. Each
query is a line of the file ROWS, with which an interrupted run continues.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.papers.compass_compare import (
    HISTORY,
    LIMITS_S,
    Method,
    Run,
    searched,
    tested_on,
)
from benchmarks.papers.compass_model import Application, DrawnQuery, applications, draw
from benchmarks.papers.compass_plans import by_truth
from benchmarks.papers.sources import DataError
from benchmarks.row_file import RowFile, RowFileError
from control.policies.compass.search.camo import Past, Profiled, SearchOptions, SessionSearch
from control.policies.compass.search.sequential_test import StopRule

MOST_STEPS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A search at its end: whether its cheapest plan truly complies, $ an hour of that plan and of
    the cheapest compliant one, and modelled seconds to the first plan and to the end."""

    complies: bool
    usd_per_h: float
    least_usd_per_h: float
    first_s: float
    seconds: float


def ended(query: DrawnQuery, history: Sequence[Past], *, confirms: bool) -> Ended | None:
    """Search to the end; None: no plan was found, or none complies."""
    app, truth = query.app, by_truth(query).plans
    rule = StopRule(most=app.most_samples)
    search = SessionSearch(query.deployment, query.slo, SearchOptions(rule=rule), app.sent, history)
    run, first_s = Run(query), 0.0
    while run.seconds < LIMITS_S[app.parallelism > 1] and run.steps < MOST_STEPS:
        if (proposal := search.ask()) is None:
            break
        c = proposal.configuration
        prior = proposal.prior if confirms else None
        tested = tested_on(query, c, rule, adaptive=True, prior=prior)
        search.tell(Profiled(configuration=c, tested=tested, seconds=tuple(query.seconds[c])))
        if proposal.prior is None or confirms:
            run.profile(c, tested, reuse=True)
        first_s = first_s or (run.seconds if search.plans else 0.0)
    if search.best is None or not truth:
        return None
    return Ended(
        complies=query.compliant(search.best.configuration), usd_per_h=search.best.usd_per_h,
        least_usd_per_h=truth[0].cost, first_s=first_s, seconds=run.seconds,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalPlans:
    """A query, the ``number``-th of its application and seed, searched in both ways."""

    app: str
    seed: int
    number: int
    sampled: Ended | None
    confirmed: Ended | None


def played(
    name: str, app: Application, seed: int, queries: int, known: Iterable[FinalPlans]
) -> Iterator[FinalPlans]:
    """Search the queries of a seed that are not among the known ones."""
    done = {each.number for each in known if (each.app, each.seed) == (name, seed)}
    if done.issuperset(range(queries)):
        return
    drawn, rule = draw(app, HISTORY + queries, seed), StopRule(most=app.most_samples)
    history = [searched(query, Method(), (), rule)[1] for query in drawn[:HISTORY]]
    for number, query in enumerate(drawn[HISTORY:]):
        if number not in done:
            yield FinalPlans(
                app=name, seed=seed, number=number,
                sampled=ended(query, history, confirms=False),
                confirmed=ended(query, history, confirms=True),
            )  # fmt: skip


def table(rows: Sequence[FinalPlans]) -> Iterator[str]:
    """Yield the lines of a table: a row for each application and way, and for all together."""
    yield "| application | plans | searches | not compliant | $ over the least | first | end |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for app in (*dict.fromkeys(each.app for each in rows), "all"):
        own = [each for each in rows if app in (each.app, "all")]
        for way in ("sampled", "confirmed"):
            found = [getattr(each, way) for each in own]
            if some := [each for each in found if each is not None]:
                yield _line(app, way, some)


def _line(app: str, name: str, some: Sequence[Ended]) -> str:
    bad = sum(not each.complies for each in some)
    over = sum(each.usd_per_h for each in some) / sum(each.least_usd_per_h for each in some)
    first_s, end_s = (np.mean([getattr(e, what) for e in some]) for what in ("first_s", "seconds"))
    return (
        f"| {app} | {name} | {len(some)} | {bad} ({100 * bad / len(some):.1f} %) | {over:.3f} | "
        f"{first_s:.2f} s | {end_s:.2f} s |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("rows", type=Path, metavar="ROWS")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 101], help="(7 101)")
    parser.add_argument("--queries", type=int, default=40, help="of each application, seed (40)")
    options = parser.parse_args(arguments)
    file = RowFile(options.rows, FinalPlans)
    try:
        apps, known = applications(options.data), file.read()
    except (DataError, RowFileError) as error:
        sys.exit(f"benchmarks.papers.compass_final_plans: {error}")
    for seed in options.seeds:
        for name, app in apps.items():
            for row in played(name, app, seed, options.queries, known):
                file.append(row)
            print(f"played: {name}, seed {seed}", file=sys.stderr)
    print("\n".join(table(file.read())))


if __name__ == "__main__":
    main()
