"""Measure Kairos' decisions: ranking mixes by both bounds, and matching queries to devices.

    python -m benchmarks.provisioning

Latencies are linear in size, as measured ones nearly are; prices are those of four EC2 types.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from control.policies.kairos.device_mixes import Counts, Floats, PricedType, affordable
from control.policies.kairos.dispatch_rules import RULES, DeviceTable, DispatchOptions, Round
from control.policies.kairos.matching import MatchingWeights
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes, eq15_bounds

TYPES = (
    PricedType("gpu", 0.526), PricedType("large", 0.432), PricedType("small", 0.149),
    PricedType("burst", 0.1664),
)  # fmt: skip
LINES = ((0.012, 3.0e-5), (0.002, 7.0e-5), (0.003, 8.0e-5), (0.004, 16.0e-5))  # s, s per item
SLO_S = 0.05
SIZES = np.arange(10, 1001, 10)
REPEATS = 25


def service_times() -> ServiceTimes:
    """Return four types with a hundred size classes of a log-normal distribution."""
    weights = np.exp(-((np.log(SIZES) - 5.1) ** 2) / (2 * 0.4**2)) / SIZES
    latency = np.array([a + b * SIZES for a, b in LINES])
    return ServiceTimes(latency, weights / weights.sum(), SLO_S, 0)


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
    times, mixes = service_times(), affordable(TYPES, 10.0)
    for some in (mixes[:: len(mixes) // 1_000], mixes):
        by_formula = median_s(partial(eq15_bounds, times, some))
        by_prices = median_s(partial(_sampled, times, some))
        print(f"rank {len(some):,} mixes by Eq. 15: {by_formula * 1e3:.2f} ms")
        print(f"rank {len(some):,} mixes by sampled prices: {by_prices * 1e3:.2f} ms")
    options = DispatchOptions(MatchingWeights(SLO_S))
    for devices in (20, 200):
        round_ = crowded(devices, np.random.default_rng(devices))
        taken_s = median_s(partial(RULES["kairos"], round_, options))
        print(f"match {devices} x {devices} with its matrix: {taken_s * 1e6:.0f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
