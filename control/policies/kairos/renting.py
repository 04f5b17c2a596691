"""Decide which devices to rent and to release while a pipeline runs.

The mix follows the demand. It is the cheapest one whose fluid bound is at least the demand times
the headroom and which carries the demand with queueing (``queueing.py``): few devices carry a
smaller part of their bound than many. If the budget does not suffice, it is the mix with the
highest bound. This choice takes force at once.

Candidate mixes are played meanwhile (``mix_play.py``). The rate that a mix carried in the play then
replaces its estimate and its bound, and must be the demand times the headroom. The present mix is
replaced only by one that saves more than ``GAIN`` of its cost or, if neither carries the demand, by
one whose bound, or rate in the play, is higher by ``GAIN`` (K57 of Kairos' claims).

A change rents the devices that fit the budget beside those that run, boot or hand over their work.
If none fits, surplus devices that add least to the bound for their price are released first. The
others are released when the new ones serve (K53). Throughput is in queries/s, cost and budget in $
per hour.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from control.policies.kairos.device_mixes import CENT
from control.policies.kairos.provisioning import PICK_AMONG, Pool, Ranked, cheapest, rank
from control.policies.kairos.queueing import carried
from control.policies.kairos.throughput_bounds import FluidBound

GAIN = 0.05  # of the cost or the bound, below which a mix is not changed
STEP = 0.01  # demand is rounded up by at most this, to reuse earlier decisions
KEPT = 512  # decisions
LEAST_QPS = 1e-3  # without demand one device waits for the next query

Mix = tuple[int, ...]  # devices by type, in the order of the pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The rented devices. ``asked`` are rented and not released: they run or boot; ``ready`` of
    these serve. ``leaving`` are released and still hand over their work."""

    asked: Mix
    ready: Mix
    leaving: Mix

    @property
    def paid(self) -> Mix:
        """The devices that cost money."""
        return tuple(a + b for a, b in zip(self.asked, self.leaving, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The requirement of a mix: carry ``demand_qps`` times ``headroom`` within ``budget``.

    ``played`` has the rates that mixes of the pool carried in plays (``mix_play.py``). The estimate
    of ``queueing.py`` applies to other mixes and to those with None.
    """

    pool: Pool
    demand_qps: float
    headroom: float
    budget: float
    played: Mapping[Mix, float | None] = field(default_factory=dict)

    @property
    def least_qps(self) -> float:
        """The demand with its headroom."""
        return max(self.demand_qps * self.headroom, LEAST_QPS)

    @property
    def asked_qps(self) -> float:
        """The least bound of a mix, rounded up."""
        return math.exp(math.ceil(math.log(self.least_qps) / STEP) * STEP)

    def carried(self, mix: Mix) -> float:
        """Return the rate that a mix carries with queueing."""
        played = self.played.get(mix)
        return carried_of(self.pool, mix) if played is None else played

    def met(self, mix: Mix, asked_qps: float) -> bool:
        """Return whether a mix carries the demand with its headroom, ``asked_qps``. A conservative
        estimate need not include the headroom."""
        played = self.played.get(mix) is not None
        return self.carried(mix) * (1.0 if played else self.headroom) >= asked_qps

    def affords(self, mix: Mix) -> bool:
        """Return whether a mix has a device, and is within the budget and the limits of types."""
        pool = self.pool
        return any(mix) and mix_price(pool, mix) <= self.budget + CENT and _allowed(pool, mix)


def wanted_mix(need: Need, present: Mix) -> Mix:
    """Return the mix for a need; ``present`` has the devices that run or boot.

    Raises ``PlanError`` if the budget affords no device.
    """
    pool, asked = need.pool, need.least_qps
    found = _cheapest_first(need).found
    if found is None:
        return _best_within(need, present)
    carries = bound_of(pool, present) >= asked and need.met(present, asked)
    stays = carries and need.affords(present)
    saves = mix_price(pool, found) < (1 - GAIN) * mix_price(pool, present)
    return present if stays and not saves else found


def worth_playing(need: Need, present: Mix) -> tuple[Mix, ...]:
    """Return the mixes whose plays would refine ``wanted_mix``, in order, each once.

    These are the wanted mix and cheaper ones. If the budget does not suffice, they also include its
    best mixes and the present one. Raises as ``wanted_mix`` does.
    """
    walk = _cheapest_first(need)
    cheap = walk.mixes[:PICK_AMONG]
    if walk.found is not None:
        return tuple(cheap)
    kept = [present] if need.affords(present) else []
    return tuple(dict.fromkeys([*cheap, *_best(need.pool, need.budget), *kept]))


def next_mix(pool: Pool, budget: float, fleet: Fleet, wanted: Mix) -> Mix:
    """Return the mix to ask for now on the way to ``wanted``, which the budget affords.

    The step costs no more than the budget together with the devices that leave, unless ``fleet``
    exceeds the budget already: then it only releases.
    """
    missing, surplus = _less(wanted, fleet.asked), _less(fleet.asked, wanted)
    room = budget + CENT - mix_price(pool, fleet.paid)
    if room < 0:
        return _released(pool, fleet.asked, surplus, -room - mix_price(pool, fleet.leaving))
    if any(missing):
        rented = _fitting(pool, missing, room)
        if any(rented):
            return tuple(a + b for a, b in zip(fleet.asked, rented, strict=True))
        if any(fleet.leaving):
            return fleet.asked  # their cost ends soon
        price = min(t.price for t, n in zip(pool.types, missing, strict=True) if n)
        return _released(pool, fleet.asked, surplus, price - room)
    if all(r >= w for r, w in zip(fleet.ready, wanted, strict=True)):
        return wanted
    return fleet.asked


def mix_price(pool: Pool, mix: Sequence[int]) -> float:
    """Return the price of a mix."""
    return sum(n * each.price for n, each in zip(mix, pool.types, strict=True))


class _Walk(NamedTuple):
    """``mixes`` within the budget by growing cost and bound, from the cheapest with a sufficient
    bound to ``found``, the first that carries the demand, or None."""

    mixes: list[Mix]
    found: Mix | None


def _cheapest_first(need: Need) -> _Walk:
    asked, walk = need.asked_qps, list[Mix]()
    least_qps = asked
    while (next_ := _cheapest(need.pool, least_qps)) and next_.cost <= need.budget + CENT:
        walk.append(next_.counts)
        if need.met(next_.counts, asked):
            return _Walk(walk, next_.counts)
        least_qps = max(least_qps, next_.bound_qps) * (1 + STEP)
    return _Walk(walk, None)


def _best_within(need: Need, present: Mix) -> Mix:
    """Return the mix within the budget with the highest bound; once the best are played, the one of
    them that carries most."""
    best = _best(need.pool, need.budget)
    stays = need.affords(present)
    if all(mix in need.played for mix in (*best, *([present] if stays else []))):
        found, worth = max(best, key=need.carried), need.carried
    else:
        found, worth = best[0], partial(bound_of, need.pool)
    return present if stays and worth(present) * (1 + GAIN) >= worth(found) else found


@lru_cache(KEPT)
def _cheapest(pool: Pool, bound_qps: float) -> Ranked | None:
    return cheapest(pool, bound_qps)


@lru_cache(KEPT)
def _best(pool: Pool, budget: float) -> tuple[Mix, ...]:
    return tuple(each.counts for each in rank(pool, budget).best)


@lru_cache(KEPT)
def bound_of(pool: Pool, mix: Mix) -> float:
    """Return the fluid bound of a mix."""
    return FluidBound(pool.times).exact(np.array(mix, dtype=float))


@lru_cache(KEPT)
def carried_of(pool: Pool, mix: Mix) -> float:
    """Return the estimated throughput of a mix with queueing."""
    return carried(pool.times, mix)


def _fitting(pool: Pool, missing: Mix, room: float) -> Mix:
    """Return the missing devices whose prices fit, expensive ones first."""
    found = [0] * len(missing)
    for at in sorted(range(len(missing)), key=lambda at: -pool.types[at].price):
        price = pool.types[at].price
        afford = missing[at] if price <= 0 else math.floor(room / price)
        found[at] = max(0, min(missing[at], afford))
        room -= found[at] * price
    return tuple(found)


def _released(pool: Pool, asked: Mix, surplus: Mix, price: float) -> Mix:
    """Return the mix without the surplus devices that add least to the bound for their price;
    enough of them are removed to free ``price``."""
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
