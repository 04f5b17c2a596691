"""Planning agrees: MILP and enumeration, CBC and HiGHS, both forms of the model."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from control.checks.allocation_check import check_allocation
from control.checks.violations import Constraint
from control.policies.loki.allocate import allocate, allocate_within_slo
from control.policies.loki.milp_search import SolveOptions, accurate, find
from control.policies.option_fields import with_options
from control.problem.candidates import choices
from control.problem.mip import Bounds
from control.problem.problem import ACCURACY, Allocation, PlanError, Problem, unmetered
from tests.allocation_world import a_problem, an_entry, by_trying, problems
from tests.property_examples import at_most

SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@pytest.mark.thorough
@settings(max_examples=at_most(100), **SLOW)
@given(problems())
def test_the_milp_finds_the_same_optimum_as_enumeration(problem: Problem) -> None:
    plan, best = allocate(problem), by_trying(problem)
    assert check_allocation(plan, problem) == ()
    assert plan.mode == best.mode
    if best.devices is not None:
        assert plan.devices_used == best.devices
    elif best.accuracy is not None:
        assert plan.accuracy == pytest.approx(best.accuracy, abs=2e-6)
    else:
        assert plan.served_share == pytest.approx(best.served, abs=2e-6)


@pytest.mark.thorough
@settings(max_examples=at_most(25), **SLOW)
@given(problems())
def test_both_solvers_find_equally_good_plans(problem: Problem) -> None:
    highs = allocate(problem)
    cbc = allocate(replace(problem, policy=with_options(problem.policy, solver="cbc")))
    assert check_allocation(cbc, problem) == ()
    assert cbc.mode == highs.mode
    if highs.mode == "hardware":
        assert cbc.devices_used == highs.devices_used
    # CBC 2.10 can report a served share of 0.977 as optimal where 0.998 is feasible (see below).
    assert cbc.served_share <= highs.served_share + 2e-6
    if highs.mode == "accuracy":
        assert cbc.accuracy == pytest.approx(highs.accuracy, abs=3e-6)


def test_a_load_within_the_solvers_tolerance_of_a_whole_device_is_one_device() -> None:
    entries = [
        an_entry("a", "v0", {1: 3.0}, 0.5, {"b": 0.5, "c": 3.3}),
        an_entry("a", "v1", {1: 26.0}, 0.75, {"b": 3.3, "c": 1.0}),
        an_entry("b", "v0", {1: 6.0}, 0.5),
        an_entry("b", "v1", {1: 8.0, 2: 11.2}, 0.75),
        an_entry("c", "v0", {1: 12.0}, 0.5),
        an_entry("c", "v1", {1: 8.0}, 0.75),
    ]
    tree = {"a": ("b", "c"), "b": (), "c": ()}
    problem = a_problem(entries, tree, demand=125.0, devices=("cpu",) * 3, slo_ms=240.0)
    assert allocate(problem).devices_used == 3  # the solver loads a/v1 by 1.000003 devices


@pytest.mark.thorough
def test_the_default_solver_finds_the_served_share_that_cbc_misses() -> None:
    entries = [
        an_entry("a", "v0", {1: 8.0}, 0.5, {"b": 1.0}),
        an_entry("a", "v1", {1: 31.0}, 0.75, {"b": 0.5}),
        an_entry("b", "v0", {1: 13.0}, 0.5),
        an_entry("b", "v1", {1: 13.0}, 0.75),
    ]
    problem = a_problem(entries, {"a": ["b"], "b": []}, demand=157.5, slo_ms=240.0, comm_s=0.0)
    assert allocate(problem).served_share == pytest.approx(by_trying(problem).served, abs=2e-6)


@pytest.mark.thorough
@settings(max_examples=at_most(40), **SLOW)
@given(problems())
def test_model_forms_with_and_without_batch_variables_agree_on_accuracy(problem: Problem) -> None:
    found = {}
    for most_configured in (10**6, 0):
        search = SolveOptions("highs", Bounds(1e-7, 10**5), unmetered, most_configured)
        result = find(
            choices(problem), problem.demand_qps, accurate, search, served=1.0, bounded=True
        )
        value = result.model.problem.objective.value() if result.solved else None
        found[most_configured] = value
    assert found[0] == (None if found[10**6] is None else pytest.approx(found[10**6], abs=2e-6))


@settings(max_examples=at_most(30), **SLOW)
@given(problems())
def test_one_device_more_never_hurts(problem: Problem) -> None:
    fewer = allocate(problem)
    more = allocate(replace(problem, devices=(*problem.devices, "cpu")))
    order = ("best-effort", "accuracy", "hardware")
    assert order.index(more.mode) >= order.index(fewer.mode)
    if more.mode == fewer.mode == "hardware":
        assert more.devices_used == fewer.devices_used
    if more.mode == fewer.mode == "accuracy":
        assert more.accuracy >= fewer.accuracy - 2e-6
    assert more.served_share >= fewer.served_share - 2e-6


@settings(max_examples=at_most(30), **SLOW)
@given(problems())
def test_the_nearest_objective_is_feasible_and_a_slightly_tighter_one_is_not(
    problem: Problem,
) -> None:
    plan = allocate(problem)
    assert plan.feasible == (plan.nearest is None) == (plan.binding == "")
    if plan.nearest is None:
        return
    close = plan.nearest
    if close.demand_qps is not None:
        assert allocate(replace(problem, demand_qps=close.demand_qps)).feasible
        above_qps = close.demand_qps * 1.0001 + 2e-6 * problem.demand_qps
        assert not allocate(replace(problem, demand_qps=above_qps)).feasible
    if close.devices is not None:
        assert allocate(replace(problem, devices=("cpu",) * close.devices)).feasible
        assert not allocate(replace(problem, devices=("cpu",) * (close.devices - 1))).feasible
    if close.slo_s is not None:
        assert allocate(replace(problem, slo_s=close.slo_s)).feasible
        assert not allocate(replace(problem, slo_s=close.slo_s - 2e-6)).feasible


@settings(max_examples=15, **SLOW)
@given(problems())
def test_the_same_problem_has_the_same_plan(problem: Problem) -> None:
    assert allocate(problem) == allocate(problem)


def test_the_nearest_demand_allows_for_the_solvers_tolerance() -> None:
    # The solver reported two workers of 46.08295/s as sufficient for 46.083.
    entries = [
        an_entry("a", "v0", {1: 14.0}, 0.5, {"b": 2.0, "c": 2.0}),
        an_entry("a", "v1", {1: 31.0, 2: 43.4}, 0.75, {"b": 1.0, "c": 2.0}),
        an_entry("b", "v0", {1: 14.0}, 0.5),
        an_entry("c", "v0", {1: 13.0}, 0.5),
        an_entry("c", "v1", {1: 11.0}, 0.75),
    ]
    children = {"a": ["b", "c"], "b": [], "c": []}
    problem = a_problem(entries, children, demand=145.0, slo_ms=240.0, comm_s=0.0)
    close = allocate(problem).nearest
    assert close is not None
    assert close.demand_qps is not None
    assert allocate(replace(problem, demand_qps=close.demand_qps)).feasible


@settings(max_examples=at_most(25), **SLOW)
@given(problems(), st.sampled_from((0.5, 0.75, 0.9)))
def test_the_minimum_accuracy_holds_in_every_mode(problem: Problem, least: float) -> None:
    asked = replace(problem, policy=with_options(problem.policy, accuracy_least=least))
    try:
        kept = allocate(asked)
    except PlanError:
        return
    free = allocate(problem)
    assert check_allocation(kept, asked) == ()
    assert kept.served_share <= free.served_share + 2e-6
    assert kept.accuracy is None or kept.accuracy >= least - 2e-6


def breaks_bounds(plan: Allocation, problem: Problem) -> bool:
    """Whether a plan of the first step breaks a branch's bounds, which no check asks of it."""
    found = check_allocation(replace(plan, mode=ACCURACY), problem)
    return any(each.constraint == Constraint.TASK_SHARE for each in found)


