"""Group sessions with the same weight and the same demands into classes, as arrays.

A *column* is one demand that the sessions of one class may take; a *bin* is a tier and pool whose
items share GPUs. Thousands of sessions make far fewer classes, and the linear program over
classes has the same value as that over sessions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.policies.compass.schedule.instance import (
    Bin,
    Candidate,
    Demand,
    Instance,
    PlanItem,
    demand,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """``members[c]`` are the sessions of class ``c``, ``count[c]`` their number, ``weight[c]``
    the weight of each. Columns are sorted by class: ``owner[j]`` is the class of column ``j``,
    ``start[c]`` its first column, ``demand[j]`` its demand. ``sizes[d, b, s]`` counts the items
    of ``s + 1`` quarters that demand ``d`` has in bin ``b``. ``plan[i]`` maps the demands of
    session ``i`` to its cheapest plan with that demand.
    """

    bins: tuple[Bin, ...]
    sizes: Ints
    members: tuple[tuple[int, ...], ...]
    count: Floats
    weight: Floats
    owner: Ints
    start: Ints
    demand: Ints
    plan: tuple[dict[int, int], ...]

    def session_plan(self, session: int, column: int) -> int:
        """Return the index of a session's cheapest plan with the demand of a column."""
        return self.plan[session][int(self.demand[column])]


def session_classes(instance: Instance) -> Classes:
    """Return the classes of the sessions that have plans."""
    numbers = _Demands()
    plan = tuple(_by_demand(session, numbers) for session in instance.sessions)
    groups: dict[tuple[float, tuple[int, ...]], list[int]] = {}
    for index, session in enumerate(instance.sessions):
        if plan[index]:
            groups.setdefault((session.weight, tuple(sorted(plan[index]))), []).append(index)
    lengths = np.array([len(key[1]) for key in groups], dtype=np.int64)
    bins, counted = numbers.arrays()
    return Classes(
        bins=bins,
        sizes=counted,
        members=tuple(tuple(members) for members in groups.values()),
        count=np.array([len(members) for members in groups.values()], dtype=np.float64),
        weight=np.array([key[0] for key in groups], dtype=np.float64),
        owner=np.repeat(np.arange(len(groups)), lengths),
        start=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)[: len(groups)],
        demand=np.array([each for key in groups for each in key[1]], dtype=np.int64),
        plan=plan,
    )


def _by_demand(session: Candidate, numbers: "_Demands") -> dict[int, int]:
    """Return the demands of a session, each with the index of its cheapest plan."""
    found: dict[int, int] = {}
    for index, choice in enumerate(session.plans):
        number = numbers.of(choice.items)
        other = found.get(number)
        if other is None or choice.cost < session.plans[other].cost:
            found[number] = index
    return found


class _Demands:
    """Distinct demands, numbered in the order of their first appearance."""

    def __init__(self) -> None:
        self._by_items: dict[tuple[PlanItem, ...], int] = {}
        self._numbers: dict[Demand, int] = {}

    def of(self, items: tuple[PlanItem, ...]) -> int:
        found = self._by_items.get(items)
        if found is None:
            found = self._numbers.setdefault(demand(items), len(self._numbers))
            self._by_items[items] = found
        return found

    def arrays(self) -> tuple[tuple[Bin, ...], Ints]:
        """Return all bins, and the sizes of every demand per bin."""
        bins = sorted({bin for each in self._numbers for bin, _ in each})
        at = {bin: index for index, bin in enumerate(bins)}
        counted = np.zeros((len(self._numbers), len(bins), 4), dtype=np.int64)
        for number, each in enumerate(self._numbers):
            for bin, sizes in each:
                counted[number, at[bin]] = sizes
        return tuple(bins), counted


def chosen_plans(
    found: Classes, sessions: int, taken: Sequence[tuple[int, int]]
) -> tuple[int | None, ...]:
    """Return the plan index of every session; None: not served.

    ``taken`` lists (column, number of sessions); the sessions of a class are served in their
    order.
    """
    plans: list[int | None] = [None] * sessions
    next_member = [0] * len(found.members)
    for column, count in taken:
        owner = int(found.owner[column])
        first = next_member[owner]
        for session in found.members[owner][first : first + count]:
            plans[session] = found.session_plan(session, column)
        next_member[owner] = first + count
    return tuple(plans)
