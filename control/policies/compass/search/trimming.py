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
Path = tuple[Sequence[int], float]  # stages from the root to a leaf, and the seconds of transfers

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


def trimmed(stages: Sequence[Occupied], paths: Sequence[Path], slo_s: float) -> tuple[Trimmed, ...]:
    """Return the Pareto-optimal share vectors within the SLO, by demand per tier.

    ``paths`` are those from the root to each leaf; the longest is the plan's latency. Returns () if
    whole GPUs miss the SLO or a model does not fit its GPU.
    """
    if any(stage.memory > 1 for stage in stages if not stage.free):
        return ()
    vectors = _vectors(tuple((0,) if s.free else SEATS if s.batched else SHARES for s in stages))
    occupied = vectors.copy()
    for index, stage in enumerate(stages):
        if not stage.free:
            occupied[:, index] = np.maximum(occupied[:, index], ceil(QUARTERS * stage.memory))
    latency = _latency(vectors, stages, paths)
    within = np.flatnonzero(latency <= slo_s)
    demands = _by_tier(occupied[within], stages)
    return tuple(
        Trimmed(tuple(vectors[at].tolist()), tuple(occupied[at].tolist()), float(latency[at]))
        for at in within[_minimal(demands, latency[within])]
    )


def _latency(vectors: Ints, stages: Sequence[Occupied], paths: Sequence[Path]) -> Floats:
    """Return the longest path's seconds at each vector of shares."""
    seconds = [
        stage.seconds * stretch(vectors[:, index], stage.batched)
        for index, stage in enumerate(stages)
    ]
    longest: Floats = np.full(len(vectors), -np.inf)
    for path, transfers_s in paths:
        path_s = np.full(len(vectors), transfers_s)
        for index in path:
            path_s += seconds[index]
        longest = np.maximum(longest, path_s)
    return longest


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
    ordered = demands[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    kept = order[first]
    found = demands[kept]
    below = np.all(found[None, :, :] <= found[:, None, :], axis=2)
    strictly = below & np.any(found[None, :, :] < found[:, None, :], axis=2)
    minimal: Ints = kept[~strictly.any(axis=1)]
    return minimal
