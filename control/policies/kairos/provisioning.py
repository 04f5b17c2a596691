"""Provisioning: rank the mixes of devices that a budget affords, and pick one.

Mixes are ranked by an upper bound of their throughput (throughput_bounds.py), without trial runs,
and mixes of equal bounds by their cost.
Pick rules: ``paper`` (Kairos, HPDC 2023, section 5.2) takes the first if the best three have the
same number of base devices, else the one of the best ten that is nearest to the other nine;
``first`` takes the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules take a third of a second to load, on first use

from control.policies.kairos.device_mixes import (
    CENT,
    Counts,
    Floats,
    PricedType,
    costs,
    mixes_within,
)
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes, eq15_bounds
from control.problem.problem import PlanError

GUARD = 0.02  # Eq. 8: a base device finishes its largest query within (1 - GUARD) of the SLO
PICK_AMONG = 10
SAME_BASE = 3
EXACT = 1e-6  # relative precision of bounds; among closer bounds the cheaper mix wins

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
Valued = list[tuple[int, float]]  # mixes by number, each with its bound, the best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The input of provisioning.

    ``latency_s`` are means, and ``worst_s`` the 95th percentiles (none: as the means).
    ``largest_s[i]`` is the mean latency of the largest possible query on type i; ``base`` names
    the base type that the user fixed ("": chosen by ``base_of``).
    """

    types: tuple[PricedType, ...]
    sizes: SizeDistribution
    latency_s: tuple[tuple[float, ...], ...]  # by type, by size class
    largest_s: tuple[float, ...]
    largest_size: int
    slo_s: float
    base: str = ""
    worst_s: tuple[tuple[float, ...], ...] = ()  # by type, by size class

    @property
    def times(self) -> ServiceTimes:
        """The pool as input of the bounds."""
        return ServiceTimes(
            np.array(self.latency_s), np.array(self.sizes.probabilities), self.slo_s, base_of(self)
        )

    @property
    def coefficients(self) -> tuple[float, ...]:
        """C_j: speed of each type on the largest query, relative to the base type; relative to the
        fastest type if there is no base type (Definition 1)."""
        base = base_of(self)
        first = min(self.largest_s) if base is None else self.largest_s[base]
        return tuple(first / seconds for seconds in self.largest_s)

    @property
    def largest(self) -> dict[str, int]:
        """By type, the largest size that it serves within the SLO; 0: none."""
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
    """The best mixes, the number of mixes, and of those with a base device."""

    best: tuple[Ranked, ...]
    mixes: int
    with_base: int


@dataclass(frozen=True, slots=True)
class NearestPool:
    """Single changes of SLO, size or budget that let some type meet the SLO at the largest size."""

    slo_s: float | None
    size: int | None
    budget: float | None


def base_of(pool: Pool) -> int | None:
    """Return the base type: the most queries/s per $ of those within the SLO at the largest size.

    The limit is the SLO less the guard, as in Eq. 8. A base type that the pool fixes is not
    checked. None if no type qualifies. Raises ``PlanError`` if the fixed type is unknown.
    """
    names = [each.name for each in pool.types]
    if pool.base:
        if pool.base not in names:
            raise PlanError(f"the base {pool.base!r} is no type; types are {', '.join(names)}")
        return names.index(pool.base)
    mean_s = np.array(pool.latency_s) @ np.array(pool.sizes.probabilities)
    meets = [i for i, s in enumerate(pool.largest_s) if s <= (1 - GUARD) * pool.slo_s]
    # A free type is preferred to any priced type.
    worth = {i: 1 / (mean_s[i] * max(pool.types[i].price, 1e-12)) for i in meets}
    return max(meets, key=lambda i: (worth[i], -i)) if meets else None


def rank(pool: Pool, budget: float, bound: str = "fluid", top: int = PICK_AMONG) -> Ranking:
    """Return the ``top`` mixes within the budget by decreasing bound; of equal bounds (``EXACT``)
    the cheaper first, then in lexicographic order.

    Every returned bound is exact. Raises ``PlanError`` for an unknown bound, and for a budget that
    affords no mix or too many.
    """
    if bound not in BOUNDS:
        raise PlanError(f"there is no bound {bound!r}; known are {', '.join(BOUNDS)}")
    counts = mixes_within(pool.types, budget)
    prices = costs(pool.types, counts)
    base = base_of(pool)
    return Ranking(
        tuple(
            Ranked(tuple(int(n) for n in counts[row]), float(prices[row]), value)
            for row, value in BOUNDS[bound](pool.times, counts, prices, top)
        ),
        len(counts),
        0 if base is None else int((counts[:, base] > 0).sum()),
    )


def ordered(values: Floats, prices: Floats) -> Rows:
    """Return the mixes by decreasing value; of equal values the cheaper first, then as given.

    Neighbours in the order of values that differ by at most ``EXACT`` count as equal; equality is
    transitive.
    """
    by_value = np.argsort(-values, kind="stable")
    falling = values[by_value]
    steps = falling[1:] < falling[:-1] * (1 - EXACT)
    groups = np.zeros(len(values))
    groups[1:] = np.cumsum(steps)
    found: Rows = by_value[np.lexsort((by_value, in_cents(prices[by_value]), groups))]
    return found