# Most items are for b, more than the largest share that its bounds allow.
UNBALANCED = a_problem(
    [
        an_entry("a", "v0", {1: 3.0}, 0.5, {"b": 3.3, "c": 1.0}),
        an_entry("b", "v0", {1: 3.0}, 0.5),
        an_entry("b", "v1", {1: 10.0}, 0.75),
        an_entry("c", "v0", {1: 3.0}, 0.5),
        an_entry("c", "v1", {1: 28.0}, 0.75),
    ],
    {"a": ("b", "c"), "b": (), "c": ()}, demand=42.5, devices=("cpu",) * 3, slo_ms=60.0,
    tasks={"b": {"share": (0.25, 0.75)}}, compute_share=0.5, branches="untied",
)  # fmt: skip


def test_the_papers_first_step_may_break_the_bounds_of_a_branch() -> None:
    paper, ours = allocate(UNBALANCED), allocate_within_slo(UNBALANCED)
    assert breaks_bounds(paper, UNBALANCED)
    assert not breaks_bounds(ours, UNBALANCED)


@settings(max_examples=at_most(25), **SLOW)
@example(UNBALANCED)
@given(problems())
def test_the_fewest_devices_within_the_slo_reach_the_accuracy_of_all(problem: Problem) -> None:
    asked = replace(problem, policy=with_options(problem.policy, accuracy_least=0.0))
    ours, paper = allocate_within_slo(asked), allocate(problem)
    assert check_allocation(ours, asked) == ()
    assert ours.devices_used <= max(paper.devices_used, len(problem.devices))
    if breaks_bounds(paper, problem):
        # The paper's first step bounds no branch shares, so it may serve more, more accurately.
        assert ours.served_share <= paper.served_share + 2e-6
        return
    assert ours.served_share == pytest.approx(paper.served_share, abs=2e-6)
    if paper.accuracy is not None and ours.accuracy is not None:
        assert ours.accuracy >= paper.accuracy - 2e-6 or ours.mode == paper.mode
