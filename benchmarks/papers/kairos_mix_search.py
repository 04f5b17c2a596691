"""Kairos+: evaluate mixes by decreasing bound until no remaining mix can be better.

Algorithm 1 of Kairos (HPDC 2023): evaluate the remaining mix with the highest bound, of equal
bounds the cheapest, so that a dearer one that carries no more does not win; on an
improvement, prune every mix whose bound is below the best value; after each evaluation, prune every
mix contained in the evaluated one, since more devices never carry less. With the fluid bound, which
no distribution of queries exceeds, the result is the optimal mix.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from control.policies.kairos.device_mixes import Counts, Floats
from control.policies.kairos.provisioning import ordered

Mix = tuple[int, ...]
Evaluate = Callable[[Mix], float]  # a mix -> its throughput in queries/s


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The best mix, its throughput in queries/s, and the evaluated mixes in order."""

    counts: Mix
    qps: float
    evaluated: tuple[tuple[Mix, float], ...]


def search(counts: Counts, bounds: Floats, prices: Floats, evaluate: Evaluate) -> SearchOutcome:
    """Return the best of the mixes [mixes, types] by ``evaluate``; the first one wins ties.

    ``bounds`` are in queries/s and ``prices`` in $ per hour, one each by mix.
    """
    left = np.ones(len(counts), dtype=bool)
    best: tuple[Mix, float] = ((), -np.inf)
    evaluated: list[tuple[Mix, float]] = []
    for row in ordered(bounds, prices):
        if not left[row]:
            continue
        mix = tuple(int(n) for n in counts[row])
        qps = evaluate(mix)
        evaluated.append((mix, qps))
        left &= ~(counts <= counts[row]).all(axis=1)
        if qps > best[1]:
            best = mix, qps
            left &= bounds >= qps
    return SearchOutcome(*best, tuple(evaluated))