def in_cents(prices: Floats) -> Floats:
    """Return prices without the rounding errors of their sums."""
    found: Floats = np.round(prices / CENT)
    return found


def _by_eq15(times: ServiceTimes, counts: Counts, prices: Floats, top: int) -> Valued:
    values = eq15_bounds(times, counts)
    return [(int(row), float(values[row])) for row in ordered(values, prices)[:top]]


def _by_fluid(times: ServiceTimes, counts: Counts, prices: Floats, top: int) -> Valued:
    """Return the exact bounds of the best mixes: solve by decreasing sampled bound until no
    remaining mix can come before one of them."""
    fluid = FluidBound(times)
    above, cents = fluid.above(counts), in_cents(prices)
    waiting: Rows = np.argsort(-above, kind="stable")
    solved: dict[int, float] = {}
    best: Valued = []
    while len(waiting):
        now, waiting = waiting[:top], waiting[top:]
        known = fluid.known
        for row in np.sort(now):  # neighbours share most of a solution
            solved[int(row)] = fluid.exact(counts[row].astype(float))
        best = _best(solved, prices, top)
        waiting = _in_question(waiting, above, cents, best[top - 1 :])
        # The prices of solved mixes bound their neighbours almost exactly.
        above[waiting] = np.minimum(above[waiting], fluid.above(counts[waiting], known))
        waiting = _in_question(waiting, above, cents, best[top - 1 :])
        waiting = waiting[ordered(above[waiting], prices[waiting])]
    return best


def _in_question(waiting: Rows, above: Floats, cents: Floats, last: Valued) -> Rows:
    """Return the waiting mixes that may precede the ``last`` of the best; all if that is empty."""
    for row, least in last:
        waiting = waiting[above[waiting] >= least * (1 - EXACT)]
        better = above[waiting] > least * (1 + EXACT)
        cheaper = (cents[waiting] < cents[row]) | ((cents[waiting] == cents[row]) & (waiting < row))
        waiting = waiting[better | cheaper]
    return waiting


def _best(solved: Mapping[int, float], prices: Floats, top: int) -> Valued:
    """Return the first ``top`` of the mixes with exact bounds."""
    rows = np.array(sorted(solved))
    values = np.array([solved[row] for row in rows.tolist()])
    return [(int(rows[at]), float(values[at])) for at in ordered(values, prices[rows])[:top]]


BOUNDS: dict[str, Callable[[ServiceTimes, Counts, Floats, int], Valued]] = {
    "eq15": _by_eq15,
    "fluid": _by_fluid,
}


def pick_first(best: Sequence[Ranked], base: int | None) -> Ranked:
    """Return the mix with the highest bound."""
    return best[0]


def pick_paper(best: Sequence[Ranked], base: int | None) -> Ranked:
    """Return the paper's pick: the first if the best three have the same number of base devices,
    else the one of the best ten with the least sum of squared distances to the others; ties go
    to the higher bound."""
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
    """Return the cheapest mix whose fluid bound is at least ``demand_qps``; None if there is none.

    This is the linear program of the bound with roles swapped: the throughput is given, the counts
    are integer variables and their cost is minimised. Every size has a device that serves it in
    time, even for a tiny demand: the solver would round a millionth of a device to none.
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
    served = scipy.sparse.coo_array(
        (np.ones(len(rows)), (columns, pairs)), shape=(len(carried), total)
    )
    # Variables are shares of the demand, not queries/s, so that coefficients are in devices.
    busy = scipy.sparse.coo_array(
        (
            np.concatenate(
                [times.latency_s[:, carried][rows, columns] * demand_qps, -np.ones(types)]
            ),
            (np.concatenate([rows, np.arange(types)]), np.concatenate([pairs, np.arange(types)])),
        ),
        shape=(types, total),
    )
    able = np.unique(times.feasible[:, carried], axis=1).T
    present = np.hstack([able, np.zeros((len(able), len(rows)))])
    most = [np.inf if each.most is None else each.most for each in pool.types]
    found = scipy.optimize.milp(
        np.concatenate([[each.price for each in pool.types], np.zeros(len(rows))]),
        constraints=[
            scipy.optimize.LinearConstraint(
                served, times.probabilities[carried], times.probabilities[carried]
            ),
            scipy.optimize.LinearConstraint(busy, -np.inf, 0.0),
            scipy.optimize.LinearConstraint(present, 1.0, np.inf),
        ],
        integrality=np.concatenate([np.ones(types), np.zeros(len(rows))]),
        bounds=scipy.optimize.Bounds(0, np.concatenate([most, np.full(len(rows), np.inf)])),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    return tuple(round(float(n)) for n in found.x[:types])


def nearest_pool(pool: Pool) -> NearestPool:
    """Return the SLO that some type meets at the largest size, the largest size that some type
    serves within the SLO, and the price of the cheapest device that meets both as given."""
    limit = (1 - GUARD) * pool.slo_s
    meets = [each.price for each, s in zip(pool.types, pool.largest_s, strict=True) if s <= limit]
    sizes = max(pool.largest.values())
    return NearestPool(
        min(pool.largest_s) / (1 - GUARD),
        min(sizes, pool.largest_size) or None,
        min(meets, default=None),
    )
