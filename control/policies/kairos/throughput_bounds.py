"""Upper bounds of the throughput of a mix of devices, from mean latencies by size.

For n_i devices of type i, size classes k with probability p_k, mean latency t_i(k) and SLO T:

Eq. 15 of Kairos (HPDC 2023, section 5.2): one base type b with u devices, auxiliary types i with
v_i devices; s_i is the largest class with t_i <= T and s' the largest s_i of the types present.

    f'      = F(s')                                  Q_b      = 1 / sum_k p_k t_b(k)
    Q_b^s+  = (1-f') / sum_{k>s'} p_k t_b(k)         Q_a^i    = f' / sum_{k<=s'} p_k t_i(k)
    C       = sum_i v_i Q_a^i (1-f') / f'                                               (14)
    QPSmax  = u Q_b^s+ / (1-f')                                     if u Q_b^s+ <= C     (15)
            = sum_i v_i Q_a^i / f' + (1 - C / (u Q_b^s+)) u Q_b     otherwise

Eq. 15 assumes that auxiliary devices serve the average small query, so a dispatcher that sends the
smallest queries there may exceed it. The fluid bound holds for every distribution of the queries:

    max lambda  s.t.  sum_i y_ik = lambda p_k,  sum_k t_i(k) y_ik <= n_i,  y_ik = 0 if t_i(k) > T
    dual        min over w >= 0 of  (n.w) / g_S(w),
                g_S(w) = sum_k p_k min over feasible i in S of w_i t_i(k)

where S holds the types of the mix. Every price vector w gives a valid bound, so sampled prices
bound many mixes with one matrix product; published values are those of the linear program.
"""

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from control.policies.kairos.device_mixes import Counts, Floats
from control.policies.kairos.pattern_simplex import PatternSimplex
from control.problem.problem import PlanError

