"""Measure the schedules of many sessions: ratio to the bound, and CPU seconds.

    python -m benchmarks.scheduling [--sessions 100,1000,10000] [--seeds 3]

Draws sessions with 1 to 4 plans of up to 1, 2 or 4 items on three tiers; prints the worst ratio to
the linear program's bound and the most CPU seconds, for every scheduler that handles the size.
"""

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does, before NumPy's import

import numpy as np

from control.policies.compass.schedule.instance import (
    COST,
    GOODPUT,
    Candidate,
    Instance,
    PlanItem,
    PlanOption,
    Tier,
)
from control.policies.compass.schedule.reference_schedulers import SCHEDULERS
from control.problem.problem import PlanError

PRICES = {"cloud": 5.075, "near": 2.0, "near-edge": 1.3}  # $ an hour per GPU
WEIGHTS = {"1": (1.0,), "1/2/4": (1.0, 2.0, 4.0), "1 to 10": tuple(np.linspace(1, 10, 997))}
ITEMS = (1, 2, 4)  # of a plan, at most
SESSIONS, SEEDS = (100, 1000, 10_000), 3
ILP_SESSIONS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """The worst ratio of a scheduler's results to the linear program's bound (at most 1 in goodput,
    at least 1 in cost) over the seeds, and its most CPU seconds."""

    objective: str
    sessions: int
    items: int
    weights: str
    scheduler: str
    ratio: float
    cpu_s: float


def instance(
    sessions: int, most_items: int, weights: Sequence[float], seed: int, limited: bool
) -> Instance:
    """Return a random instance; limited tiers serve a half to nine tenths of the sessions."""
    rng = np.random.default_rng(seed)
    names = list(PRICES)
    gpus = max(1, sessions * most_items // 13) if limited else None

    def plan() -> PlanOption:
        count = int(rng.integers(1, most_items + 1))
        return PlanOption(
            tuple(PlanItem(names[rng.integers(3)], int(rng.integers(1, 5))) for _ in range(count))
        )

    def session(index: int) -> Candidate:
        plans = tuple(plan() for _ in range(rng.integers(1, 5)))
        return Candidate(index, float(rng.choice(weights)), plans)

    return Instance(
        tiers={name: Tier(gpus, price) for name, price in PRICES.items()},
        sessions=tuple(session(index) for index in range(sessions)),
    )


def meter() -> tuple[float, float]:
    """Return CPU seconds and wall seconds."""
    return time.process_time(), time.perf_counter()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", default=",".join(map(str, SESSIONS)))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    print("objective sessions items weights   scheduler        worst ratio   longest CPU s")
    for row in rows([int(each) for each in options.sessions.split(",")], options.seeds):
        print(
            f"{row.objective:9} {row.sessions:8} {row.items:5} {row.weights:9} "
            f"{row.scheduler:16} {row.ratio:.5f} {row.cpu_s:.3f}",
            flush=True,
        )


def rows(sessions: Sequence[int], seeds: int) -> Iterator[ScheduleRow]:
    """Measure instances of all sizes, objectives, numbers of items and weights."""
    for count, objective, most in product(sessions, (GOODPUT, COST), ITEMS):
        for weights in WEIGHTS if objective == GOODPUT else ("1",):
            drawn = [
                instance(count, most, WEIGHTS[weights], seed, objective == GOODPUT)
                for seed in range(seeds)
            ]
            yield from _rows(drawn, objective, most, weights)


def _rows(
    drawn: Sequence[Instance], objective: str, most: int, weights: str
) -> Iterator[ScheduleRow]:
    sessions = len(drawn[0].sessions)
    for name, scheduler in SCHEDULERS.items():
        if name == "compass-ilp" and sessions > ILP_SESSIONS:
            continue
        try:
            made = [scheduler(each, objective, meter) for each in drawn]
        except PlanError:
            continue  # the integer program takes limited tiers only
        ratios = [each.ratio for each in made if each.ratio is not None]
        yield ScheduleRow(
            objective=objective,
            sessions=sessions,
            items=most,
            weights=weights,
            scheduler=name,
            ratio=min(ratios) if objective == GOODPUT else max(ratios),
            cpu_s=max(each.run.cpu_s for each in made),
        )


if __name__ == "__main__":
    main()
