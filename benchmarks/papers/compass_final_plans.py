"""The plans at the end of searches over the modelled benchmark: do they comply, what do they cost?

    python -m benchmarks.papers.compass_final_plans DATA_DIR --seeds 7 101 --queries 40

A search goes on after its first plan, and its session is served by the cheapest one. Every query is
searched twice with the same samples and the same history: ``sampled`` takes the verdict of samples
alone, ``confirmed`` profiles a doubtful plan further, with the prediction as prior. Searches end by
themselves, after ``MOST_STEPS`` profiles, or at the limit of their application. Seconds are those
of ``compass_compare.py``; a cost is compared with that of the cheapest truly compliant plan.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
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


def played(
    app: Application, seeds: Sequence[int], queries: int
) -> Mapping[str, Sequence[Ended | None]]:
    """Search every query of every seed in both ways."""
    found: dict[str, list[Ended | None]] = {"sampled": [], "confirmed": []}
    for seed in seeds:
        drawn, rule = draw(app, HISTORY + queries, seed), StopRule(most=app.most_samples)
        history = [searched(query, Method(), (), rule)[1] for query in drawn[:HISTORY]]
        for query in drawn[HISTORY:]:
            for name, each in found.items():
                each.append(ended(query, history, confirms=name == "confirmed"))
    return found


def table(by_app: Mapping[str, Mapping[str, Sequence[Ended | None]]]) -> Iterator[str]:
    """Yield the lines of a table: a row for each application and way, and for all together."""
    yield "| application | plans | searches | not compliant | $ over the least | first | end |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    together: dict[str, list[Ended | None]] = {}
    for app, ways in by_app.items():
        for name, some in ways.items():
            together.setdefault(name, []).extend(some)
            yield _line(app, name, [each for each in some if each is not None])
    for name, some in together.items():
        yield _line("all", name, [each for each in some if each is not None])


def _line(app: str, name: str, some: Sequence[Ended]) -> str:
    bad = sum(not each.complies for each in some)
    least = sum(each.least_usd_per_h for each in some)
    over = sum(each.usd_per_h for each in some) / least if least else float("nan")
    first_s, end_s = (np.mean([getattr(e, what) for e in some]) for what in ("first_s", "seconds"))
    return (
        f"| {app} | {name} | {len(some)} | {bad} ({100 * bad / len(some):.1f} %) | {over:.3f} | "
        f"{first_s:.2f} s | {end_s:.2f} s |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 101], help="(7 101)")
    parser.add_argument("--queries", type=int, default=40, help="of each application, seed (40)")
    options = parser.parse_args(arguments)
    try:
        apps = applications(options.data)
    except DataError as error:
        sys.exit(f"benchmarks.papers.compass_final_plans: {error}")
    by_app = {}
    for name, app in apps.items():
        by_app[name] = played(app, options.seeds, options.queries)
        print(f"played: {name}", file=sys.stderr)
    print("\n".join(table(by_app)))


if __name__ == "__main__":
    main()
