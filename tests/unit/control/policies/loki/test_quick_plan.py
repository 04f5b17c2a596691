"""control/policies/loki/quick_plan.py: an immediate plan until the MILP is solved."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.checks.allocation_check import check_allocation
from control.policies import POLICIES
from control.policies.loki.allocate import allocate_within_slo
from control.policies.loki.quick_plan import quick_plan
from control.policies.option_fields import with_options
from tests.allocation_world import a_problem, an_entry, problems

LOKI = POLICIES["loki"].usual
CHAIN = {"find": ("read",), "read": ()}
ENTRIES = [
    an_entry("find", "small", {1: 5.0}, 0.8, {"read": 1.0}),
    an_entry("find", "large", {1: 20.0}, 1.0, {"read": 1.0}),
    an_entry("read", "fast", {1: 4.0, 4: 10.0}, 0.9),
    an_entry("read", "sure", {1: 15.0, 4: 40.0}, 1.0),
]


@given(problems(), st.integers(0, 200))
def test_every_quick_plan_keeps_every_constraint_and_is_no_better_than_the_exact_one(
    drawn: object, demand: int
) -> None:
    problem = replace(drawn, demand_qps=float(demand), policy=LOKI)  # type: ignore[type-var]
    plan = quick_plan(problem)
    if plan is None:
        return
    assert check_allocation(plan, problem) == ()
    exact = allocate_within_slo(problem)
    assert plan.served_share <= exact.served_share + 1e-5
    if plan.served_share == 1.0 and exact.accuracy is not None:
        assert plan.accuracy is not None
        assert plan.accuracy <= exact.accuracy + 1e-5


def test_a_demand_that_the_best_variants_carry_gets_them() -> None:
    problem = a_problem(ENTRIES, CHAIN, demand=100.0, devices=("cpu",) * 6, policy=LOKI)
    plan = quick_plan(problem)
    assert plan is not None
    assert plan.mode == "hardware"
    assert {each.key: each.count for each in plan.replicas} == {"find/large": 2, "read/sure": 1}


def test_a_larger_demand_gives_up_the_accuracy_that_costs_least() -> None:
    problem = a_problem(ENTRIES, CHAIN, demand=400.0, devices=("cpu",) * 10, policy=LOKI)
    plan, exact = quick_plan(problem), allocate_within_slo(problem)
    assert plan is not None
    assert plan.accuracy is not None
    assert exact.accuracy is not None
    assert plan.mode == "accuracy"
    assert exact.accuracy - 0.03 <= plan.accuracy <= exact.accuracy + 1e-6


def test_demand_beyond_every_plan_is_served_in_part() -> None:
    problem = a_problem(ENTRIES, CHAIN, demand=4000.0, devices=("cpu",) * 4, policy=LOKI)
    plan, exact = quick_plan(problem), allocate_within_slo(problem)
    assert plan is not None
    assert (plan.mode, plan.feasible) == ("best-effort", False)
    assert 0.9 * exact.served_share <= plan.served_share <= exact.served_share + 1e-6
    assert "a quick plan serves 1" in plan.binding


@pytest.mark.parametrize(
    "changes", [{"devices": ("cpu",)}, {"slo_s": 0.001}, {"devices": ("cpu", "cuda:0", "cuda:0")}]
)
def test_quick_plan_is_none_if_the_method_does_not_apply(changes: dict[str, object]) -> None:
    cuda = [replace(entry, device="cuda:0") for entry in ENTRIES]
    problem = a_problem([*ENTRIES, *cuda], CHAIN, policy=LOKI)
    assert quick_plan(replace(problem, **changes)) is None  # type: ignore[arg-type]


def test_accuracy_least_is_kept() -> None:
    strict = with_options(LOKI, accuracy_least=0.99)
    problem = a_problem(ENTRIES, CHAIN, demand=400.0, devices=("cpu",) * 10, policy=strict)
    assert quick_plan(problem) is None
