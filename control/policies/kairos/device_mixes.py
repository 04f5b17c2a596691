"""Enumerate the mixes of device types that a budget affords.

A mix is a row of counts, one per type. Costs are $ per hour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.problem.problem import PlanError

MOST_MIXES = 2_000_000
MOST_COUNTS = 64_000_000  # of all mixes: half a gigabyte
CENT = 1e-9  # above the rounding errors of sums of decimal prices

Counts = np.ndarray[tuple[int, int], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
_Ints = np.ndarray[tuple[int], np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class PricedType:
    """A device type that can be rented: its price in $ per hour and its limit (None: no limit)."""

    name: str
    price: float
    most: int | None = None


def mixes_within(
    types: Sequence[PricedType], budget: float, most_mixes: int = MOST_MIXES
) -> Counts:
    """Return every mix of at least one device within ``budget``, in lexicographic order.

    Raises ``PlanError`` if the budget is below the price of the cheapest device, if a free type
    has no limit, or if the budget affords more than ``most_mixes`` mixes or ``MOST_COUNTS`` counts.
    """
    _check(types, budget)
    most_mixes = min(most_mixes, MOST_COUNTS // len(types))
    left = np.full(1, budget + CENT)
    # By type: its count in each mix of the types so far, and the row of that mix without the type.
    levels: list[tuple[_Ints, _Ints]] = []
    for each in types:
        afford = _afford(each, left)
        total = int((afford + 1).sum())
        if total > most_mixes:
            raise PlanError(
                f"a budget of {budget:g} $/h affords more than {most_mixes:,} mixes of "
                f"{len(types)} types; lower the budget, or limit the types with `most`"
            )
        rows = np.repeat(np.arange(len(left)), afford + 1)
        first = np.cumsum(afford + 1) - (afford + 1)
        more = np.arange(total) - first[rows]
        left = left[rows] - more * each.price
        levels.append((more.astype(np.int32), rows.astype(np.int32)))
    return _joined(levels)[1:]  # without the empty mix


def _joined(levels: Sequence[tuple[_Ints, _Ints]]) -> Counts:
    """Return the mixes of the last level in rows."""
    mixes = len(levels[-1][0])
    counts = np.empty((mixes, len(levels)), dtype=np.int64)
    at: _Ints = np.arange(mixes, dtype=np.int32)
    for column in reversed(range(len(levels))):
        more, rows = levels[column]
        counts[:, column] = more[at]
        at = rows[at]
    return counts


def costs(types: Sequence[PricedType], counts: Counts) -> Floats:
    """Return the cost of each mix in $ per hour."""
    prices = np.array([each.price for each in types])
    found: Floats = counts @ prices
    return found


def _afford(each: PricedType, left: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if each.price == 0:
        assert each.most is not None
        return np.full(len(left), each.most, dtype=np.int64)
    found = np.floor(left / each.price).astype(np.int64)
    return found if each.most is None else np.minimum(found, each.most)


def _check(types: Sequence[PricedType], budget: float) -> None:
    names = [each.name for each in types]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"type {name!r} is named twice; remove one of the two")
    if not math.isfinite(budget):
        raise PlanError(f"a budget of {budget:g} $/h is none; give a number of $ per hour")
    free = [each.name for each in types if each.price == 0 and each.most is None]
    if free:
        raise PlanError(f"type {free[0]!r} costs nothing and has no limit; say how many with most")
    usable = [each for each in types if each.most != 0]
    if not usable:
        raise PlanError("no device type may be rented; raise cluster.types.<type>.most above 0")
    cheapest = min(usable, key=lambda each: each.price)
    if cheapest.price > budget + CENT:
        raise PlanError(
            f"the budget of {budget:g} $/h is below the cheapest device, {cheapest.name} at "
            f"{cheapest.price:g} $/h; raise the budget to {cheapest.price:g}"
        )
