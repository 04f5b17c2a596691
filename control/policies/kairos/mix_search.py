"""Kairos+: evaluate mixes by falling bound until none left can be better.

Algorithm 1 of Kairos (HPDC 2023): take the mix with the highest bound among those left, evaluate
it, and on an improvement drop every mix whose bound is below the best value; after each evaluation
drop every mix that is contained in the one evaluated, since more devices never carry less. With
the fluid bound, which no distribution of queries exceeds, the result is the best of all mixes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from control.policies.kairos.device_mixes import Counts, Floats

Mix = tuple[int, ...]
Evaluate = Callable[[Mix], float]  # a mix -> queries/s that it carries
Neighbours = Callable[[Mix], Sequence[Mix]]


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The best mix, what it carries, and every mix that was evaluated, in order."""

    counts: Mix
    qps: float
    evaluated: tuple[tuple[Mix, float], ...]


def search(counts: Counts, bounds: Floats, evaluate: Evaluate) -> SearchOutcome:
    """The best of the mixes [mixes, types] by ``evaluate``; ties keep the one found first."""
    order = np.argsort(-bounds, kind="stable")
    left = np.ones(len(counts), dtype=bool)
    best: tuple[Mix, float] = ((), -np.inf)
    evaluated: list[tuple[Mix, float]] = []
    for row in order:
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


def climb(start: Sequence[Mix], neighbours: Neighbours, evaluate: Evaluate) -> SearchOutcome:
    """Local search from each start: move to the best neighbour while that is an improvement."""
    known: dict[Mix, float] = {}

    def value(mix: Mix) -> float:
        if mix not in known:
            known[mix] = evaluate(mix)
        return known[mix]

    tops: list[Mix] = []
    for mix in start:
        here = mix
        while True:
            around = max((here, *neighbours(here)), key=value)
            if value(around) <= value(here):
                break
            here = around
        tops.append(here)
    best = max(tops, key=value)
    return SearchOutcome(best, value(best), tuple(known.items()))
