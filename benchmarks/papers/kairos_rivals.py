"""Searches for the best mix that know no bound, beside Kairos+ (figure 11 of Kairos' paper).

Random, genetic and Bayesian search on capacities that are known, each until it has evaluated the
best mix. As Kairos+ does, they never evaluate a mix that an evaluated one contains. The Bayesian
search is Ribbon's (SC 2021) in kind: expected improvement under a Gaussian process over the counts.
"""

from collections.abc import Callable, Sequence
from math import erf, pi, sqrt

import numpy as np

from control.policies.kairos.device_mixes import Counts, Floats

SEEDS = 20
FIRST = 8  # mixes drawn at random before a search goes by what it knows
PARENTS = 8
LENGTH = 0.3  # of the kernel, in parts of each type's largest count
NOISE = 1e-4

Rows = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
# (rng, counts, rows left, rows evaluated, their values) -> the row to evaluate next
Propose = Callable[[np.random.Generator, Counts, Rows, Sequence[int], Floats], int]


def evaluations(propose: Propose, counts: Counts, values: Floats, seed: int) -> int:
    """Return how many mixes a search evaluates up to the best one, or until none is left.

    ``values`` are the capacities of the mixes ``counts`` [mixes, types].
    """
    rng = np.random.default_rng(seed)
    left = np.ones(len(counts), dtype=bool)
    rows: list[int] = []
    while left.any():
        known: Floats = values[rows]
        row = propose(rng, counts, np.flatnonzero(left), rows, known)
        rows.append(row)
        if values[row] == values.max():
            break
        left &= ~(counts <= counts[row]).all(axis=1)
    return len(rows)


def random(
    rng: np.random.Generator, counts: Counts, left: Rows, rows: Sequence[int], values: Floats
) -> int:
    """Return any mix that is left."""
    return int(rng.choice(left))


def genetic(
    rng: np.random.Generator, counts: Counts, left: Rows, rows: Sequence[int], values: Floats
) -> int:
    """Return the mix that is nearest to a child of two of the best, with one count changed."""
    if len(rows) < FIRST:
        return random(rng, counts, left, rows, values)
    parents = np.argsort(-values, kind="stable")[:PARENTS]
    one, other = counts[np.array(rows)[rng.choice(parents, 2, replace=False)]]
    child = np.where(rng.random(len(one)) < 0.5, one, other)
    child[rng.integers(len(child))] += rng.choice((-1, 1))
    apart = ((counts[left] - child) ** 2).sum(axis=1)
    return int(left[np.argmin(apart)])


def bayesian(
    rng: np.random.Generator, counts: Counts, left: Rows, rows: Sequence[int], values: Floats
) -> int:
    """Return the mix with the largest expected improvement under a Gaussian process."""
    if len(rows) < FIRST:
        return random(rng, counts, left, rows, values)
    places = counts / counts.max(axis=0)
    scale = values.std() or 1.0
    targets = (values - values.mean()) / scale
    inner = _kernel(places[rows], places[rows]) + NOISE * np.eye(len(rows))
    across = _kernel(places[left], places[rows])
    weights = np.linalg.solve(inner, np.column_stack([targets, across.T]))
    mean = across @ weights[:, 0]
    deviation = np.sqrt(np.maximum(1 - (across * weights[:, 1:].T).sum(axis=1), 1e-12))
    z = (mean - targets.max()) / deviation
    below = np.array([0.5 * (1 + erf(x / sqrt(2))) for x in z])
    gain = deviation * (z * below + np.exp(-(z**2) / 2) / sqrt(2 * pi))
    return int(left[np.argmax(gain)])


def _kernel(one: Floats, other: Floats) -> Floats:
    apart = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    found: Floats = np.exp(-apart / (2 * LENGTH**2))
    return found


RIVALS: dict[str, Propose] = {"random": random, "genetic": genetic, "Bayesian": bayesian}
