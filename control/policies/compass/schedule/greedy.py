"""Greedy schedules: take pairs of session and plan in a given order as long as they fit.

The paper's order is decreasing ``weight / resource`` (Compass, Section 4.3). It leaves *resource*
open; here it is the sum over tiers of GPUs demanded / GPUs available, or $ an hour if a tier has no
limit and for the objective cost. Packing is exact; pairs that do not fit are skipped. GPUs only
fill, so items equal to some that did not fit are not tried again.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from control.policies.compass.packing import QUARTERS, gpus
from control.policies.compass.schedule.instance import (
    COST,
    Bin,
    Instance,
    PlanItem,
    PlanOption,
    demand,
)

Pair = tuple[int, int]  # session, plan


def dollars(instance: Instance, choice: PlanOption) -> float:
    """Return $ an hour of a plan's shares of GPUs."""
    return sum(instance.tiers[i.tier].price * i.quarters / QUARTERS for i in choice.items)


def resource(instance: Instance, choice: PlanOption) -> float:
    """Return the paper's "resource" of a plan: the sum of its shares of the tiers."""
    total = 0.0
    for item in choice.items:
        there = instance.tiers[item.tier].gpus
        if there is None:
            return dollars(instance, choice)
        total += item.quarters / QUARTERS / there if there else float("inf")
    return total


def greedy_pairs(instance: Instance, objective: str) -> Iterator[Pair]:
    """Yield all pairs by decreasing weight / resource ($ an hour for the objective cost)."""
    measure = dollars if objective == COST else resource
    known: dict[int, float] = {}  # by identity: sessions may share their plans
    ranked = []
    for i, session in enumerate(instance.sessions):
        for j, plan in enumerate(session.plans):
            if (taken := known.get(id(plan))) is None:
                taken = known[id(plan)] = measure(instance, plan)
            ranked.append((-session.weight / taken if taken else -float("inf"), i, j))
    ranked.sort()
    for _, i, j in ranked:
        yield i, j


def cheapest_pairs(instance: Instance, _: str) -> Iterator[Pair]:
    """Yield every session in order with its plan of least $ an hour."""
    for i, session in enumerate(instance.sessions):
        if session.plans:
            costs = [dollars(instance, plan) for plan in session.plans]
            yield i, int(np.argmin(costs))


def first_fit(instance: Instance, pairs: Iterable[Pair]) -> tuple[int | None, ...]:
    """Take pairs in order, skip those that do not fit; return each session's plan or None."""
    plans: list[int | None] = [None] * len(instance.sessions)
    filled = _Filled(instance)
    refused: set[tuple[PlanItem, ...]] = set()
    for session, plan in pairs:
        items = instance.sessions[session].plans[plan].items
        if plans[session] is not None or items in refused:
            continue
        if filled.take(items):
            plans[session] = plan
        else:
            refused.add(items)
    return tuple(plans)


class _Filled:
    """Occupancy of the bins by the plans taken so far."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._sizes: dict[Bin, list[int]] = {}
        self._used = dict.fromkeys(instance.tiers, 0)

    def take(self, items: tuple[PlanItem, ...]) -> bool:
        """Take a plan's items if they fit; return whether they fit."""
        added = {bin: self._with(bin, sizes) for bin, sizes in demand(items)}
        used = dict(self._used)
        for bin, total in added.items():
            used[bin[0]] += self._gpus(bin, total) - self._gpus(bin, self._sizes.get(bin, [0] * 4))
        for tier, count in used.items():
            limit = self._instance.tiers[tier].gpus
            if limit is not None and count > limit:
                return False
        self._sizes.update(added)
        self._used = used
        return True

    def _with(self, bin: Bin, sizes: tuple[int, ...]) -> list[int]:
        return [a + b for a, b in zip(self._sizes.get(bin, [0] * 4), sizes, strict=True)]

    def _gpus(self, bin: Bin, sizes: list[int]) -> int:
        return gpus(sizes, self._instance.free.get(bin, (0, 0, 0)))
