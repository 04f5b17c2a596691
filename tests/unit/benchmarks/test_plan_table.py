"""benchmarks/plan_table.py: plans solved in advance, valid until their problem changes."""

from dataclasses import replace

import pytest

from benchmarks.plan_table import PlanTable
from control.checks.allocation_check import check_allocation
from control.policies.loki.allocate import allocate
from tests.allocation_world import a_problem, an_entry

PROBLEM = a_problem(
    [an_entry("read", "slow", {1: 20.0}, 0.9), an_entry("read", "fast", {1: 5.0}, 0.6)],
    {"read": ()},
)


def a_full_table() -> PlanTable:
    table = PlanTable.empty(PROBLEM, step_qps=50.0, top_qps=220.0)
    while (demand := table.next_missing(120.0)) is not None:
        table = table.filled(demand, allocate(replace(PROBLEM, demand_qps=demand)))
    return table


def test_lookup_returns_the_plan_of_the_next_larger_demand() -> None:
    table = a_full_table()
    for demand in (0.0, 1.0, 50.0, 199.9, 250.0):
        problem = replace(PROBLEM, demand_qps=demand)
        plan = table.plan(problem)
        planned = table.planned_qps(demand)
        assert plan is not None
        assert planned is not None
        assert demand <= planned < demand + 50
        assert plan == allocate(replace(PROBLEM, demand_qps=planned))
        assert check_allocation(plan, problem) == ()


def test_beyond_the_grid_there_is_no_plan() -> None:
    table = a_full_table()
    assert table.plan(replace(PROBLEM, demand_qps=251.0)) is None
    assert table.planned_qps(251.0) is None


def test_demands_are_solved_from_the_present_one_upwards_then_below() -> None:
    table, order = PlanTable.empty(PROBLEM, step_qps=50.0, top_qps=220.0), []
    plan = allocate(PROBLEM)
    while (demand := table.next_missing(120.0)) is not None:
        order.append(demand)
        table = table.filled(demand, plan)
    assert order == [150.0, 200.0, 250.0, 100.0, 50.0, 0.0]


@pytest.mark.parametrize(
    "moved",
    [
        {"multiplicity": {("read/slow", "spell"): 2.0}},
        {"devices": ("cpu",) * 5},
        {"slo_s": 0.3},
        {"path_accuracy": {("read/slow",): 0.8}},
        {"profile": replace(PROBLEM.profile, entries=PROBLEM.profile.entries[:1])},
    ],
    ids=str,
)
def test_table_has_no_plan_for_another_problem(moved: dict) -> None:
    assert a_full_table().plan(replace(PROBLEM, demand_qps=50.0, **moved)) is None


def test_a_plan_off_the_grid_and_a_grid_without_demands_are_refused() -> None:
    with pytest.raises(ValueError, match="60 queries/s is not on the grid"):
        a_full_table().filled(60.0, allocate(PROBLEM))
    with pytest.raises(ValueError, match="steps of 0 up to 10 queries/s"):
        PlanTable.empty(PROBLEM, step_qps=0.0, top_qps=10.0)
