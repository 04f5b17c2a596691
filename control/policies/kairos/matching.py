"""Match waiting queries to devices at minimum cost: the query distribution of Kairos.

At a decision, with query i waiting for W_i and device j busy for R_j more seconds (Kairos, HPDC
2023, Eq. 1 to 8):

    L_ij    = R_j + t_ij                      t_ij: predicted latency of query i on device j
    cost_ij = C_j L_ij - omega W_i            if i makes its deadline on j, less a guard (1 - xi) T
            = 10 T                            otherwise
    minimise sum_ij cost_ij P_ij,  each query and each device at most once, min(m, n) pairs

The paper has omega = 0 and considers the 2 n oldest queries. With m > n, a matching of least cost
then starves large queries, which miss their deadlines. An urgency omega > 0 prefers queries that
have waited longer; considering only the n oldest leaves none of them behind. ``device_costs``
replaces C_j by the marginal throughput of the device's type in the mix, the dual of the fluid
bound, so that a type that limits the mix is expensive whatever its speed on the largest query. The
penalty is 10 T, not C_j 10 T as in Eq. 8, which would not dominate on cheap devices. The deadline
check may use a higher quantile than t_ij.

If only one type of a mix serves the largest queries in time, a long query on its last free device
makes the next large one late. Where class k, of which lambda_k queries come per second, may wait
for T - t_k, a device that is busy for x seconds, with none of its type free before, makes late on
average

    B(x) = sum_k lambda_k max(0, x - (T - t_k))      over the classes k that no other type serves

queries. A query that is late costs 10 T, so 10 T B(x) is added to the cost of the pair
(``Blocking``), up to 10 T. The rates are those at the fluid bound, like the marginal throughputs. B
is 0 if the longest query takes no longer than the largest ones may wait.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

PENALTY = 10.0  # times the SLO
LEAST_COST = 0.1
# On large unprepared matrices the solver's augmenting paths are up to ten times longer, because
# devices of one type cost nearly the same. From ``LARGE`` rows on the matrix is prepared.
LARGE = 64
CROWDED = 0.8  # queries per device from which columns are reduced

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
Pairs = tuple[np.ndarray[tuple[int], np.dtype[np.intp]], np.ndarray[tuple[int], np.dtype[np.intp]]]


def device_costs(speeds: Vector, marginal: Vector) -> Vector:
    """Return the cost of a second of each type, relative to the most expensive.

    This is the marginal throughput of the type, but at least ``LEAST_COST`` times its speed, so
    that types with idle devices still differ. ``speeds`` are C_j by type, ``marginal`` the duals;
    if all duals are 0, the speeds are the costs.
    """
    top = float(marginal.max(initial=0.0))
    if top <= 0:
        return speeds
    found: Vector = np.maximum(marginal / top, LEAST_COST * speeds)
    return found


@dataclass(frozen=True, slots=True)
class Blocking:
    """B of one type, linear between ``busy_s`` and 0 before; ``devices`` are those of the type."""

    devices: tuple[int, ...]
    busy_s: Vector
    late: Vector

    def free(self, remaining_s: Sequence[float], lead_s: float) -> Iterator[tuple[int, float]]:
        """Yield the devices that are free within the lead, each with the seconds until another
        device of the type is free. ``remaining_s`` are by device."""
        for j in self.devices:
            if remaining_s[j] <= lead_s:
                others = [remaining_s[k] for k in self.devices if k != j]
                yield j, min(others, default=np.inf)

    def add(self, cost: Vector, slo_s: float, busy_s: Vector) -> Vector:
        """Return the cost of queries on a device that keep the type busy for these seconds."""
        most = PENALTY * slo_s
        found: Vector = np.minimum(cost + most * np.interp(busy_s, self.busy_s, self.late), most)
        return found


@dataclass(frozen=True, slots=True)
class MatchingWeights:
    """Parameters of the cost: the SLO in seconds, the guard 1 - xi and the urgency omega."""

    slo_s: float
    guard: float = 0.02
    urgency: float = 1.0


def costs_of(
    weights: MatchingWeights, finish_s: Matrix, worst_s: Matrix, slack_s: Vector, wait_s: Vector,
    coefficients: Vector,
) -> Matrix:  # fmt: skip
    """Return the cost of every pair, [queries, devices].

    ``finish_s`` is L_ij, ``worst_s`` the quantile of L_ij for the deadline check, ``slack_s`` the
    seconds until each query's deadline and ``coefficients`` C_j.
    """
    cost: Matrix = finish_s * coefficients
    if weights.urgency:
        cost -= (weights.urgency * wait_s)[:, None]
    late = worst_s > (slack_s - weights.guard * weights.slo_s)[:, None]
    np.putmask(cost, late, PENALTY * weights.slo_s)
    return cost


def matched(cost: Matrix) -> list[tuple[int, int]]:
    """Return the min(m, n) pairs (query, device) of least total cost, sorted by query.

    One row or one column needs no solver; ties go to the lowest index.
    """
    rows, columns = cost.shape
    if rows == 1:
        return [(0, int(cost.argmin()))]
    if columns == 1:
        return [(int(cost.argmin()), 0)]
    large = LARGE <= rows <= columns
    queries, devices = _matched_large(cost) if large else _solved(cost)
    return sorted(zip(queries.tolist(), devices.tolist(), strict=True))


def _matched_large(cost: Matrix) -> Pairs:
    """Match as ``matched`` does, for no more queries than devices.

    Rows are in descending order of their regret, mean less least cost: those with little choice
    come first, so that later ones seldom displace them. A query that costs the same on every
    device, such as one that is late everywhere, takes a device left over by the others, because it
    would only lengthen the solver's augmenting paths.
    """
    least = cost.min(axis=1)
    differs = cost.max(axis=1) > least
    indifferent = np.flatnonzero(~differs)
    order = np.argsort(least - cost.mean(axis=1), kind="stable")
    order = order[differs[order]]
    crowded = len(order) >= CROWDED * cost.shape[1]
    # ``cost[order]`` is a copy, which ``_padded`` may change.
    queries, devices = _padded(cost[order]) if crowded else _solved(cost[order])
    free = np.ones(cost.shape[1], dtype=np.bool_)
    free[devices] = False
    left = np.flatnonzero(free)[: len(indifferent)]
    return np.concatenate([order[queries], indifferent]), np.concatenate([devices, left])


def _padded(cost: Matrix) -> Pairs:
    """Solve the matrix padded with rows of zeros to a square. Every column is then taken, so that
    subtracting a constant per column, here its least cost, changes no optimum. ``cost`` is
    overwritten: allocating another large matrix would take longer than the arithmetic."""
    rows, columns = cost.shape
    least = cost.min(axis=0)
    cost -= least
    zeros = columns - rows
    if zeros:
        cost = np.concatenate([np.broadcast_to(-least, (zeros, columns)), cost])
    queries, devices = _solved(cost)
    real = queries >= zeros
    return queries[real] - zeros, devices[real]


def _solved(cost: Matrix) -> Pairs:
    # Imported late: SciPy takes half a second to import, and most importers never match.
    from scipy.optimize import linear_sum_assignment

    queries, devices = linear_sum_assignment(cost)
    return queries, devices
