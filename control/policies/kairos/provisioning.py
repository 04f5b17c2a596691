"""Which mix of devices to rent: rank the mixes that a budget affords, and pick one.

Mixes are ranked by an upper bound of their throughput (throughput_bounds.py), no trial run
needed. Pick rules: ``paper`` (Kairos, HPDC 2023, section 5.2) takes the first where the best three
have the same number of base devices, else of the best ten the one nearest to the other nine;
``first`` takes the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from control.policies.kairos.device_mixes import Counts, PricedType, affordable, costs
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes, eq15_bounds
from control.problem.problem import PlanError

GUARD = 0.02  # Eq. 8: a base device finishes its largest query within (1 - GUARD) of the SLO
PICK_AMONG = 10
SAME_BASE = 3
MARGIN = 1 + 1e-9  # a sampled bound this little above an exact one is not above it


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Everything that a choice of devices depends on.

    ``largest_s[i]`` is the mean latency of the largest possible query on type i; ``base`` names
    the base type where the user fixed it.
    """

    types: tuple[PricedType, ...]
    sizes: SizeDistribution
    latency_s: tuple[tuple[float, ...], ...]  # by type, by size class
    largest_s: tuple[float, ...]
    largest_size: int
    slo_s: float
    base: str = ""

    @property
    def times(self) -> ServiceTimes:
        """The pool as the bounds take it."""
        return ServiceTimes(
            np.array(self.latency_s), np.array(self.sizes.probabilities), self.slo_s, base_of(self)
        )

    @property
    def coefficients(self) -> tuple[float, ...]:
        """C_j: how fast the largest query is on a type, against the base (Definition 1)."""
        base = base_of(self)
        first = min(self.largest_s) if base is None else self.largest_s[base]
        return tuple(first / seconds for seconds in self.largest_s)

    @property
    def largest(self) -> dict[str, int]:
        """By type the largest size that it serves within the SLO; 0 where it serves none."""
        return {
            each.name: self.sizes.sizes[at] if at >= 0 else 0
            for each, at in zip(self.types, self.times.largest, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Ranked:
    """A mix with its bound."""

    counts: tuple[int, ...]  # by type, in the order of the pool
    cost: float  # $ per hour
    bound_qps: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best mixes by falling bound, and how many there were."""

    best: tuple[Ranked, ...]
    mixes: int
    with_base: int


@dataclass(frozen=True, slots=True)
class NearestPool:
    """What would make some type meet the SLO at the largest size, changing one thing alone."""

    slo_s: float | None
    size: int | None
    budget: float | None


def base_of(pool: Pool) -> int | None:
    """The base type: the most queries/s per $ among those that meet the SLO at the largest size.

    The SLO counts less the guard, as in Eq. 8. A type that the pool fixes is taken as it is;
    raises ``PlanError`` where there is no such type. None where no type qualifies.
    """
    names = [each.name for each in pool.types]
    if pool.base:
        if pool.base not in names:
            raise PlanError(f"the base {pool.base!r} is no type; types are {', '.join(names)}")
        return names.index(pool.base)
    mean_s = np.array(pool.latency_s) @ np.array(pool.sizes.probabilities)
    meets = [i for i, s in enumerate(pool.largest_s) if s <= (1 - GUARD) * pool.slo_s]
    # A free type is worth more than any that costs.
    worth = {i: 1 / (mean_s[i] * max(pool.types[i].price, 1e-12)) for i in meets}
    return max(meets, key=lambda i: (worth[i], -i)) if meets else None


def rank(pool: Pool, budget: float, bound: str = "fluid", top: int = PICK_AMONG) -> Ranking:
    """The ``top`` mixes within the budget by falling bound; ties in lexicographic order.

    Every bound is exact. Raises ``PlanError`` for an unknown bound, a budget that affords nothing
    and one that affords too many mixes.
    """
    if bound not in BOUNDS:
        raise PlanError(f"there is no bound {bound!r}; known are {', '.join(BOUNDS)}")
    counts = affordable(pool.types, budget)
    values, rows = BOUNDS[bound](pool.times, counts, top)
    prices = costs(pool.types, counts[rows])
    base = base_of(pool)
    return Ranking(
        tuple(
            Ranked(tuple(int(n) for n in counts[row]), float(price), float(value))
            for row, price, value in zip(rows, prices, values, strict=True)
        ),
        len(counts),
        0 if base is None else int((counts[:, base] > 0).sum()),
    )


def _by_eq15(times: ServiceTimes, counts: Counts, top: int) -> tuple[list[float], list[int]]:
    values = eq15_bounds(times, counts)
    rows = np.argsort(-values, kind="stable")[:top]
    return [float(values[row]) for row in rows], [int(row) for row in rows]


def _by_fluid(times: ServiceTimes, counts: Counts, top: int) -> tuple[list[float], list[int]]:
    """Exact values of the best mixes: solve by falling sampled bound until none can be better."""
    fluid = FluidBound(times)
    above = fluid.above(counts)
    waiting = np.argsort(-above, kind="stable")
    solved: dict[int, float] = {}
    while len(waiting):
        least = sorted(solved.values(), reverse=True)[top - 1] if len(solved) >= top else -1.0
        waiting = waiting[above[waiting] * MARGIN >= least]
        now, waiting = waiting[:top], waiting[top:]
        for row in now:
            solved[int(row)] = fluid.exact(counts[row].astype(float))
        # Prices of the solved ones bound their neighbours almost exactly.
        above[waiting] = fluid.above(counts[waiting])
        waiting = waiting[np.argsort(-above[waiting], kind="stable")]
    rows = sorted(solved, key=lambda row: (-solved[row], row))[:top]
    return [solved[row] for row in rows], rows


BOUNDS: dict[str, Callable[[ServiceTimes, Counts, int], tuple[list[float], list[int]]]] = {
    "eq15": _by_eq15,
    "fluid": _by_fluid,
}


def pick_first(best: Sequence[Ranked], base: int | None) -> Ranked:
    """The mix with the highest bound."""
    return best[0]


def pick_paper(best: Sequence[Ranked], base: int | None) -> Ranked:
    """The paper's pick: the first where the best three share the number of base devices, else of
    the best ten the one with the least sum of squared distances to the others; ties: the higher
    bound."""
    if base is not None and len({each.counts[base] for each in best[:SAME_BASE]}) == 1:
        return best[0]
    among = best[:PICK_AMONG]
    counts = np.array([each.counts for each in among])
    apart = ((counts[:, None, :] - counts[None, :, :]) ** 2).sum(axis=(1, 2))
    return among[int(np.argmin(apart))]


PICKS: dict[str, Callable[[Sequence[Ranked], int | None], Ranked]] = {
    "first": pick_first,
    "paper": pick_paper,
}


def cheapest(pool: Pool, demand_qps: float) -> Ranked | None:
    """The cheapest mix whose fluid bound is at least ``demand_qps``; None where no mix reaches it.

    The linear program of the bound with roles swapped: the throughput is given, the counts are
    integer variables and their cost is minimised.
    """
    counts = _cheapest_counts(pool, demand_qps)
    if counts is None:
        return None
    price = sum(n * each.price for n, each in zip(counts, pool.types, strict=True))
    bound = FluidBound(pool.times).exact(np.array(counts, dtype=float))
    return Ranked(counts, price, bound)


def _cheapest_counts(pool: Pool, demand_qps: float) -> tuple[int, ...] | None:
    times, types = pool.times, len(pool.types)
    carried = np.flatnonzero(times.probabilities > 0)
    rows, columns = np.nonzero(times.feasible[:, carried])
    pairs = types + np.arange(len(rows))
    total = types + len(rows)
    served = coo_array((np.ones(len(rows)), (columns, pairs)), shape=(len(carried), total))
    # Shares of the demand, not queries/s, so that coefficients are devices.
    busy = coo_array(
        (
            np.concatenate(
                [times.latency_s[:, carried][rows, columns] * demand_qps, -np.ones(types)]
            ),
            (np.concatenate([rows, np.arange(types)]), np.concatenate([pairs, np.arange(types)])),
        ),
        shape=(types, total),
    )
    most = [np.inf if each.most is None else each.most for each in pool.types]
    found = milp(
        np.concatenate([[each.price for each in pool.types], np.zeros(len(rows))]),
        constraints=[
            LinearConstraint(served, times.probabilities[carried], times.probabilities[carried]),
            LinearConstraint(busy, -np.inf, 0.0),
        ],
        integrality=np.concatenate([np.ones(types), np.zeros(len(rows))]),
        bounds=Bounds(0, np.concatenate([most, np.full(len(rows), np.inf)])),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    return tuple(round(float(n)) for n in found.x[:types])


def nearest(pool: Pool) -> NearestPool:
    """What some type would meet: the SLO for the largest size, the size within the SLO, and the
    price of the cheapest device that meets both as they are."""
    limit = (1 - GUARD) * pool.slo_s
    meets = [each.price for each, s in zip(pool.types, pool.largest_s, strict=True) if s <= limit]
    sizes = max(pool.largest.values())
    return NearestPool(
        min(pool.largest_s) / (1 - GUARD),
        min(sizes, pool.largest_size) or None,
        min(meets, default=None),
    )


def at_slo(pool: Pool, slo_s: float) -> Pool:
    """The pool with another SLO."""
    return replace(pool, slo_s=slo_s)
