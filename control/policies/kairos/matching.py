"""Match waiting queries to devices at minimum cost: the query distribution of Kairos.

At a decision, with query i waiting for W_i and device j busy for R_j more seconds (Kairos, HPDC
2023, Eq. 1 to 8):

    L_ij    = R_j + t_ij                      t_ij: predicted latency of query i on device j
    cost_ij = C_j L_ij - omega W_i            if i makes its deadline on j, less a guard (1 - xi) T
            = 10 T                            otherwise
    minimise sum_ij cost_ij P_ij,  each query and each device at most once, min(m, n) pairs

The paper has omega = 0; an urgency omega > 0 breaks ties in favour of queries that waited longer
and bounds their wait under overload. The penalty is 10 T, not C_j 10 T as in Eq. 8: on cheap
devices the latter would not dominate. The deadline check may use a higher quantile than t_ij.
"""

from dataclasses import dataclass

import numpy as np

PENALTY = 10.0  # times the SLO

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


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
    cost[late] = PENALTY * weights.slo_s
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
    # Imported late: SciPy takes half a second to import, and most importers never match.
    from scipy.optimize import linear_sum_assignment

    i, j = linear_sum_assignment(cost)
    return list(zip(i.tolist(), j.tolist(), strict=True))
