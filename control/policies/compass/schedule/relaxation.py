"""The linear program of multi-query scheduling over classes of sessions, and its dual bound.

Variables: ``x[j]`` sessions take column ``j``, ``g[b]`` empty GPUs are opened for bin ``b``.

    goodput  max  sum_j weight[owner[j]] x[j]    s.t. sum_{j of class c} x[j] <= count[c]
    cost     min  sum_b price[tier(b)] g[b]      s.t. sum_{j of class c} x[j]  = count[c]
    both     s.t. sum_j takes[j, r] x[j] - gives[r] g[bin(r)] <= free[r]   for every packing row r
                  sum_{b of tier t} g[b] <= gpus[t]                        for every limited tier t

The packing rows are those of ``packing.py``; for integers they are exact, so the same model is
the integer program. Large instances are solved by *sifting*: prices select the few columns near the
best of their class; the program over those columns gives new prices, until the dual bound over all
columns equals its value. Any prices give a valid bound. The first prices are those of a sample of
the classes, in goodput improved on all classes by a smooth dual bound: sessions of a class divide
among its columns by exp(value / temperature).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from control.policies.compass.packing import EMPTY_ROWS, FREE_GIVES, GIVES, TAKES
from control.policies.compass.schedule.classes import Classes, Floats, Ints
from control.policies.compass.schedule.instance import COST, Instance

DIRECT = 4_000  # columns up to which the program is solved directly
SAMPLE = 600  # classes that give the first prices
TOLERANCE = 1e-6  # relative, between a value and its bound
DESCENT = 80  # evaluations of the smooth dual bound, at most
TEMPERATURE = 0.003  # relative to the mean price of a column
FIRST_WINDOW = 0.03  # relative to the same: columns whose value is so near their class's best
WIDER = 5.0
WHOLE = 2.0  # a window that holds every column
ROUNDS = 10

Bools = NDArray[np.bool_]

_OPTIMIZE: Any = optimize  # SciPy's stubs reject sparse arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramData:
    """The program's data: ``takes[d, r]`` per demand, ``row_bin[r]``, ``gives[r]``, ``free[r]``
    per packing row, ``tier[b]`` and ``price[b]`` per bin, ``limit[t]`` GPUs per tier (inf: any)."""

    classes: Classes
    cost: bool
    takes: Floats
    row_bin: Ints
    gives: Floats
    free: Floats
    tier: Ints
    price: Floats
    limit: Floats

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(self.classes.owner)


@dataclass(frozen=True, slots=True)
class Relaxed:
    """``taken[j]`` sessions take column ``j``; ``prices[r]`` are those of the packing rows;
    ``bound`` limits the objective of any schedule."""

    taken: Floats
    prices: Floats
    bound: float


def model(instance: Instance, found: Classes, objective: str) -> ProgramData:
    """Return the program of an instance for one objective."""
    names = list(instance.tiers)
    rows = [
        (b, k)
        for b, bin in enumerate(found.bins)
        for k in (range(len(TAKES)) if any(instance.free.get(bin, ())) else EMPTY_ROWS)
    ]
    free = {b: instance.free.get(bin, (0, 0, 0)) for b, bin in enumerate(found.bins)}
    by_row = [found.sizes[:, b, :] @ np.array(TAKES[k]) for b, k in rows]
    tiers = instance.tiers.values()
    return ProgramData(
        classes=found,
        cost=objective == COST,
        takes=np.array(by_row, dtype=np.float64).reshape(len(rows), len(found.sizes)).T,
        row_bin=np.array([b for b, _ in rows], dtype=np.int64),
        gives=np.array([GIVES[k] for _, k in rows], dtype=np.float64),
        free=np.array([np.dot(FREE_GIVES[k], free[b]) for b, k in rows], dtype=np.float64),
        tier=np.array([names.index(tier) for tier, _ in found.bins], dtype=np.int64),
        price=np.array([instance.tiers[tier].price for tier, _ in found.bins], dtype=np.float64),
        limit=np.array([np.inf if t.gpus is None else t.gpus for t in tiers], dtype=np.float64),
    )


def relax(data: ProgramData) -> Relaxed | None:
    """Solve the linear program; None if no schedule serves every session (cost only)."""
    if data.columns > DIRECT:
        prices = _sampled_prices(data)
        found = None if prices is None else _sift(data, _descended(data, prices))
        if found is not None:
            return found
    return _restricted(data, np.ones(data.columns, dtype=bool), np.zeros(data.columns))


def _sampled_prices(data: ProgramData) -> Floats | None:
    owners = np.arange(0, len(data.classes.count), max(1, len(data.classes.count) // SAMPLE))
    chosen = np.isin(data.classes.owner, owners)
    scale = float(data.classes.count[owners].sum() / data.classes.count.sum())
    found = _restricted(data, chosen, np.zeros(data.columns), scale)
    return None if found is None else found.prices


def _descended(data: ProgramData, prices: Floats) -> Floats:
    """Return prices near those of the least dual bound."""
    if data.cost:  # the sample's prices are better: GPU prices are given
        return prices
    temperature = max(TEMPERATURE * _mean_price(data, prices), 1e-9)
    found = _OPTIMIZE.minimize(
        lambda at: _bound_and_slope(data, at, temperature),
        prices,
        jac=True,
        bounds=[(0, None)] * len(prices),
        method="L-BFGS-B",
        options={"maxfun": DESCENT, "ftol": 1e-7},
    )
    lower = np.asarray(found.x)
    return lower if dual_bound(data, lower) < dual_bound(data, prices) else prices


def _bound_and_slope(data: ProgramData, prices: Floats, temperature: float) -> tuple[float, Floats]:
    """Return the goodput's smooth dual bound over limited tiers, and its gradient in the prices.

    The bound itself has kinks, at which a descent stops: the prices of a sample are at one.
    """
    classes = data.classes
    values = column_values(data, prices)
    best = best_values(data, values)
    taking = np.exp((values - best[classes.owner]) / temperature)
    options = np.add.reduceat(taking, classes.start) + np.exp(-best / temperature)  # 0: not served
    shares = classes.count / options
    demanded = np.bincount(
        classes.demand, taking * shares[classes.owner], minlength=len(data.takes)
    )
    supplied = data.free + data.gives * np.minimum(data.limit, 1e9)[data.tier][data.row_bin]
    gained = classes.count @ (best + temperature * np.log(options))
    return float(gained + supplied @ prices), supplied - demanded @ data.takes


def _mean_price(data: ProgramData, prices: Floats) -> float:
    return float((data.takes @ prices)[data.classes.demand].mean())


def _sift(data: ProgramData, center: Floats) -> Relaxed | None:
    """Return the best solution within ROUNDS from starting prices; None if none is feasible."""
    window, best = FIRST_WINDOW, None
    tighter = max if data.cost else min
    bound = dual_bound(data, center)
    fixed, free = near_columns(data, center, window)
    for number in range(ROUNDS):
        if number:
            window, fixed, free = others(data, center, window, (fixed, free))
        found = _restricted(data, free, fixed)
        if found is not None:
            bound = tighter(bound, found.bound)
            if best is None or _gap(data, found, bound) < _gap(data, best, bound):
                best = replace(found, bound=bound)
            if _gap(data, best, bound) <= TOLERANCE:
                return replace(best, bound=bound)
        moved = center if found is None else _toward(data, center, found.prices)
        window = window if moved is not center else window * WIDER
        center = moved
    return best and replace(best, bound=bound)


def _gap(data: ProgramData, found: Relaxed, bound: float) -> float:
    value = _value(data, found)
    return abs(bound - value) / max(abs(value), 1.0)


def others(
    data: ProgramData, center: Floats, window: float, last: Sequence[Floats | Bools]
) -> tuple[float, Floats, Bools]:
    """Return the first window from ``window`` on that selects other columns than the last ones,
    and its selection: a program over the same columns has the same solution."""
    while True:
        fixed, free = near_columns(data, center, window)
        same = np.array_equal(fixed, last[0]) and np.array_equal(free, last[1])
        if not same or window >= WHOLE:
            return window, fixed, free
        window *= WIDER


def near_columns(data: ProgramData, prices: Floats, window: float) -> tuple[Floats, Bools]:
    """Return the sessions fixed for classes with one near column, and the other near columns."""
    values = column_values(data, prices)
    best = best_values(data, values)
    slack = window * _mean_price(data, prices) if window < WHOLE else np.inf
    near = values >= best[data.classes.owner] - slack
    spare = (best <= slack) & (not data.cost)  # not serving is as good
    fixed = near & _alone(data, near, spare)
    return np.where(fixed, data.classes.count[data.classes.owner], 0.0), near & ~fixed


def _toward(data: ProgramData, center: Floats, prices: Floats) -> Floats:
    """Return the best prices between ``center`` and ``prices`` (in-out separation)."""
    ways = [center, *(center + step * (prices - center) for step in (0.05, 0.2, 0.5, 1.0))]
    sign = -1.0 if data.cost else 1.0
    bounds = [sign * dual_bound(data, each) for each in ways]
    best = int(np.argmin(bounds))
    return ways[best] if bounds[best] < bounds[0] - TOLERANCE * abs(bounds[0]) else center


def _alone(data: ProgramData, near: Bools, spare: Bools) -> Bools:
    """Return columns of classes with one near column for which not serving is worse."""
    options = np.bincount(data.classes.owner[near], minlength=len(data.classes.count))
    alone: Bools = ((options == 1) & ~spare)[data.classes.owner]
    return alone


def column_values(data: ProgramData, prices: Floats) -> Floats:
    """Return the reduced value of each column for a session at these packing row prices."""
    gained = -(data.takes @ prices)[data.classes.demand]
    return gained if data.cost else gained + data.classes.weight[data.classes.owner]


def best_values(data: ProgramData, values: Floats) -> Floats:
    """Return the best column value of each class; in goodput at least 0 (not served)."""
    best: Floats = np.maximum.reduceat(values, data.classes.start)
    return best if data.cost else np.maximum(best, 0.0)


def _value(data: ProgramData, found: Relaxed) -> float:
    if not data.cost:
        return float(data.classes.weight[data.classes.owner] @ found.taken)
    return relaxed_cost(data, found.taken)


def relaxed_cost(data: ProgramData, taken: Floats) -> float:
    """Return $ an hour of the fractional GPUs that hold the taken columns."""
    return float(data.price @ opened(data, taken))


def opened(data: ProgramData, taken: Floats) -> Floats:
    """Return the fractional number of empty GPUs that each bin needs."""
    per_demand = np.bincount(data.classes.demand, taken, minlength=len(data.takes))
    over = (per_demand @ data.takes - data.free) / data.gives
    need = np.zeros(len(data.tier))
    np.maximum.at(need, data.row_bin, over)
    return need


def _restricted(
    data: ProgramData, active: Bools, fixed: Floats, scale: float = 1.0
) -> Relaxed | None:
    """Solve over active columns beside fixed ones, all GPUs scaled; None if infeasible."""
    columns = np.flatnonzero(active)
    base = np.bincount(data.classes.demand, fixed, minlength=len(data.takes)) @ data.takes
    program = restricted_program(data, columns, (data.free - base) * scale, data.limit * scale)
    found = _OPTIMIZE.linprog(
        program.objective,
        A_ub=program.upper,
        b_ub=program.upper_rhs,
        A_eq=program.equal,
        b_eq=program.equal_rhs,
        bounds=(0, None),
        method="highs-ipm",  # with crossover to a vertex; twice as fast here as the simplex method
    )
    if found.status != 0:
        return None
    rows = len(data.free)
    prices = np.maximum(-np.asarray(found.ineqlin.marginals)[:rows], 0.0)
    taken = fixed.copy()
    taken[columns] += np.asarray(found.x)[: len(columns)]
    return Relaxed(taken, prices, dual_bound(data, prices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Minimise ``objective`` x subject to ``upper`` x <= ``upper_rhs``, ``equal`` x =
    ``equal_rhs``, x >= 0. Variables: columns, then bins. The first rows are the packing rows."""

    objective: Floats
    upper: sparse.csr_array
    upper_rhs: Floats
    equal: sparse.csr_array | None
    equal_rhs: Floats | None


