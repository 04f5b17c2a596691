"""The oracle of Kairos' comparison: an infeasible scheme that knows all queries (section 7).

All queries are present and sorted by size. A free base device takes the largest one left, a free
auxiliary device the smallest one left. No query waits, and none runs on a type that would violate
the SLO. The throughput is the number of queries over the time in which all are served.
"""

from heapq import heapify, heappop, heappush

import numpy as np

from benchmarks.papers.kairos_mix_search import Mix, SearchOutcome, search
from control.policies.kairos.device_mixes import costs, mixes_within
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes
from control.problem.problem import PlanError

QUERIES = 10_000


def oracle_qps(times: ServiceTimes, mix: Mix, queries: int = QUERIES) -> float:
    """Return the oracle's throughput on a mix, in queries/s; 0 if no device may serve some query.

    The sizes are the quantiles of the distribution, so the result is deterministic. Raises
    ``PlanError`` if there is no base type.
    """
    if times.base is None:
        raise PlanError("the oracle needs a base type; raise the SLO or lower size.most")
    shares = (np.arange(queries) + 0.5) / queries
    classes = np.searchsorted(np.cumsum(times.probabilities), shares - 1e-12).tolist()
    seconds, feasible = times.latency_s.tolist(), times.feasible.tolist()
    free = [(0.0, kind, at) for kind, count in enumerate(mix) for at in range(count)]
    heapify(free)
    smallest, largest, ends_s = 0, queries - 1, 0.0
    while smallest <= largest:
        if not free:
            return 0.0
        now, kind, at = heappop(free)
        base = kind == times.base
        size = classes[largest if base else smallest]
        if not feasible[kind][size]:
            continue  # the device serves none of the queries that are left
        largest, smallest = (largest - 1, smallest) if base else (largest, smallest + 1)
        done_s = now + seconds[kind][size]
        ends_s = max(ends_s, done_s)
        heappush(free, (done_s, kind, at))
    return queries / ends_s


def best_oracle(pool: Pool, budget: float) -> SearchOutcome:
    """Return the best mix within the budget for the oracle, by Kairos+ with the fluid bound."""
    times = pool.times
    counts = mixes_within(pool.types, budget)
    above, prices = FluidBound(times).above(counts), costs(pool.types, counts)
    return search(counts, above, prices, lambda mix: oracle_qps(times, mix))
