"""Measure Kairos' decisions: ranking mixes by both bounds, and matching queries to devices.

    python -m benchmarks.provisioning

Latencies are linear in size, as measured ones nearly are; prices are those of four EC2 types.
A ranking by the fluid bound enumerates the mixes, bounds them by sampled prices and solves the
linear program of the best ten, whose values are compared with those of SciPy's solver (HiGHS).
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.optimize import linprog

from control.policies.kairos.device_mixes import Counts, Floats, PricedType, mixes_within
from control.policies.kairos.dispatch_rules import DeviceTable, DispatchOptions, Round, match
from control.policies.kairos.matching import MatchingWeights
from control.policies.kairos.provisioning import Pool, Ranked, rank
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes, eq15_bounds

TYPES = (
    PricedType("gpu", 0.526), PricedType("large", 0.432), PricedType("small", 0.149),
    PricedType("burst", 0.1664),
)  # fmt: skip
LINES = ((0.012, 3.0e-5), (0.002, 7.0e-5), (0.003, 8.0e-5), (0.004, 16.0e-5))  # s, s per item
SLO_S = 0.05
SIZES = np.arange(10, 1001, 10)
BUDGETS = (2.79, 10.16)  # $ per hour that afford some 1,000 and 100,000 mixes
REPEATS = 25


def service_times() -> ServiceTimes:
    """Return four types with a hundred size classes of a log-normal distribution."""
    weights = np.exp(-((np.log(SIZES) - 5.1) ** 2) / (2 * 0.4**2)) / SIZES
    latency = np.array([a + b * SIZES for a, b in LINES])
    return ServiceTimes(latency, weights / weights.sum(), SLO_S, 0)


def pool() -> Pool:
    """Return the same types and sizes as input of a ranking."""
    times = service_times()
    return Pool(
        types=TYPES, sizes=SizeDistribution(tuple(SIZES.tolist()), tuple(times.probabilities)),
        latency_s=tuple(tuple(row) for row in times.latency_s.tolist()),
        largest_s=tuple(times.latency_s[:, -1].tolist()), largest_size=int(SIZES[-1]),
        slo_s=SLO_S, base=TYPES[0].name,
    )  # fmt: skip


def solved_qps(times: ServiceTimes, mix: Sequence[int]) -> float:
    """Return the fluid bound of a mix by HiGHS, in queries/s."""
    types, classes = times.latency_s.shape
    pairs = types * classes
    served = np.hstack([np.tile(np.eye(classes), types), -times.probabilities[:, None]])
    busy = np.zeros((types, pairs + 1))
    for i in range(types):
        busy[i, i * classes : (i + 1) * classes] = times.latency_s[i]
    most = np.append(np.where(times.feasible.ravel(), np.inf, 0.0), np.inf)
    found = linprog(
        -np.eye(1, pairs + 1, pairs)[0], A_ub=busy, b_ub=mix, A_eq=served, b_eq=np.zeros(classes),
        bounds=[(0.0, upper) for upper in most],
    )  # fmt: skip
    return float(-found.fun)


def largest_error(times: ServiceTimes, best: Sequence[Ranked]) -> float:
    """Return the largest relative difference between ranked bounds and those of HiGHS."""
    return max(abs(each.bound_qps / solved_qps(times, each.counts) - 1) for each in best)


def median_s(run: Callable[[], object]) -> float:
    """Return the median time of a call over ``REPEATS``, in seconds."""
    run()
    taken = []
    for _ in range(REPEATS):
        begin_s = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin_s)
    return statistics.median(taken)


def crowded(devices: int, rng: np.random.Generator) -> Round:
    """Return a round with as many waiting queries as devices, a third of them free."""
    kinds = tuple(0 if j < devices // 5 else 2 for j in range(devices))
    sizes = rng.choice(SIZES, devices).tolist()
    rows = [tuple(a + b * size for a, b in LINES) for size in sizes]
    wait = sorted(rng.uniform(0, 0.04, devices).tolist(), reverse=True)
    return Round(
        sizes=sizes, wait_s=wait, slack_s=[SLO_S - s for s in wait], latency_s=rows, worst_s=rows,
        held=[-1] * devices,
        remaining_s=[0.0 if u < 1 / 3 else u * 0.02 for u in rng.random(devices).tolist()],
        factors=np.ones(devices),
        devices=DeviceTable(
            kinds=kinds, coefficients=np.where(np.array(kinds) == 0, 1.0, 0.45),
            base=tuple(kind == 0 for kind in kinds),
        ),
    )  # fmt: skip


def _sampled(times: ServiceTimes, mixes: Counts) -> Floats:
    return FluidBound(times).above(mixes)


def main() -> int:
    """Print one line per measurement."""
    times, ranked = service_times(), pool()
    for budget in BUDGETS:
        mixes = mixes_within(TYPES, budget)
        by_formula = median_s(partial(eq15_bounds, times, mixes))
        by_prices = median_s(partial(_sampled, times, mixes))
        by_bound = median_s(partial(rank, ranked, budget))
        error = largest_error(times, rank(ranked, budget).best)
        print(f"bound {len(mixes):,} mixes by Eq. 15: {by_formula * 1e3:.2f} ms")
        print(f"bound {len(mixes):,} mixes by sampled prices: {by_prices * 1e3:.2f} ms")
        print(
            f"rank {len(mixes):,} mixes by the fluid bound: {by_bound * 1e3:.2f} ms, "
            f"bounds of the best ten within {error:.1e}"
        )
    options = DispatchOptions(MatchingWeights(SLO_S))
    for devices in (20, 200):
        round_ = crowded(devices, np.random.default_rng(devices))
        taken_s = median_s(partial(match, round_, options))
        print(f"match {devices} x {devices} with its matrix: {taken_s * 1e6:.0f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
