"""Trim a compliant plan's GPU shares: enumerate the Pareto-optimal vectors of shares.

A stage on a share of a GPU takes ``t / share``; a batched stage, whose share is a seat in a batch
of 1 / share, ``t (1 + 0.12 (1 / share - 1))`` (Compass, Appendix D.2); a batched share is never
0.75. A stage occupies the larger of its share and its memory's part of the GPU, in quarters, so
that stages on one GPU also fit its memory. There are at most 4^stages vectors, so enumeration
replaces the paper's search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil

import numpy as np
from numpy.typing import NDArray

from control.policies.compass.packing import QUARTERS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARES = (1, 2, 3, 4)  # quarters
SEATS = (1, 2, 4)  # quarters of a batched stage
BATCHING = 0.12  # extra time for each further seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupied:
    """A stage's demand on a GPU of its tier: seconds on the whole GPU, memory as a fraction of it.

    ``free`` stages (CPU, or the session's own tier) have no share.
    """

    seconds: float
    tier: str
    batched: bool = False
    memory: float = 0.0
    free: bool = False


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Shares and occupied quarters per stage (shares of free stages: 0), and the plan's latency."""

    shares: tuple[int, ...]
    occupied: tuple[int, ...]
    latency_s: float


def stretch(quarters: Ints, batched: bool) -> Floats:
    """Return the slowdown of a stage on a share; 1 for a share of 0 (free) or a whole GPU."""
    part = np.where(quarters == 0, QUARTERS, quarters) / QUARTERS
    return 1 + BATCHING * (1 / part - 1) if batched else 1 / part


@lru_cache(maxsize=256)
def _vectors(options: tuple[tuple[int, ...], ...]) -> Ints:
    return np.array(list(product(*options)), dtype=np.int64).reshape(-1, len(options))


def trimmed(stages: Sequence[Occupied], rest_s: float, slo_s: float) -> tuple[Trimmed, ...]:
    """Return the Pareto-optimal share vectors within the SLO, by demand per tier.

    ``rest_s`` is the plan's time in transfers. Returns () if whole GPUs miss the SLO or a model
    does not fit its GPU.
    """
    if any(stage.memory > 1 for stage in stages if not stage.free):
        return ()
    vectors = _vectors(tuple((0,) if s.free else SEATS if s.batched else SHARES for s in stages))
    latency = np.full(len(vectors), rest_s)
    occupied = vectors.copy()
    for index, stage in enumerate(stages):
        latency += stage.seconds * stretch(vectors[:, index], stage.batched)
        if not stage.free:
            occupied[:, index] = np.maximum(occupied[:, index], ceil(QUARTERS * stage.memory))
    within = np.flatnonzero(latency <= slo_s)
    demands = _by_tier(occupied[within], stages)
    return tuple(
        Trimmed(tuple(vectors[at].tolist()), tuple(occupied[at].tolist()), float(latency[at]))
        for at in within[_minimal(demands, latency[within])]
    )


def _by_tier(occupied: Ints, stages: Sequence[Occupied]) -> Ints:
    tiers = sorted({stage.tier for stage in stages if not stage.free})
    columns = [
        occupied[:, [i for i, s in enumerate(stages) if s.tier == tier and not s.free]].sum(axis=1)
        for tier in tiers
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(occupied), 0), dtype=np.int64)


def _minimal(demands: Ints, latency: Floats) -> Ints:
    """Return the fastest vector of every Pareto-optimal demand."""
    order = np.lexsort((latency, *demands.T[::-1]))
    _, first = np.unique(demands[order], axis=0, return_index=True)
    kept = order[np.sort(first)]
    found = demands[kept]
    below = np.all(found[None, :, :] <= found[:, None, :], axis=2)
    strictly = below & np.any(found[None, :, :] < found[:, None, :], axis=2)
    minimal: Ints = kept[~strictly.any(axis=1)]
    return minimal
