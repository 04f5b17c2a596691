"""Measure the schedules of many sessions: ratio to the bound, and CPU seconds.

    python -m benchmarks.scheduling [--sessions 100,1000,10000] [--seeds 3]

Draws sessions with 1 to 4 plans of up to 1, 2 or 4 items on three tiers; prints the worst ratio to
the linear program's bound and the most CPU seconds, for every scheduler that handles the size.
"""

import argparse
import os
import time
from collections.abc import Sequence

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
ILP_SESSIONS = 300


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
    parser.add_argument("--sessions", default="100,1000,10000")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("objective sessions items weights   scheduler        worst ratio   longest CPU s")
    for sessions in map(int, options.sessions.split(",")):
        for objective in (GOODPUT, COST):
            for most in (1, 2, 4):
                for weights in WEIGHTS if objective == GOODPUT else ("1",):
                    _row(objective, sessions, most, weights, options.seeds)


def _row(objective: str, sessions: int, most: int, weights: str, seeds: int) -> None:
    drawn = [
        instance(sessions, most, WEIGHTS[weights], seed, objective == GOODPUT)
        for seed in range(seeds)
    ]
    for name, scheduler in SCHEDULERS.items():
        if name == "compass-ilp" and sessions > ILP_SESSIONS:
            continue
        try:
            made = [scheduler(each, objective, meter) for each in drawn]
        except PlanError:
            continue  # the integer program takes limited tiers only
        ratios = [each.ratio for each in made if each.ratio is not None]
        worst = min(ratios) if objective == GOODPUT else max(ratios)
        longest = max(each.run.cpu_s for each in made)
        print(
            f"{objective:9} {sessions:8} {most:5} {weights:9} {name:16} {worst:.5f} {longest:.3f}"
        )


if __name__ == "__main__":
    main()
