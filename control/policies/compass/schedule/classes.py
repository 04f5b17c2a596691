"""Group sessions with the same weight and the same demands into classes, as arrays.

A *column* is one demand that the sessions of one class may take; a *bin* is a tier and pool whose
items share GPUs. Thousands of sessions make far fewer classes, and the linear program over
classes has the same value as that over sessions.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.policies.compass.packing import QUARTERS
from control.policies.compass.schedule.instance import Bin, Instance, PlanItem, PlanOption

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EMPTY = -1  # fills the rows of a table that are shorter than the longest


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """``members`` are the sessions, sorted by class: class ``c`` has ``count[c]`` of them from
    ``first[c]`` on, each with the weight ``weight[c]``. Columns are sorted by class: ``owner[j]``
    is the class of column ``j``, ``start[c]`` its first column, ``demand[j]`` its demand.
    ``sizes[d, b, s]`` counts the items of ``s + 1`` quarters that demand ``d`` has in bin ``b``.
    ``plan[i, k]`` is the cheapest plan of session ``i`` with the demand of column
    ``start[c] + k`` of its class.
    """

    bins: tuple[Bin, ...]
    sizes: Ints
    members: Ints
    first: Ints
    count: Floats
    weight: Floats
    owner: Ints
    start: Ints
    demand: Ints
    plan: Ints


def session_classes(instance: Instance) -> Classes:
    """Return the classes of the sessions that have plans."""
    bins, sizes, demands, plan = _tables(instance)
    offered = (demands != EMPTY).sum(axis=1)
    planned = np.flatnonzero(offered)
    weights = np.array([session.weight for session in instance.sessions]) + 0.0  # -0.0 is 0.0
    alike = np.column_stack([weights.view(np.int64), demands])[planned]
    first_alike, number = distinct_rows(alike)
    one = planned[first_alike]  # session of each class
    count = np.bincount(number, minlength=len(one))
    columns = offered[one]
    of_class = demands[one]
    return Classes(
        bins=bins,
        sizes=sizes,
        members=planned[np.argsort(number, kind="stable")],
        first=np.cumsum(count) - count,
        count=count.astype(np.float64),
        weight=weights[one],
        owner=np.repeat(np.arange(len(one)), columns),
        start=np.cumsum(columns) - columns,
        demand=of_class[of_class != EMPTY],
        plan=plan,
    )


def _tables(instance: Instance) -> tuple[tuple[Bin, ...], Ints, Ints, Ints]:
    """Return the bins, the sizes of every demand, and for each session (row) its demands in
    ascending order, each with the cheapest plan that has it."""
    plans = [plan for session in instance.sessions for plan in session.plans]
    bins, sizes, demand = _demands(plans)
    lengths = np.array([len(session.plans) for session in instance.sessions], dtype=np.int64)
    session, index = _rows(lengths)
    cost = np.array([plan.cost for plan in plans], dtype=np.float64)
    order = np.lexsort((index, cost, demand, session))
    session, demand, index = session[order], demand[order], index[order]
    cheapest = np.ones(len(plans), dtype=bool)
    cheapest[1:] = (np.diff(session) > 0) | (np.diff(demand) > 0)
    of_session = np.bincount(session[cheapest], minlength=len(lengths))
    return bins, sizes, _table(of_session, demand[cheapest]), _table(of_session, index[cheapest])


def _demands(plans: Sequence[PlanOption]) -> tuple[tuple[Bin, ...], Ints, Ints]:
    """Return all bins, the sizes of every distinct demand, and the demand of each plan; demands
    are numbered in the order of their first appearance."""
    seen: defaultdict[PlanItem, int] = defaultdict()
    seen.default_factory = seen.__len__
    items = np.array([seen[item] for plan in plans for item in plan.items], dtype=np.int64)
    bins = sorted({(item.tier, item.pool) for item in seen})
    at = {bin: index for index, bin in enumerate(bins)}
    kind = np.array(
        [QUARTERS * at[item.tier, item.pool] + item.quarters - 1 for item in seen], dtype=np.int64
    )
    wanted = _table(np.array([len(plan.items) for plan in plans], dtype=np.int64), kind[items])
    wanted.sort(axis=1)  # the order of a plan's items does not matter
    first, demand = distinct_rows(wanted)
    kinds = wanted[first]
    sizes = np.zeros((len(first), QUARTERS * len(bins)), dtype=np.int64)
    row, column = np.nonzero(kinds != EMPTY)
    np.add.at(sizes, (row, kinds[row, column]), 1)
    return tuple(bins), sizes.reshape(len(first), len(bins), QUARTERS), demand


def _rows(lengths: Ints) -> tuple[Ints, Ints]:
    """Return the row and the column of each value of a table with rows of these lengths."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _table(lengths: Ints, values: Ints) -> Ints:
    """Return values as a table whose rows have these lengths, filled with ``EMPTY``."""
    table = np.full((len(lengths), int(lengths.max(initial=0))), EMPTY, dtype=np.int64)
    table[_rows(lengths)] = values
    return table


def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """Return where each distinct row of a table appears first, in this order, and the number of
    every row among the distinct ones."""
    if not table.size:  # rows without columns are equal
        return np.zeros(min(len(table), 1), dtype=np.int64), np.zeros(len(table), dtype=np.int64)
    order = np.lexsort(table.T)  # stable: of equal rows the first comes first
    differs = np.ones(len(table), dtype=bool)
    differs[1:] = (np.diff(table[order], axis=0) != 0).any(axis=1)
    first = order[differs]
    number = np.empty_like(order)
    number[order] = np.cumsum(differs) - 1
    rank = np.argsort(np.argsort(first))
    return np.sort(first), rank[number]


def chosen_plans(found: Classes, sessions: int, taken: Ints) -> tuple[int | None, ...]:
    """Return the plan index of every session; None: not served.

    ``taken[j]`` sessions take column ``j``; the sessions of a class are served in their order.
    """
    column = np.repeat(np.arange(len(taken)), taken)
    owner = found.owner[column]
    _, turn = _rows(np.bincount(owner, minlength=len(found.count)))
    session = found.members[found.first[owner] + turn]
    plans = np.full(sessions, EMPTY, dtype=np.int64)
    plans[session] = found.plan[session, column - found.start[owner]]
    return tuple(None if plan == EMPTY else plan for plan in plans.tolist())
