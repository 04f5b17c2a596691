"""control/policies/class_slos.py: plans meet the SLO of the tightest feasible class."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.checks.allocation_check import check_allocation
from control.policies import POLICIES
from control.policies.solvers import quick, solve
from control.problem.candidates import budgets_s
from control.problem.problem import Allocation, Problem
from tests.allocation_world import a_problem, an_entry
from tests.property_examples import at_most

CHAIN = {"find": ("read",), "read": ()}
ENTRIES = [
    an_entry("find", "small", {1: 5.0, 4: 12.0}, 0.8, {"read": 1.0}),
    an_entry("find", "large", {1: 20.0, 4: 50.0}, 1.0, {"read": 2.0}),
    an_entry("read", "fast", {1: 4.0, 4: 10.0}, 0.9),
    an_entry("read", "sure", {1: 15.0, 4: 40.0}, 1.0),
]
PLANNING = ("loki", "loki-paper", "inferline")


def asked(kind: str, demand: float, **classes_ms: float) -> Problem:
    """Return a problem with an SLO of 500 ms, on eight devices."""
    problem = a_problem(
        ENTRIES, CHAIN, demand=demand, devices=("cpu",) * 8, slo_ms=500.0,
        policy=POLICIES[kind].usual,
    )  # fmt: skip
    return replace(problem, classes={name: ms / 1e3 for name, ms in classes_ms.items()})


def planned(problem: Problem) -> Allocation:
    plan = solve(problem.policy.kind, problem)
    assert isinstance(plan, Allocation)
    return plan


def slowest_s(plan: Allocation, problem: Problem) -> float:
    """Return the latency of the slowest used path."""
    assert problem.profile is not None
    took = {
        each.key: problem.profile.latency_s(
            each.task, each.variant, "cpu", each.batch, problem.policy.latency
        )
        for each in plan.replicas
    }
    return max(sum(took[key] for key in share.path) for share in plan.shares)


@settings(max_examples=at_most(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(PLANNING), st.integers(0, 30), st.floats(60.0, 900.0), st.floats(60.0, 900.0)
)
def test_every_used_path_keeps_the_tightest_class(
    kind: str, tens: int, gold_ms: float, bulk_ms: float
) -> None:
    problem = asked(kind, 10.0 * tens, gold=gold_ms, bulk=bulk_ms)
    plan = planned(problem)
    tightest = replace(problem, slo_s=min(0.5, gold_ms / 1e3, bulk_ms / 1e3))
    assert "SLO class" not in plan.binding
    assert plan.slo_s in (0.0, tightest.slo_s)
    assert plan.slo_s == tightest.slo_s or tightest.slo_s == 0.5
    if plan.shares:
        assert slowest_s(plan, problem) <= budgets_s(tightest)["read"] + 1e-9
        assert check_allocation(plan, tightest) == ()


@pytest.mark.parametrize("kind", PLANNING)
def test_without_the_class_the_plan_breaks_its_slo(kind: str) -> None:
    """Prove that the test above can fail."""
    problem = asked(kind, 20.0)
    tight = replace(problem, slo_s=0.06)
    assert slowest_s(planned(problem), problem) > budgets_s(tight)["read"]


@pytest.mark.parametrize("kind", PLANNING)
def test_a_class_that_no_path_meets_is_named_and_the_next_is_planned_for(kind: str) -> None:
    plan = planned(asked(kind, 20.0, ruby=15.0, gold=100.0))
    assert not plan.feasible
    assert plan.binding.startswith(
        "SLO class 'ruby': the fastest path to read takes 9 ms, and an SLO of 15 ms leaves"
    )
    assert "'gold'" not in plan.binding
    assert plan.slo_s == 0.1
    assert plan.shares


@pytest.mark.parametrize("kind", PLANNING)
def test_slack_classes_leave_the_plan_as_it_is(kind: str) -> None:
    assert planned(asked(kind, 150.0, bulk=2000.0)) == replace(
        planned(asked(kind, 150.0)), solved=planned(asked(kind, 150.0, bulk=2000.0)).solved
    )


def test_a_policy_without_a_plan_for_a_class_plans_for_the_others() -> None:
    problem = asked("loki", 20.0, gold=40.0)
    options = {**problem.policy.options, "accuracy_least": 0.9}
    plan = planned(replace(problem, policy=replace(problem.policy, options=options)))
    assert (plan.feasible, plan.slo_s) == (False, 0.0)
    assert plan.binding.startswith("SLO class 'gold': policy 'loki': accuracy_least is 0.9")
    assert plan.accuracy == pytest.approx(1.0)


def test_a_fixed_plan_says_which_class_its_variants_cannot_meet() -> None:
    problem = asked("static", 20.0, gold=30.0, bulk=2000.0)
    plan = planned(problem)
    assert {each.variant for each in plan.replicas} == {"large", "sure"}
    assert not plan.feasible
    assert plan.binding.startswith("SLO class 'gold': the plan's variants take 35 ms to read")
    assert "bulk" not in plan.binding
    assert planned(asked("static", 20.0, gold=60.0)).feasible


def test_the_quick_plan_keeps_the_class_too() -> None:
    problem = asked("loki", 20.0, gold=60.0)
    plan = quick(problem)
    assert plan is not None
    assert plan.slo_s == 0.06
    assert check_allocation(plan, replace(problem, slo_s=0.06)) == ()
