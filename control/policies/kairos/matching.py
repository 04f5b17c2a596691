"""Match waiting queries to devices at least cost: the query distribution of Kairos.

At a decision, with query i waiting for W_i and device j busy for R_j more seconds (Kairos, HPDC
2023, Eq. 1 to 8):

    L_ij    = R_j + t_ij                      t_ij: predicted latency of query i on device j
    cost_ij = C_j L_ij - omega W_i            if i makes its deadline on j, less a guard (1 - xi) T
            = 10 T                            otherwise
    minimise sum_ij cost_ij P_ij,  each query and each device at most once, min(m, n) pairs

The paper has omega = 0; the urgency omega > 0 lets queries that waited longer win ties and bounds
their wait under overload. The penalty is 10 T, not C_j 10 T as Eq. 8 reads: on cheap devices the
latter would not dominate. Whether a query makes its deadline may go by a higher quantile than t_ij.
"""

from dataclasses import dataclass

import numpy as np

PENALTY = 10.0  # times the SLO

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class MatchingWeights:
    """What a cost depends on besides times: the SLO in s, the guard 1 - xi and the urgency."""

    slo_s: float
    guard: float = 0.02
    urgency: float = 1.0


def costs_of(
    weights: MatchingWeights, finish_s: Matrix, worst_s: Matrix, slack_s: Vector, wait_s: Vector,
    coefficients: Vector,
) -> Matrix:  # fmt: skip
    """The cost of every pair, [queries, devices].

    ``finish_s`` is L_ij, ``worst_s`` the same for the deadline's sake, ``slack_s`` what each query
    has until its deadline and ``coefficients`` C_j.
    """
    cost: Matrix = finish_s * coefficients
    if weights.urgency:
        cost -= (weights.urgency * wait_s)[:, None]
    late = worst_s > (slack_s - weights.guard * weights.slo_s)[:, None]
    cost[late] = PENALTY * weights.slo_s
    return cost


def matched(cost: Matrix) -> list[tuple[int, int]]:
    """Pairs (query, device) of least total cost, min(m, n) of them, by growing query.

    One row or one column needs no solver: the first of the cheapest wins.
    """
    rows, columns = cost.shape
    if rows == 1:
        return [(0, int(cost.argmin()))]
    if columns == 1:
        return [(int(cost.argmin()), 0)]
    # Imported late: SciPy takes half a second, and most who load this module match nothing.
    from scipy.optimize import linear_sum_assignment

    i, j = linear_sum_assignment(cost)
    return list(zip(i.tolist(), j.tolist(), strict=True))
