"""Measure the dispatcher's decisions: matching, dispatching, ranking of mixes; without I/O.

    python -m benchmarks.dispatch [--json]

`matching`: the cost matrix and its solution, median and worst of ``REPEATS`` rounds, queries and
devices as under Kairos (four types, a part of the devices idle). A second costs its type's speed,
so that an item costs the same on each type (the most ties), or, in `marginal`, another amount.
`decisions`: queries per CPU second through ``Dispatcher`` at 20 devices: arrival, decision,
completion, in virtual time under a load of 90 % of the mix; and the CPU time from a query's arrival
to the end of the decision, median and 99th percentile. `ranking`: all mixes within a budget by
sampled prices, and with the exact bounds of the best ten. The heap is that of a role.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from heapq import heappop, heappush
from time import perf_counter, process_time, thread_time

import numpy as np

from control.policies.kairos.device_mixes import PricedType, mixes_within
from control.policies.kairos.matching import MatchingWeights, Matrix, Vector, costs_of, matched
from control.policies.kairos.provisioning import Pool, rank
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.throughput_bounds import FluidBound
from headrace.roles.heap import tune_heap
from operators.dispatch.dispatch_profile import dispatch_profile
from operators.dispatch.dispatcher import Dispatcher
from schemas.pipeline import Pipeline, QuerySize, Task, Variant
from schemas.records import ANSWERED, Completion, Lease, Origin, Plan, Settings, Work

REPEATS = 30
SLO_S = 0.2
SECONDS_PER_ITEM = {"big": 1e-4, "middle": 2e-4, "small": 3e-4, "tiny": 6e-4}
SPEEDS = np.array([1.0, 0.5, 1 / 3, 1 / 6])
MARGINAL = np.array([1.0, 0.45, 0.4, 0.12])  # costs that differ from the speeds, as duals do
PRICES = {"big": 0.5, "middle": 0.3, "small": 0.15, "tiny": 0.1}
LARGEST = 1000
IDLE = 0.2  # share of the devices in a matching
QUERIES = 20_000
LOAD = 0.9  # of the mix's mean throughput
COUNTS = {"big": 2, "middle": 2, "small": 10, "tiny": 6}
BUDGETS = (2.1, 6.5)  # some 1,000 and 100,000 mixes


def matching(size: int, rng: np.random.Generator, costs: Vector) -> Callable[[], object]:
    """Return a round of ``size`` queries and devices: matrix and solution; ``costs`` by type."""
    kinds = rng.integers(0, 4, size)
    seconds = np.array(list(SECONDS_PER_ITEM.values()))[kinds]
    items = rng.integers(1, LARGEST, size)
    remaining = np.where(rng.random(size) < IDLE, 0.0, rng.random(size) * 0.05)
    waited = np.sort(rng.random(size) * 0.05)[::-1].copy()
    weights = MatchingWeights(SLO_S)

    def once() -> object:
        finish: Matrix = items[:, None] * seconds + remaining
        cost = costs_of(weights, finish, finish, SLO_S - waited, waited, costs[kinds])
        return matched(cost)

    return once


def timed(makes: list[Callable[[], object]]) -> dict[str, float]:
    """Return the median and the largest time of the calls, each the best of three, in us."""
    found = []
    for call in makes:
        times = []
        for _ in range(3):
            begin_s = perf_counter()
            call()
            times.append(perf_counter() - begin_s)
        found.append(min(times) * 1e6)
    return {"median_us": round(statistics.median(found), 1), "worst_us": round(max(found), 1)}


def decisions() -> dict[str, float]:
    """Return the queries per CPU second that a dispatcher of 20 devices decides, and the CPU time
    from an arrival to the end of its decision, in us."""
    rng = np.random.default_rng(0)
    dispatcher, types = _dispatcher()
    sizes = rng.integers(1, LARGEST, QUERIES).tolist()
    mean = (1 + LARGEST) / 2
    rate = LOAD * sum(n / (SECONDS_PER_ITEM[t] * mean) for t, n in COUNTS.items())
    times = np.cumsum(rng.exponential(1 / rate, QUERIES)).tolist()
    running: list[tuple[float, int, Work, int]] = []
    taken_s: list[float] = []
    begin_s = process_time()
    for offset, at_s in enumerate(times):
        while running and running[0][0] <= at_s:
            now, _, work, slot = heappop(running)
            dispatcher.completed(_completion(work, slot, types[slot]), now)
            _send(dispatcher, now, types, running)
        arrived_s = thread_time()
        dispatcher.add(_work(offset, sizes[offset], at_s))
        _send(dispatcher, at_s, types, running)
        taken_s.append(thread_time() - arrived_s)
    per_s = QUERIES / (process_time() - begin_s)
    median_s, p99_s = np.quantile(taken_s, (0.5, 0.99)).tolist()
    return {
        "queries_per_s": round(per_s),
        "median_us": round(median_s * 1e6, 1), "p99_us": round(p99_s * 1e6, 1),
    }  # fmt: skip


def _send(
    dispatcher: Dispatcher,
    now: float,
    types: list[str],
    running: list[tuple[float, int, Work, int]],
) -> None:
    for waiting, slot in dispatcher.decide(now)[0]:
        work = waiting.work
        seconds = SECONDS_PER_ITEM[types[slot]] * work.size
        heappush(running, (now + seconds, work.origin.offset, work, slot))


def _dispatcher() -> tuple[Dispatcher, list[str]]:
    """Return a dispatcher with its plan, and the type of each slot."""
    variant = Variant(task="rank", name="v", operator="benchmarks.operators:Sleep")
    pipeline = Pipeline(
        name="dispatch", slo_s=SLO_S, tasks=(Task(name="rank", variants=(variant,)),),
        policies=(), policy="kairos", size=QuerySize(most=LARGEST), comm_s=0.0,
    )  # fmt: skip
    profile = dispatch_profile(
        tuple(COUNTS), lambda type_, size, quantile: SECONDS_PER_ITEM[type_] * size, LARGEST
    )
    types = [name for name, count in COUNTS.items() for _ in range(count)]
    leases = tuple(
        Lease(worker=f"w-{slot}", task="rank", variant="v", batch=1, slots=(slot,), open_slot=slot,
              type=type_)
        for slot, type_ in enumerate(types)
    )  # fmt: skip
    dispatcher = Dispatcher(pipeline, profile)
    settings = Settings(policy="kairos", slo_s=SLO_S)
    plan = Plan(pipeline="dispatch", epoch=1, issued_s=0.0, reason="", settings=settings,
                leases=leases)  # fmt: skip
    dispatcher.change(plan, 0.0)
    return dispatcher, types


def _work(offset: int, size: int, now: float) -> Work:
    return Work(
        query_id=str(offset), origin=Origin(0, offset), task="rank", created_s=now,
        deadline_s=now + SLO_S, epoch=1, size=size,
    )  # fmt: skip


def _completion(work: Work, slot: int, type_: str) -> Completion:
    return Completion(
        query_id=work.query_id, origin=work.origin, slot=slot, worker=f"w-{slot}", type=type_,
        setting="rank/v", size=work.size, queued_s=0.0,
        run_s=SECONDS_PER_ITEM[type_] * work.size, outcome=ANSWERED,
    )  # fmt: skip


def ranking(budget: float) -> dict[str, float]:
    """Return the number of mixes within a budget and the ms to rank them."""
    sizes = tuple(range(10, LARGEST + 1, 10))
    pool = Pool(
        types=tuple(PricedType(name, price) for name, price in PRICES.items()),
        sizes=SizeDistribution(sizes, (1 / len(sizes),) * len(sizes)),
        latency_s=tuple(tuple(s * k for k in sizes) for s in SECONDS_PER_ITEM.values()),
        largest_s=tuple(s * LARGEST for s in SECONDS_PER_ITEM.values()),
        largest_size=LARGEST, slo_s=SLO_S,
    )  # fmt: skip
    mixes = len(mixes_within(pool.types, budget))
    sampled = timed([lambda: FluidBound(pool.times).above(mixes_within(pool.types, budget))] * 5)
    exact = timed([lambda: rank(pool, budget)] * 3)
    return {
        "mixes": mixes,
        "sampled_ms": round(sampled["median_us"] / 1e3, 2),
        "with_exact_ms": round(exact["median_us"] / 1e3, 2),
    }


def measured() -> dict[str, object]:
    """Return all figures."""
    rng = np.random.default_rng(0)
    return {
        **{
            f"matching_{n}{name}": timed([matching(n, rng, costs) for _ in range(REPEATS)])
            for name, costs in (("", SPEEDS), ("_marginal", MARGINAL))
            for n in (20, 200)
        },
        "decisions": decisions(),
        **{f"ranking_{budget:g}_usd": ranking(budget) for budget in BUDGETS},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    tune_heap()
    found = measured()
    if parser.parse_args().json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:21} {value}")


if __name__ == "__main__":
    main()
