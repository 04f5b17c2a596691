"""Decide which devices to rent and to release while a pipeline runs.

The mix follows the demand: the cheapest one whose fluid bound is the demand times the headroom and
which carries the demand with its queues (``queueing.py``): few devices carry less of their bound
than many. Where the budget does not reach, it is the one with the highest bound. A mix is given up
only for one that saves more than ``GAIN`` of its cost or, where neither carries the demand, has a
bound higher by more than ``GAIN`` (K57 of Kairos' claims).

A change rents what fits the budget beside the devices that run, boot or hand over their work.
Where nothing fits, those devices go first that add least to the bound for their price. The others
go when the new ones serve (K53). Throughput is in queries/s, cost and budget in $ per hour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from control.policies.kairos.device_mixes import CENT
from control.policies.kairos.provisioning import Pool, Ranked, cheapest, rank
from control.policies.kairos.queueing import carried
from control.policies.kairos.throughput_bounds import FluidBound

GAIN = 0.05  # of the cost or the bound, below which a mix is not changed
STEP = 0.01  # demand is rounded up by a hundredth at most, so that earlier decisions are known
KEPT = 512  # of these
LEAST_QPS = 1e-3  # without demand one device waits for the next query

Mix = tuple[int, ...]  # devices by type, in the order of the pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The rented devices. ``asked`` have been rented and not released: they run or boot. Of these
    ``ready`` serve. ``leaving`` have been released and still hand over their work."""

    asked: Mix
    ready: Mix
    leaving: Mix

    @property
    def paid(self) -> Mix:
        """The devices that cost money."""
        return tuple(a + b for a, b in zip(self.asked, self.leaving, strict=True))


def wanted_mix(pool: Pool, demand_qps: float, headroom: float, budget: float, present: Mix) -> Mix:
    """Return the mix for a demand; ``present`` has what runs or boots.

    Raises ``PlanError`` if the budget affords no device.
    """
    asked = max(demand_qps * headroom, LEAST_QPS)
    most = budget + CENT
    stays = any(present) and cost_of(pool, present) <= most and _allowed(pool, present)
    bound = bound_of(pool, present) if stays else 0.0
    found = _cheapest(pool, math.ceil(math.log(asked) / STEP), headroom)
    if found is None or found.cost > most:
        found = _best(pool, budget)
        return present if stays and bound * (1 + GAIN) >= found.bound_qps else found.counts
    carries = bound >= asked and carried_of(pool, present) * headroom >= asked
    if carries and found.cost > (1 - GAIN) * cost_of(pool, present):
        return present
    return found.counts


def next_step(pool: Pool, budget: float, fleet: Fleet, wanted: Mix) -> Mix:
    """Return the mix to ask for now on the way to ``wanted``, which the budget affords.

    The step costs no more than the budget together with the devices that leave, unless ``fleet``
    exceeds the budget already: then it only releases.
    """
    missing, surplus = _less(wanted, fleet.asked), _less(fleet.asked, wanted)
    room = budget + CENT - cost_of(pool, fleet.paid)
    if room < 0:
        return _released(pool, fleet.asked, surplus, -room - cost_of(pool, fleet.leaving))
    if any(missing):
        rented = _fitting(pool, missing, room)
        if any(rented):
            return tuple(a + b for a, b in zip(fleet.asked, rented, strict=True))
        if any(fleet.leaving):
            return fleet.asked  # their price is free soon
        price = min(t.price for t, n in zip(pool.types, missing, strict=True) if n)
        return _released(pool, fleet.asked, surplus, price - room)
    if all(r >= w for r, w in zip(fleet.ready, wanted, strict=True)):
        return wanted
    return fleet.asked


def cost_of(pool: Pool, mix: Sequence[int]) -> float:
    """Return the price of a mix."""
    return sum(n * each.price for n, each in zip(mix, pool.types, strict=True))


@lru_cache(KEPT)
def _cheapest(pool: Pool, steps: int, headroom: float) -> Ranked | None:
    """Return the first of the cheapest mixes by growing bound that carries the demand."""
    asked = math.exp(steps * STEP)
    found = cheapest(pool, asked)
    while found is not None and carried_of(pool, found.counts) * headroom < asked:
        found = cheapest(pool, found.bound_qps * (1 + STEP))
    return found


@lru_cache(KEPT)
def _best(pool: Pool, budget: float) -> Ranked:
    return rank(pool, budget, top=1).best[0]


@lru_cache(KEPT)
def bound_of(pool: Pool, mix: Mix) -> float:
    """Return the fluid bound of a mix."""
    return FluidBound(pool.times).exact(np.array(mix, dtype=float))


@lru_cache(KEPT)
def carried_of(pool: Pool, mix: Mix) -> float:
    """Return the throughput that a mix is estimated to carry with its queues."""
    return carried(pool.times, mix)


def _fitting(pool: Pool, missing: Mix, room: float) -> Mix:
    """Return the missing devices whose prices fit, dear ones first."""
    found = [0] * len(missing)
    for at in sorted(range(len(missing)), key=lambda at: -pool.types[at].price):
        price = pool.types[at].price
        afford = missing[at] if price <= 0 else math.floor(room / price)
        found[at] = max(0, min(missing[at], afford))
        room -= found[at] * price
    return tuple(found)


def _released(pool: Pool, asked: Mix, surplus: Mix, price: float) -> Mix:
    """Return the mix without the surplus devices that add least to the bound for their price, as
    many as together cost ``price``."""
    left, spare = list(asked), list(surplus)
    fluid = FluidBound(pool.times)
    while price > 0 and any(spare):
        whole = fluid.exact(np.array(left, dtype=float))

        def loss(at: int, whole: float = whole) -> float:
            without = np.array(left, dtype=float)
            without[at] -= 1
            return (whole - fluid.exact(without)) / max(pool.types[at].price, CENT)

        at = min((at for at, n in enumerate(spare) if n), key=loss)
        left[at] -= 1
        spare[at] -= 1
        price -= pool.types[at].price
    return tuple(left)


def _allowed(pool: Pool, mix: Mix) -> bool:
    return all(each.most is None or n <= each.most for n, each in zip(mix, pool.types, strict=True))


def _less(some: Mix, others: Mix) -> Mix:
    return tuple(max(a - b, 0) for a, b in zip(some, others, strict=True))
