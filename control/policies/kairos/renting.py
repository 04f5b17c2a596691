"""Decide which devices to rent and to release while a pipeline runs.

The mix follows the demand: the cheapest one whose fluid bound is the demand times the headroom, or
the one with the highest bound within the budget where the budget does not reach. A mix that
carries the demand is given up only for one that saves more than ``GAIN`` of its cost. The demand is
the highest rate of the last ``MEMORY_S`` seconds, so that devices are rented at once and released
late.

A change rents first and releases when the new devices are ready, if both together stay within the
budget; else it releases first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.policies.kairos.device_mixes import CENT
from control.policies.kairos.provisioning import Pool, cheapest, rank
from control.policies.kairos.throughput_bounds import FluidBound

GAIN = 0.05  # of the cost, below which a mix is not changed (K57 of Kairos' claims)
MEMORY_S = 30.0
LEAST_QPS = 1e-3  # without demand one device waits for the next query

Mix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Devices to rent and to release now, by type."""

    rent: Mix
    release: Mix


def wanted_mix(pool: Pool, demand_qps: float, headroom: float, budget: float, present: Mix) -> Mix:
    """Return the mix for a demand, in counts by type; ``present`` has what runs or boots."""
    asked = max(demand_qps * headroom, LEAST_QPS)
    most = budget + CENT
    carries = any(present) and _bound(pool, present) >= asked and _cost(pool, present) <= most
    found = cheapest(pool, asked)
    if found is None or found.cost > most:
        found = rank(pool, budget, top=1).best[0]
        return present if carries else found.counts
    if carries and found.cost > (1 - GAIN) * _cost(pool, present):
        return present
    return found.counts


def change_of(pool: Pool, budget: float, present: Mix, ready: Mix, wanted: Mix) -> Change:
    """Return what to do now on the way from ``present`` to ``wanted``.

    ``ready`` are the devices of ``present`` that serve; the others boot.
    """
    none: Mix = (0,) * len(present)
    missing = _less(wanted, present)
    surplus = _less(present, wanted)
    if any(missing):
        together = tuple(a + b for a, b in zip(present, missing, strict=True))
        if not any(surplus) or _cost(pool, together) <= budget + CENT:
            return Change(missing, none)
        return Change(none, surplus)
    if any(surplus) and all(r >= w for r, w in zip(ready, wanted, strict=True)):
        return Change(none, surplus)
    return Change(none, none)


def _less(some: Mix, others: Mix) -> Mix:
    return tuple(max(a - b, 0) for a, b in zip(some, others, strict=True))


def _cost(pool: Pool, mix: Sequence[int]) -> float:
    return sum(n * each.price for n, each in zip(mix, pool.types, strict=True))


def _bound(pool: Pool, mix: Mix) -> float:
    return FluidBound(pool.times).exact(np.array(mix, dtype=float))
