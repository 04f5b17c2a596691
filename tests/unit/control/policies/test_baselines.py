"""control/policies/inferline.py, control/policies/proteus.py and the latter's input,
control/estimation/task_demand.py."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from msgspec import structs

from control.checks.allocation_check import check_allocation
from control.estimation.estimates import Estimates
from control.estimation.task_demand import TaskDemand
from control.policies import POLICIES
from control.policies.inferline import allocate as inferline
from control.policies.option_fields import with_options
from control.policies.proteus import allocate as proteus
from control.policies.proteus import task_demands
from control.problem.candidates import choices
from control.problem.mip import SOLVERS
from control.problem.problem import PlanError, Problem
from schemas.records import Report, Settings
from tests.allocation_world import a_problem, an_entry, problems
from tests.property_examples import at_most

CHAIN = {"find": ("read",), "read": ()}
ENTRIES = [
    an_entry("find", "small", {1: 5.0}, 0.7, {"read": 1.0}),
    an_entry("find", "large", {1: 20.0}, 1.0, {"read": 2.0}),
    an_entry("read", "fast", {1: 4.0, 4: 10.0}, 0.9),
    an_entry("read", "sure", {1: 15.0, 4: 40.0}, 1.0),
    an_entry("read", "slow", {1: 200.0}, 1.0),
]


def problem(demand: float, policy: str, **changes: object) -> Problem:
    return a_problem(
        ENTRIES,
        CHAIN,
        demand=demand,
        policy=POLICIES[policy].usual,
        devices=("cpu",) * 8,
        **changes,
    )


def counts(plan: object) -> dict[str, int]:
    return {each.key: each.count for each in plan.replicas}  # type: ignore[attr-defined]


def test_inferline_runs_the_most_accurate_variants_that_fit_on_the_fewest_devices() -> None:
    plan = inferline(problem(40.0, "inferline"))
    # 40 of find's 50 items/s; 80 of read's 100.
    assert (counts(plan), plan.feasible) == ({"find/large": 1, "read/sure": 1}, True)
    assert counts(inferline(problem(90.0, "inferline"))) == {"find/large": 2, "read/sure": 2}


def test_inferline_takes_the_most_accurate_variants_that_fit_together() -> None:
    """find/large and read/sure each fit a path, but together they exceed the SLO."""
    plan = inferline(problem(10.0, "inferline", slo_ms=60.0, comm_s=0.0))
    assert plan.feasible
    assert set(counts(plan)) == {"find/large", "read/fast"}  # 1.0 x 0.9, the others 0.7 x 1.0


def test_inferline_takes_the_fastest_variants_where_none_fits() -> None:
    """The most accurate variants would fail the plan's check and leave no plan in force."""
    plan = inferline(problem(10.0, "inferline", slo_ms=15.0, comm_s=0.0))
    assert set(counts(plan)) == {"find/small", "read/fast"}


def test_inferline_gives_up_queries_and_never_accuracy() -> None:
    asked = problem(1000.0, "inferline")
    plan = inferline(asked)
    assert counts(plan).keys() == {"find/large", "read/sure"}
    assert (plan.feasible, plan.mode, plan.accuracy) == (False, "best-effort", 1.0)
    assert plan.served_share == pytest.approx(0.2)  # 4 x 50 of 1000
    assert check_allocation(plan, asked) == ()
    assert "serve at most 199.998 of 1000 queries/s" in plan.binding


def test_proteus_scales_each_task_by_the_inputs_demand_as_variants_were_seen_to_split_it() -> None:
    # 100 items at `find`, of which each makes 1 (small) or 2 (large) for `read`.
    small = proteus(problem(100.0, "proteus", arriving={"find/small": 60.0}))
    assert (counts(small), small.feasible) == ({"find/large": 5, "read/sure": 3}, True)
    assert task_demands_of(100.0, {"find/small": 60.0}) == {"find": 100.0, "read": 100.0}
    assert task_demands_of(100.0, {"find/small": 10.0, "find/large": 30.0}) == {
        "find": 100.0,
        "read": pytest.approx(175.0),
    }


def test_queries_refused_or_dropped_before_a_task_still_count_as_its_demand() -> None:
    # 1,000 queries/s arrive and 450 are admitted: that plan is not called fully served.
    seen = {"find/large": 450.0, "read/fast": 300.0}
    assert task_demands_of(1000.0, seen) == {"find": 1000.0, "read": 2000.0}
    plan = proteus(problem(1000.0, "proteus", arriving=seen))
    assert (plan.feasible, plan.mode) == (False, "best-effort")
    assert plan.served_share < 1.0


def test_observed_fan_out_counts_before_the_profiles() -> None:
    asked = problem(100.0, "proteus", multiplicity={("find/large", "read"): 0.5})
    assert task_demands(choices(asked), asked) == {"find": 100.0, "read": 50.0}


def task_demands_of(demand: float, arriving: dict[str, float]) -> dict[str, float]:
    asked = problem(demand, "proteus", arriving=arriving)
    return task_demands(choices(asked), asked)


def test_proteus_knows_no_arrivals_at_first_and_takes_those_of_accurate_variants() -> None:
    assert task_demands_of(100.0, {}) == {"find": 100.0, "read": 200.0}


def test_proteus_serves_the_same_part_of_every_task_where_not_all_fits() -> None:
    plan = proteus(problem(3000.0, "proteus", arriving={"find/small": 1.0}))
    # 200 and 400 items/s a device: 5 and 3 of them serve a third and 0.4 of 3000.
    assert counts(plan) == {"find/small": 5, "read/fast": 3}
    assert (plan.feasible, plan.mode) == (False, "best-effort")
    assert plan.served_share == pytest.approx(1 / 3)
    assert "serve 33.3% of what arrives at each task" in plan.binding