def restricted_program(data: ProgramData, columns: Ints, free: Floats, limit: Floats) -> Program:
    """Return the program over some columns, which must place all sessions of their classes."""
    owners, at = np.unique(data.classes.owner[columns], return_inverse=True)
    bins, rows = len(data.tier), len(data.free)
    packed = sparse.csr_array(data.takes[data.classes.demand[columns]].T)
    opens = sparse.csr_array((-data.gives, (np.arange(rows), data.row_bin)), shape=(rows, bins))
    limited = np.flatnonzero(np.isfinite(limit))
    of_tier = sparse.csr_array((limited[:, None] == data.tier[None, :]).astype(np.float64))
    one_of = sparse.csr_array(
        (np.ones(len(columns)), (at, np.arange(len(columns)))), shape=(len(owners), len(columns))
    )
    no_bins = sparse.csr_array((len(owners), bins))
    no_columns = sparse.csr_array((len(limited), len(columns)))
    classes = sparse.hstack([one_of, no_bins])
    blocks = [sparse.hstack([packed, opens]), sparse.hstack([no_columns, of_tier])]
    counts = data.classes.count[owners]
    rhs = [free, limit[limited]]
    weights = data.classes.weight[data.classes.owner[columns]]
    return Program(
        objective=np.concatenate(
            [np.zeros(len(columns)), data.price] if data.cost else [-weights, np.zeros(bins)]
        ),
        upper=sparse.csr_array(sparse.vstack(blocks if data.cost else [*blocks, classes])),
        upper_rhs=np.concatenate(rhs if data.cost else [*rhs, counts]),
        equal=sparse.csr_array(classes) if data.cost else None,
        equal_rhs=counts if data.cost else None,
    )


def dual_bound(data: ProgramData, prices: Floats) -> float:
    """Return the Lagrangian bound of packing row prices, scaled first to be dual feasible."""
    prices = prices.copy()
    worth = np.zeros(len(data.tier))
    np.add.at(worth, data.row_bin, prices * data.gives)
    floor = data.price if data.cost else np.zeros(len(data.tier))
    unlimited = np.isinf(data.limit)[data.tier]
    over = unlimited & (worth > floor)
    ratio = np.where(over, floor / np.where(worth > 0, worth, 1.0), 1.0)
    prices *= ratio[data.row_bin]
    worth *= ratio
    rent = np.zeros(len(data.limit))
    np.maximum.at(rent, data.tier, np.where(unlimited, 0.0, worth - floor))
    held = float(np.where(rent > 0, rent * np.where(np.isinf(data.limit), 0, data.limit), 0).sum())
    gained = float(data.classes.count @ best_values(data, column_values(data, prices)))
    total = gained + held + float(data.free @ prices)
    return 0.0 - total if data.cost else total  # -total may be -0.0
