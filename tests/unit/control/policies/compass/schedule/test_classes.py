"""Classes hold every session once, with the demands of its plans and the cheapest plan of each."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.compass.schedule.classes import chosen_plans, distinct_rows, session_classes
from control.policies.compass.schedule.instance import Demand, Instance, demand
from tests.unit.control.policies.compass.schedule.test_scheduling import instances


def sized(instance: Instance, number: int) -> Demand:
    """Return a numbered demand of the instance's classes as ``demand`` counts it."""
    found = session_classes(instance)
    sizes = found.sizes[number].tolist()
    return tuple((bin, tuple(n)) for bin, n in zip(found.bins, sizes, strict=True) if any(n))


@settings(deadline=None)
@given(instances())
def test_the_sessions_of_a_class_have_its_weight_and_the_demands_of_its_columns(
    instance: Instance,
) -> None:
    found = session_classes(instance)
    seen = []
    for c, count in enumerate(found.count.astype(int).tolist()):
        members = found.members[found.first[c] : found.first[c] + count].tolist()
        columns = np.flatnonzero(found.owner == c).tolist()
        assert columns[0] == found.start[c]
        assert members == sorted(members)
        seen += members
        for i in members:
            session = instance.sessions[i]
            offered = [demand(plan.items) for plan in session.plans]
            assert session.weight == found.weight[c]
            assert {sized(instance, found.demand[j]) for j in columns} == set(offered)
            for k, j in enumerate(columns):
                same = [
                    p for p, each in enumerate(offered) if each == sized(instance, found.demand[j])
                ]
                cheapest = min(same, key=lambda p: (session.plans[p].cost, p))
                assert found.plan[i, k] == cheapest
    assert sorted(seen) == [i for i, session in enumerate(instance.sessions) if session.plans]


@settings(deadline=None)
@given(instances(), st.data())
def test_sessions_are_served_in_their_order_by_the_columns_that_are_taken(
    instance: Instance, data: st.DataObject
) -> None:
    found = session_classes(instance)
    left = found.count.astype(int).tolist()
    taken = []
    for owner in found.owner.tolist():
        taken.append(data.draw(st.integers(0, left[owner])))
        left[owner] -= taken[-1]
    plans = chosen_plans(found, len(instance.sessions), np.array(taken, dtype=np.int64))
    expected: list[int | None] = [None] * len(instance.sessions)
    unserved = [iter(found.members[first:].tolist()) for first in found.first.tolist()]
    for j, count in enumerate(taken):
        owner = int(found.owner[j])
        for _ in range(count):
            session = next(unserved[owner])
            expected[session] = int(found.plan[session, j - found.start[owner]])
    assert plans == tuple(expected)


def test_distinct_rows_are_numbered_in_the_order_of_their_first_appearance() -> None:
    first, number = distinct_rows(np.array([[3, 1], [0, 7], [3, 1], [0, 2], [0, 7]]))
    assert (first.tolist(), number.tolist()) == ([0, 1, 3], [0, 1, 0, 2, 1])
    first, number = distinct_rows(np.zeros((3, 0), dtype=np.int64))
    assert (first.tolist(), number.tolist()) == ([0], [0, 0, 0])
    assert distinct_rows(np.zeros((0, 0), dtype=np.int64))[0].tolist() == []
