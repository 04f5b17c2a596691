"""control/policies/replica_bounds.py: minimum and maximum replicas of a task."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.checks.allocation_check import check_allocation
from control.policies import POLICIES
from control.policies.replica_bounds import topped_up
from control.policies.solvers import solve
from control.problem.problem import Allocation, Problem, Replicas
from profiles.measurements import QUANTILES, Latency
from tests.allocation_world import a_problem, an_entry
from tests.property_examples import at_most

CHAIN = {"find": ("read",), "read": ()}
ENTRIES = [
    an_entry("find", "small", {1: 5.0}, 0.8, {"read": 1.0}),
    an_entry("find", "large", {1: 20.0}, 1.0, {"read": 2.0}),
    an_entry("read", "fast", {1: 4.0, 4: 10.0}, 0.9),
    an_entry("read", "sure", {1: 15.0, 4: 40.0}, 1.0),
]
PLANNING = ("static", "loki", "loki-paper", "inferline", "proteus")


def planned(kind: str, tasks: Mapping[str, object], demand: float, devices: int) -> Allocation:
    problem = a_problem(
        ENTRIES, CHAIN, demand=demand, devices=("cpu",) * devices,
        policy=POLICIES[kind].usual, tasks=tasks,  # type: ignore[arg-type]
    )  # fmt: skip
    plan = solve(kind, problem)
    assert isinstance(plan, Allocation)
    if plan.shares:
        assert check_allocation(plan, problem) == ()
    return plan


def count(plan: Allocation, task: str) -> int:
    return sum(each.count for each in plan.replicas if each.task == task)


@settings(max_examples=at_most(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLANNING), st.integers(1, 3), st.integers(0, 2), st.integers(0, 40))
def test_every_policy_keeps_to_the_bounds(kind: str, least: int, more: int, tens: int) -> None:
    most = least + more
    plan = planned(kind, {"read": {"least": least, "most": most}}, 10.0 * tens, devices=8)
    assert least <= count(plan, "read") <= most
    assert count(plan, "find") >= 1
    assert plan.devices_used <= 8


@pytest.mark.parametrize("kind", ["loki", "loki-paper", "inferline", "proteus"])
def test_the_least_of_a_task_is_spread_over_kinds_of_devices(kind: str) -> None:
    slower = [
        replace(each, device="gpu", latency=tuple(_twice(row) for row in each.latency))
        for each in ENTRIES
    ]
    problem = a_problem(
        [*ENTRIES, *slower], CHAIN, demand=1.0, devices=("cpu", "cpu", "gpu", "gpu", "gpu"),
        policy=POLICIES[kind].usual, tasks={"find": {"least": 4}},
    )  # fmt: skip
    plan = solve(kind, problem)
    assert (plan.feasible, count(plan, "find"), plan.devices_used) == (True, 4, 5)
    assert check_allocation(plan, problem) == ()


@pytest.mark.parametrize("kind", ["loki", "loki-paper", "inferline", "proteus"])
def test_a_task_with_too_few_devices_of_its_kind_still_serves(kind: str) -> None:
    """All but one GPU are lost: the plans of Loki used to serve nothing, and proteus had none."""
    on_gpu = [replace(each, device="gpu") if each.task == "read" else each for each in ENTRIES]
    problem = a_problem(
        on_gpu, CHAIN, demand=5.0, devices=("cpu", "cpu", "cpu", "gpu"),
        policy=POLICIES[kind].usual, tasks={"read": {"least": 2}},
    )  # fmt: skip
    plan = solve(kind, problem)
    assert (plan.feasible, plan.served_share, count(plan, "read")) == (False, 1.0, 1)
    assert plan.binding.startswith("devices: task 'read' has 1 of at least 2 replicas")
    assert {each.variant for each in plan.replicas if each.task == "find"} == {"large"}
    assert check_allocation(plan, problem) == ()


def _twice(row: Latency) -> Latency:
    seconds = {f"{name}_s": 2 * getattr(row, f"{name}_s") for name in QUANTILES}
    return replace(row, **seconds)


@pytest.mark.parametrize("kind", ["loki-paper", "inferline"])
def test_a_branch_without_queries_has_its_least_replicas(kind: str) -> None:
    entries = [
        an_entry("find", "v", {1: 5.0}, children={"near": 1.0, "far": 5.0}),
        an_entry("near", "v", {1: 5.0}),
        an_entry("far", "v", {1: 50.0}),
    ]
    children = {"find": ("near", "far"), "near": (), "far": ()}
    problem = a_problem(
        entries, children, branches="untied", devices=("cpu",) * 6, demand=150.0,
        policy=POLICIES[kind].usual, tasks={"far": {"least": 2}},
    )  # fmt: skip
    plan = solve(kind, problem)
    assert (plan.feasible, count(plan, "far")) == (True, 2)
    assert check_allocation(plan, problem) == ()


def test_the_other_tasks_pay_for_the_least_of_one() -> None:
    free = planned("loki", {}, 250.0, devices=6)
    bound = planned("loki", {"find": {"least": 5}}, 250.0, devices=6)
    assert (free.mode, bound.mode) == ("accuracy", "accuracy")
    assert count(bound, "find") == 5 > count(free, "find")
    assert bound.accuracy is not None
    assert free.accuracy is not None
    assert bound.accuracy < free.accuracy


@pytest.mark.parametrize("kind", PLANNING)
def test_plan_reports_fewer_devices_than_the_least_replicas(kind: str) -> None:
    plan = planned(kind, {"read": {"least": 3}, "find": {"least": 3}}, 10.0, devices=4)
    assert not plan.feasible
    assert "at least 6 replicas and 4 workers" in plan.binding or "asks for" in plan.binding
    assert min(count(plan, "find"), count(plan, "read")) >= 1


def test_a_plan_without_devices_to_spare_names_the_task_that_has_too_few() -> None:
    tasks = {"read": {"least": 2}}
    problem: Problem = a_problem(ENTRIES, CHAIN, devices=("cpu",) * 3, tasks=tasks)
    made = [
        Replicas(task="find", variant="small", batch=1, count=2),
        Replicas(task="read", variant="fast", batch=1, count=1),
    ]
    plan = topped_up(Allocation(tuple(made)), problem)
    assert (plan.feasible, plan.devices_used) == (False, 3)
    assert plan.binding.startswith("devices: task 'read' has 1 of at least 2 replicas")


def test_a_plan_without_any_replica_of_a_task_names_it_if_it_has_a_least_number() -> None:
    made = Allocation((Replicas(task="find", variant="small", batch=1, count=1),))
    least = a_problem(ENTRIES, CHAIN, tasks={"read": {"least": 2}})
    plan = topped_up(made, least)
    assert (plan.feasible, plan.replicas) == (False, made.replicas)
    assert plan.binding.startswith("devices: task 'read' has 0 of at least 2 replicas")
    assert topped_up(made, a_problem(ENTRIES, CHAIN)) == made