@pytest.mark.parametrize(("cpus", "gpus"), [(0, 6), (3, 3)])
def test_plans_of_proteus_pass_their_check_if_devices_differ_in_fan_out(
    cpus: int, gpus: int
) -> None:
    entries = [
        each
        for device, items in (("cpu", 2.02), ("gpu", 2.0))
        for each in (
            an_entry("find", "v", {1: 10.0}, children={"read": items}, device=device),
            an_entry("read", "v", {1: 10.0}, device=device),
        )
    ]
    asked = a_problem(
        entries, CHAIN, demand=1000.0, policy=POLICIES["proteus"].usual,
        devices=("gpu",) * gpus + ("cpu",) * cpus,
    )  # fmt: skip
    assert check_allocation(proteus(asked), asked) == ()


@pytest.mark.parametrize("solver", SOLVERS)
def test_proteus_wants_a_device_for_each_task(solver: str) -> None:
    asked = problem(1.0, "proteus")
    policy = with_options(asked.policy, solver=solver)
    with pytest.raises(PlanError, match="needs a worker for each of 2 tasks and 1 can be used"):
        proteus(replace(asked, devices=("cpu",), policy=policy))
    assert not proteus(replace(problem(1.0, "proteus"), devices=())).feasible


def test_proteus_names_its_time_limit_where_no_plan_was_found_in_time() -> None:
    late = replace(problem(1.0, "proteus"), meter=lambda: (1.0, 1.0), stop_s=0.5)
    with pytest.raises(PlanError, match="found no plan within its time; raise its `solve_within`"):
        proteus(late)


def test_proteus_runs_what_is_quickest_where_nothing_fits_an_equal_part_of_the_slo() -> None:
    plan = proteus(problem(10.0, "proteus", slo_ms=10.0))
    assert {(each.key, each.batch) for each in plan.replicas} == {
        ("find/small", 1),
        ("read/fast", 1),
    }


@settings(deadline=None, max_examples=at_most(60))
@given(problems())
def test_every_task_has_its_devices_whatever_is_asked(drawn: Problem) -> None:
    tasks = len(drawn.pipeline.tasks)
    if len(drawn.devices) < tasks:
        with pytest.raises(PlanError):
            proteus(drawn)
        return
    plan = proteus(drawn)
    assert plan.devices_used == len(drawn.devices)
    assert {each.task for each in plan.replicas} == set(drawn.pipeline.task_names)
    assert plan.feasible == (plan.served_share == 1.0)


def a_report(sent_s: float, arrived: float, node: str = "w", start: float = 0.0) -> Report:
    counts = {"arrived/read/fast": arrived, "arrived/read/sure": arrived, "busy_s/read/fast": 1.0}
    return Report(
        node=node, role="worker", pipeline="p", epoch=1, incarnation=start, sent_s=sent_s,
        state="ready", counts=counts,
    )  # fmt: skip


def test_a_variants_rate_is_the_sum_over_workers_that_reported_lately() -> None:
    seen = TaskDemand()
    for second in range(61):
        seen.observe(a_report(second, 10.0 * second))
        seen.observe(a_report(second, 5.0 * second, node="v"))
    both = {"read/fast": pytest.approx(15.0), "read/sure": pytest.approx(15.0)}
    assert seen.arriving(60.0) == both
    assert seen.arriving(100.0) == {}  # no reports for a long time
    seen.observe(a_report(61.0, 3.0, start=60.5))
    seen.observe(a_report(61.0, 305.0, node="v"))
    alone = {"read/fast": pytest.approx(5.0), "read/sure": pytest.approx(5.0)}
    assert seen.arriving(61.0) == alone  # its counts start again
    seen.observe(a_report(61.5, 700.0))  # a late report of an earlier process
    assert seen.arriving(61.0) == alone


def test_arrivals_at_tasks_are_derived_from_worker_reports() -> None:
    pipeline = problem(1.0, "proteus").pipeline
    estimates = Estimates(pipeline, None)
    for second in range(3):
        estimates.observe(a_report(second, 10.0 * second))
    assert estimates.arriving(2.0).keys() == {"read/fast", "read/sure"}


def test_untied_branches_are_planned_as_tied_except_by_the_paper_policy() -> None:
    untied = problem(1.0, "loki", branches="untied", tasks={"read": {"share": (0.3, 0.7)}}).pipeline
    planned = Estimates(untied, None).planned(POLICIES["loki"].usual)
    assert (planned.branches, planned.task("read").share) == ("tied", (0.0, 1.0))
    assert Estimates(untied, None).planned(POLICIES["loki-paper"].usual) == untied
    tied = problem(1.0, "loki").pipeline
    assert Estimates(tied, None).planned(POLICIES["loki"].usual) == tied


def test_headroom_multiplies_an_estimated_but_not_a_commanded_demand() -> None:
    estimates = Estimates(problem(1.0, "loki").pipeline, None)
    for at in range(41):
        estimates.observe(
            Report(
                node="i", role="ingress", pipeline="p", epoch=1, incarnation=0.0, sent_s=at / 4,
                state="ready", counts={"arrived": 25.0 * at},
            )
        )  # fmt: skip
    given = Settings(policy="loki", slo_s=0.25)
    plain = estimates.demand_qps(POLICIES["loki-paper"].usual, given, 10.0)
    more = estimates.demand_qps(replace(POLICIES["loki-paper"].usual, headroom=1.2), given, 10.0)
    assert (plain, more) == (pytest.approx(100.0), pytest.approx(120.0))
    fixed = structs.replace(given, demand_qps=50.0)
    assert estimates.demand_qps(replace(POLICIES["loki"].usual, headroom=2.0), fixed, 10.0) == 50.0