SAMPLED_PRICES = 96
MOST_SUPPORTS = 12  # types up to which the sampled prices cover every subset of idle types
MOST_BITS = 63  # types up to which the types of a mix fit an integer
LEAST_SAMPLED = 16  # prices; a thousand types with more would exceed the memory
CHUNK = 4096  # mixes per matrix product
FIRST_PATTERNS = 8  # of the sampled prices that bound a mix best
GAP = 1e-7  # between the throughput found and the bound proved by its prices
# Roberts' sequence: multiples modulo 1 of the powers of 1 / _GOLDEN fill a cube evenly, without
# random numbers.
_GOLDEN = 1.32471795724474602596


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """The input of the bounds.

    ``latency_s`` has a row per type and a column per size class, ``probabilities`` one value per
    class; ``base`` is the row of the base type, or None.
    """

    latency_s: Floats  # [types, classes], seconds
    probabilities: Floats  # [classes], summing to 1
    slo_s: float
    base: int | None = None

    @property
    def feasible(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether each type serves each class within the SLO: [types, classes]."""
        found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = self.latency_s <= self.slo_s
        return found

    @property
    def largest(self) -> list[int]:
        """For each type, the largest class within the SLO; -1: none.

        Measured latencies need not be monotone, so smaller classes may violate the SLO.
        """
        return [int(np.flatnonzero(row)[-1]) if row.any() else -1 for row in self.feasible]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoClass:
    """The quantities of Eq. 15 for one set of auxiliary types."""

    small: float  # f': the share of queries that auxiliary devices may serve
    base_qps: float  # Q_b: of one base device on all queries
    base_large_qps: float  # Q_b^s+: of one base device on the large ones
    auxiliary_qps: Floats  # Q_a^i: of one device of each type on the small ones; 0 for the base


def eq15(of: TwoClass, base: Floats, auxiliary: Counts) -> Floats:
    """Return Eq. 15 for ``base`` [mixes] base devices and ``auxiliary`` [mixes, types] devices."""
    small_qps = auxiliary @ of.auxiliary_qps
    alone = base * of.base_qps
    if of.small <= 0:
        return alone
    if of.small >= 1:
        return small_qps + alone
    capacity = small_qps * (1 - of.small) / of.small
    large = base * of.base_large_qps
    free = 1 - np.divide(capacity, large, out=np.ones_like(capacity), where=large > 0)
    found: Floats = np.where(
        large <= capacity, large / (1 - of.small), small_qps / of.small + free * alone
    )
    return found


def eq15_bounds(times: ServiceTimes, counts: Counts) -> Floats:
    """Return Eq. 15 in queries/s for each mix.

    Raises ``PlanError`` if there is no base type.
    """
    if times.base is None:
        raise PlanError(
            "Eq. 15 needs a base type, one that meets the SLO at every size, and there is none; "
            "use the fluid bound, raise the SLO, or lower size.most"
        )
    auxiliary = counts.copy()
    auxiliary[:, times.base] = 0
    largest = np.array(times.largest)
    reach = np.where(auxiliary > 0, largest, -1).max(axis=1)
    found = np.zeros(len(counts))
    for limit in np.unique(reach):
        rows = reach == limit
        of = _two_class(times, times.base, int(limit))
        found[rows] = eq15(of, counts[rows, times.base].astype(float), auxiliary[rows])
    return found


def _two_class(times: ServiceTimes, base: int, limit: int) -> TwoClass:
    p, t = times.probabilities, times.latency_s
    up_to = slice(0, limit + 1)
    small = 1.0 if limit == len(p) - 1 else float(p[up_to].sum())
    large_s = float(p[limit + 1 :] @ t[base, limit + 1 :])
    small_s = t[:, up_to] @ p[up_to]
    auxiliary = np.divide(small, small_s, out=np.zeros(len(t)), where=small_s > 0)
    auxiliary[base] = 0.0
    return TwoClass(
        small=small if large_s > 0 else 1.0,
        base_qps=1 / float(t[base] @ p),
        base_large_qps=(1 - small) / large_s if large_s > 0 else 0.0,
        auxiliary_qps=auxiliary,
    )


@dataclass(slots=True)
class FluidBound:
    """The fluid bound of mixes: exact, or bounded from above by sampled prices.

    Prices of exact solutions are kept, so that later bounds are tighter.
    """

    times: ServiceTimes
    _prices: Floats = field(init=False)  # [prices, types]
    # Costs of the sampled prices, and of each found since: [types, prices, classes].
    _priced: Floats = field(init=False)
    _later: list[Floats] = field(init=False, default_factory=list)
    _g: dict[bytes, Floats] = field(init=False, default_factory=dict)  # by support
    _programs: dict[bytes, PatternSimplex] = field(init=False, default_factory=dict)  # by support

    def __post_init__(self) -> None:
        self._prices = _sampled_prices(self.times)
        self._priced = _priced(self.times, self._prices)

    @property
    def known(self) -> int:
        """The number of price vectors known so far."""
        return len(self._prices)

    def above(self, counts: Counts, first: int = 0) -> Floats:
        """Return a value at or above the exact bound of each mix, in queries/s.

        Only prices from number ``first`` on are used; infinite if none of them bounds a mix.
        """
        found = np.zeros(len(counts))
        present = counts > 0
        for rows in _by_support(present):
            g = self._g_of(present[rows[0]])[first:]
            usable = g > 0
            if not np.isfinite(g).all():
                continue  # some size meets the SLO on no type of the mix: throughput 0
            if not usable.any():
                found[rows] = np.inf
                continue
            scaled = (self._prices[first:][usable] / g[usable, None]).T
            for at in range(0, len(rows), CHUNK):
                chunk = rows[at : at + CHUNK]
                found[chunk] = (counts[chunk] @ scaled).min(axis=1)
        return found

    def exact(self, mix: Floats) -> float:
        """Return the exact bound of a mix, in queries/s; counts may be fractional.

        Raises ``PlanError`` if the linear program is not solved to a relative gap of ``GAP``.
        """
        mix = np.asarray(mix, dtype=float)
        present = mix > 0
        feasible = self.times.feasible & present[:, None]
        carried = self.times.probabilities > 0
        if not (feasible.any(axis=0) | ~carried).all() or not present.any():
            return 0.0
        bound, prices = self._solved(mix, present)
        self._prices = np.vstack([self._prices, prices])
        self._later.append(_priced(self.times, prices[None]))
        return bound

    def marginal(self, mix: Floats) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return, by type, what one more device of the mix adds to its bound, in queries/s.

        These are the duals of the linear program; 0 for types that are not in the mix or idle in
        part. All are 0 if the mix cannot serve every class. Raises as ``exact`` does.
        """
        known = len(self._prices)
        bound = self.exact(mix)
        found: np.ndarray[tuple[int], np.dtype[np.float64]] = np.zeros(len(mix))
        if len(self._prices) > known:
            prices = self._prices[-1]
            found += bound * prices / float(np.asarray(mix) @ prices)
        return found

    def shares(self, mix: Floats) -> Floats:
        """Return the share of all queries of each class that each type serves, [types, classes],
        when the mix carries its bound; all 0 if that is 0. Raises as ``exact`` does."""
        mix = np.asarray(mix, dtype=float)
        found = np.zeros(self.times.latency_s.shape)
        if self.exact(mix) > 0:
            present = mix > 0
            carried = self.times.probabilities > 0
            found[np.ix_(present, carried)] = self._programs[present.tobytes()].shares()
        return found

    def _solved(
        self, mix: Floats, present: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    ) -> tuple[float, Floats]:
        """Return the bound of a mix and the prices [types] that prove it."""
        program = self._program(mix, present)
        throughput, bound, found = program.solve(mix[present])
        if not abs(throughput - bound) <= GAP * throughput:
            raise PlanError(
                f"the bound of the mix {mix.tolist()} is between {throughput:g} and {bound:g} "
                "queries/s, not closer; the latencies of its types differ too much"
            )
        prices = np.zeros(len(mix))
        prices[present] = found
        return bound, prices

    def _program(
        self, mix: Floats, present: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    ) -> PatternSimplex:
        """Return the program of the mix's types; a new one starts near this mix."""
        key = present.tobytes()
        if key not in self._programs:
            carried = self.times.probabilities > 0
            seconds = np.where(self.times.feasible, self.times.latency_s, np.inf)
            program = self._programs[key] = PatternSimplex(
                seconds[present][:, carried], self.times.probabilities[carried]
            )
            program.add(self._prices[np.ix_(self._nearest_prices(mix, present), present)])
        return self._programs[key]

    def _nearest_prices(
        self, mix: Floats, present: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the rows of the known prices that bound a mix best."""
        g = self._g_of(present)
        worth = np.divide(self._prices @ mix, g, out=np.full(len(g), np.inf), where=g > 0)
        return np.argsort(worth, kind="stable")[:FIRST_PATTERNS]

    def _g_of(self, present: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
        """Return g_S of every known price; only prices found since the last call are computed."""
        key = present.tobytes()
        known = self._g.get(key)
        if known is None:
            known = _g(self.times, self._priced[present])
        if len(known) < len(self._prices):
            later = self._later[len(known) - self._priced.shape[1] :]
            costs = np.concatenate(later, axis=1)[present]
            known = np.concatenate([known, _g(self.times, costs)])
        self._g[key] = known
        return known


def _by_support(
    present: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the rows [mixes, types] that have the same types, group by group."""
    if present.shape[1] < MOST_BITS:
        keys = present @ (1 << np.arange(present.shape[1], dtype=np.int64))
    else:  # the rows as strings of bits
        packed = np.ascontiguousarray(np.packbits(present, axis=1))
        keys = packed.view(f"S{packed.shape[1]}").ravel()
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(keys[order][1:] != keys[order][:-1]) + 1
    return np.split(order, starts) if len(order) else []


def _priced(times: ServiceTimes, prices: Floats) -> Floats:
    """Return the cost of each class at each price vector, [types, prices, classes]; infinite above
    the SLO."""
    fits = times.feasible
    seconds, blocked = np.where(fits, times.latency_s, 0.0), np.where(fits, 0.0, np.inf)
    found: Floats = prices.T[:, :, None] * seconds[:, None, :]
    found += blocked[:, None, :]
    return found


def _g(times: ServiceTimes, priced: Floats) -> Floats:
    """Return g_S(w) for each price vector; infinite if no type of S serves some class. ``priced``
    are the costs of the types of S."""
    if len(priced) == 0:
        return np.full(priced.shape[1], np.inf)
    least = np.minimum.reduce(priced, axis=0)
    carried = times.probabilities > 0
    if not carried.all():
        least = least[:, carried]
    found: Floats = least @ times.probabilities[carried]
    return found


def _sampled_prices(times: ServiceTimes) -> Floats:
    """Return price vectors near those at which two types are equally good for some class."""
    types = len(times.latency_s)
    first = times.latency_s[0] if times.base is None else times.latency_s[times.base]
    ratio = first[None, :] / times.latency_s
    low, high = np.log(ratio.min(axis=1)), np.log(ratio.max(axis=1))
    steps = _GOLDEN ** -np.arange(1, types + 1)
    sampled_prices = max(SAMPLED_PRICES * MOST_SUPPORTS // max(types, MOST_SUPPORTS), LEAST_SAMPLED)
    cube = (0.5 + np.outer(np.arange(sampled_prices), steps)) % 1.0
    sampled = np.exp(low + cube * (high - low))
    return np.vstack([sampled, _idle_types(ratio)])


def _idle_types(ratio: Floats) -> Floats:
    """Return prices at which subsets of the types are free, i.e. have idle devices."""
    types = len(ratio)
    middle = np.exp(np.log(ratio).mean(axis=1))
    few = types <= MOST_SUPPORTS
    kept = np.array(list(product((0.0, 1.0), repeat=types))[1:]) if few else np.ones((1, types))
    found: Floats = kept * middle
    return found
