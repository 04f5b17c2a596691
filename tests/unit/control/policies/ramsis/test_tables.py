"""control/policies/ramsis/tables.py: tables for loads, looked up by queue length and slack."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.ramsis_compare import grid
from control.policies.ramsis.mdp_solver import Objective
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.table_leases import models_of_kind
from control.policies.ramsis.tables import (
    OPTIONS,
    Ask,
    Options,
    SelectionPlan,
    Table,
    TableEntry,
    for_load,
    models_of,
    solved,
    solved_within,
    table_plan_json,
)
from control.problem.problem import SelectionError
from schemas.pipeline import Policy
from tests.control_world import a_pipeline, a_profile
from tests.property_examples import at_most
from tests.selection_world import BEST, FAST, GOOD, USUALLY_QUICK

TABLE = Table(
    qps=10.0,
    models=("fast", "good"),
    levels_s=(0.0, 0.05, 0.1),
    model=((0, 0, 1), (0, 1, 1), (0, 1, 1)),
    batch=((1, 1, 1), (2, 2, 2), (3, 3, 3)),
)
RAMSIS = OPTIONS["ramsis"]


def an_ask(qps: float = 100.0, workers: int = 6, **more: object) -> Ask:
    return Ask(
        **{  # type: ignore[arg-type]
            "models": (BEST, FAST, GOOD), "slo_s": 0.1, "workers": workers, "qps": qps, **more
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("queue", "slack_s", "model"),
    [
        (1, 0.1, "good"),
        (1, 0.0999, "fast"),
        (1, 0.2, "good"),
        (1, -0.2, "fast"),
        (2, 0.05, "good"),
        (2, 0.04, "fast"),
    ],
)
def test_a_table_is_looked_up_at_the_level_that_the_slack_has_reached(
    queue: int, slack_s: float, model: str
) -> None:
    assert TABLE.choose(queue, slack_s) == TableEntry(model, queue)


@pytest.mark.parametrize("queue", [3, 4, 50])
def test_a_full_queue_goes_to_the_fastest_as_one_batch(queue: int) -> None:
    assert TABLE.choose(queue, 0.1) == TableEntry("fast", queue)


def test_an_empty_queue_has_nothing_to_serve() -> None:
    with pytest.raises(SelectionError, match="wait for a query"):
        TABLE.choose(0, 0.1)


def test_decisions_are_listed_by_queue_and_slack_with_the_full_queue_last() -> None:
    assert TABLE.decisions() == [
        [1, 0, "fast", 1],
        [1, 1, "fast", 1],
        [1, 2, "good", 1],
        [2, 0, "fast", 2],
        [2, 1, "good", 2],
        [2, 2, "good", 2],
        [3, 0, "fast", 3],
    ]


def test_a_solved_table_serves_a_lone_query_well_and_a_late_one_fast() -> None:
    plan = solved(RAMSIS, an_ask(qps=6.0))
    assert plan.table.models == ("fast", "good", "best")
    assert plan.table.choose(1, 0.1) == TableEntry("best", 1)
    assert plan.table.choose(1, 0.0) == TableEntry("fast", 1)
    assert plan.feasible
    assert plan.expected_accuracy == pytest.approx(0.9, abs=1e-3)
    assert (plan.states, plan.actions) == (4 * 101 + 1, 7)


@pytest.mark.parametrize("policy", OPTIONS)
def test_a_load_above_capacity_still_has_a_table(policy: str) -> None:
    plan = solved(OPTIONS[policy], an_ask(qps=1e5))
    assert not plan.feasible
    assert plan.expected_violation == pytest.approx(1)
    assert plan.expected_accuracy == pytest.approx(0.6)
    assert plan.table.choose(3, 0.02).model == "fast"


@pytest.mark.parametrize("policy", OPTIONS)
def test_zero_load_is_served_with_the_best_model_within_the_slo(policy: str) -> None:
    plan = solved(OPTIONS[policy], an_ask(qps=0.0))
    assert (plan.feasible, plan.expected_accuracy, plan.expected_violation) == (True, 0.9, 0.0)


@pytest.mark.parametrize("policy", OPTIONS)
def test_one_model_is_a_table_of_that_model(policy: str) -> None:
    plan = solved(OPTIONS[policy], an_ask(models=(GOOD,)))
    assert {row[2] for row in plan.table.decisions()} == {"good"}


@pytest.mark.parametrize("policy", OPTIONS)
def test_equal_models_are_the_same_as_one(policy: str) -> None:
    twin = replace(GOOD, name="twin")
    both = solved(OPTIONS[policy], an_ask(models=(GOOD, twin)))
    one = solved(OPTIONS[policy], an_ask(models=(GOOD,)))
    assert both.table == one.table


@pytest.mark.parametrize("policy", OPTIONS)
def test_latency_that_falls_with_the_batch_is_planned_as_the_lower_latency(policy: str) -> None:
    odd = CandidateModel("odd", 0.7, (0.080, 0.030, 0.040))
    plan = solved(OPTIONS[policy], an_ask(models=(odd,)))
    mended = solved(
        OPTIONS[policy], an_ask(models=(CandidateModel("odd", 0.7, (0.030, 0.030, 0.040)),))
    )
    assert plan.table == mended.table
    assert plan.expected_accuracy == mended.expected_accuracy


@pytest.mark.parametrize("policy", OPTIONS)
def test_slo_below_the_fastest_model_is_refused_with_a_remedy(policy: str) -> None:
    with pytest.raises(SelectionError, match=r"20 ms .* 10 ms; raise the SLO or add a faster"):
        solved(OPTIONS[policy], an_ask(slo_s=0.01))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", OPTIONS)
def test_a_thousand_workers_have_a_table(policy: str) -> None:
    alone = solved(OPTIONS[policy], an_ask(qps=20.0 * 1000, workers=1000))
    assert alone.feasible
    assert 0.75 < alone.expected_accuracy < 0.9
    assert 0 <= alone.expected_violation < 1e-6


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(SelectionError, match="name one variant at least"):
        solved(RAMSIS, an_ask(models=()))


@pytest.mark.parametrize("discretisation", ["fixed-length", "model-based"])
@pytest.mark.parametrize("solver", ["value-iteration", "policy-iteration"])
def test_both_discretisations_and_both_solvers_agree_approximately(
    discretisation: str, solver: str
) -> None:
    # Three models have six latencies, so few levels: less is known about the next state.
    options = replace(RAMSIS, discretisation=discretisation, solver=solver)
    assert solved(options, an_ask()).expected_accuracy == pytest.approx(
        solved(RAMSIS, an_ask()).expected_accuracy, abs=0.02
    )


def test_a_warm_start_comes_to_the_same_table_in_fewer_sweeps() -> None:
    neighbour, cold = solved(RAMSIS, an_ask(98.0)), solved(RAMSIS, an_ask(100.0))
    warm = solved(RAMSIS, an_ask(100.0), neighbour)
    assert warm.expected_accuracy == pytest.approx(cold.expected_accuracy, abs=1e-9)
    assert warm.sweeps < cold.sweeps
    other = replace(RAMSIS, steps=50)
    assert solved(other, an_ask(), neighbour).table == solved(other, an_ask()).table


def test_a_violation_budget_is_kept_at_the_highest_accuracy() -> None:
    free = solved(RAMSIS, an_ask(220.0))
    budget = free.expected_violation / 3
    kept = solved_within(RAMSIS, an_ask(220.0), budget)
    assert kept.feasible
    assert 0 < kept.expected_violation <= budget
    assert kept.price > 0
    cheaper = replace(RAMSIS, objective=Objective(price=kept.price * 0.9))
    assert solved(cheaper, an_ask(220.0)).expected_violation > budget
    assert kept.expected_accuracy < free.expected_accuracy
    assert solved_within(RAMSIS, an_ask(220.0), 1.0).table == free.table


def test_unreachable_violation_budget_is_infeasible_and_gives_the_least_violation() -> None:
    plan = solved_within(RAMSIS, an_ask(700.0), 1e-6)
    assert not plan.feasible
    assert plan.expected_violation <= solved(RAMSIS, an_ask(700.0)).expected_violation


@pytest.mark.parametrize("violation", [-0.1, 1.5, float("nan")])
def test_a_budget_that_is_no_fraction_is_refused(violation: float) -> None:
    with pytest.raises(SelectionError, match=r"give 0\.\.1"):
        solved_within(RAMSIS, an_ask(), violation)


def test_a_grid_is_refined_until_neighbours_are_close() -> None:
    plans = grid(RAMSIS, an_ask(), (50.0, 400.0), apart=0.02)
    loads = [plan.table.qps for plan in plans]
    assert loads == sorted(loads)
    assert (loads[0], loads[-1]) == (50.0, 400.0)
    for below, above in pairwise(plans):
        close = abs(below.expected_accuracy - above.expected_accuracy) < 0.02
        assert close or above.table.qps - below.table.qps <= above.table.qps / 128


def test_a_grid_of_no_loads_is_refused() -> None:
    with pytest.raises(SelectionError, match="one load at least"):
        grid(RAMSIS, an_ask(), ())


def test_the_table_for_a_load_is_the_lowest_that_is_not_below_it() -> None:
    plans = grid(RAMSIS, an_ask(), (10.0, 20.0, 30.0), apart=1.0)
    assert [for_load(plans, qps).table.qps for qps in (0.0, 10.0, 10.1, 30.0, 99.0)] == [
        10.0, 10.0, 20.0, 30.0, 30.0
    ]  # fmt: skip


def test_a_task_s_variants_are_models_up_to_their_largest_batch() -> None:
    read = a_pipeline().task("read")
    profile = a_profile()
    models = models_of(profile, read, "cpu")
    assert [model.name for model in models] == [variant.name for variant in read.variants]
    for model, variant in zip(models, read.variants, strict=True):
        largest = profile.entry("read", variant.name, "cpu").largest
        assert len(model.latency_s) == min(variant.batch, largest)
        assert model.latency_s[0] == profile.latency_s("read", variant.name, "cpu", 1)


def test_a_policy_plans_lateness_by_one_quantile_and_queues_by_another() -> None:
    read, profile = a_pipeline().task("read"), a_profile()
    loki = Policy(name="loki", kind="loki", latency="p95", rate="mean")
    for model in models_of_kind(profile, read, ("cpu", "cpu"), loki):
        entry = profile.entry("read", model.name, "cpu")
        assert model.latency_s[0] == entry.latency[0].p95_s
        assert model.busy_s[0] == entry.latency[0].mean_s
    same = Policy(name="ramsis", kind="ramsis", latency="p95", rate="p95")
    assert models_of_kind(profile, read, ("cpu",), same) == models_of(profile, read, "cpu")


def test_a_policy_sets_the_largest_batches_of_its_models() -> None:
    read, profile = a_pipeline().task("read"), a_profile()
    first, *others = models_of(profile, read, "cpu")
    policy = Policy(name="ramsis", kind="ramsis", rate="p95", batch={f"read/{first.name}": 1})
    assert len(first.latency_s) > 1
    shorter = replace(first, latency_s=first.latency_s[:1])
    assert models_of_kind(profile, read, ("cpu",), policy) == (shorter, *others)


def test_model_planned_by_a_rare_latency_is_chosen_at_loads_that_it_can_carry() -> None:
    late = replace(USUALLY_QUICK, occupied_s=())
    by_latency, by_both = (
        solved(RAMSIS, an_ask(qps=150.0, workers=2, models=(FAST, model)))
        for model in (late, USUALLY_QUICK)
    )
    assert by_latency.expected_accuracy < 0.65
    assert by_both.expected_accuracy > 0.75


def test_plan_description_includes_decisions_on_request() -> None:
    plan = solved(RAMSIS, an_ask())
    shown = table_plan_json("ramsis", plan, 0.01, 0.02, table=False)
    assert json.loads(json.dumps(shown, allow_nan=False)) == {
        "policy": "ramsis",
        "demand": 100.0,
        "feasible": True,
        "expected_accuracy": plan.expected_accuracy,
        "expected_violation": plan.expected_violation,
        "states": 405,
        "actions": 7,
        "solver": {
            "name": "value-iteration",
            "seconds": 0.01,
            "wall_seconds": 0.02,
            "sweeps": plan.sweeps,
        },
    }
    more = table_plan_json("ramsis", plan, 0.01, 0.02, table=True)
    assert more["decisions"] == plan.table.decisions()


@st.composite
def any_asks(draw: st.DrawFn) -> Ask:
    latencies = st.lists(st.floats(1e-3, 0.5), min_size=1, max_size=5)
    drawn = draw(st.lists(st.tuples(st.floats(0, 1), latencies), min_size=1, max_size=4))
    models = tuple(CandidateModel(f"m{at}", a, tuple(times)) for at, (a, times) in enumerate(drawn))
    return Ask(
        models=models,
        slo_s=draw(st.floats(0.5, 1.0)),
        workers=draw(st.integers(1, 80)),
        qps=draw(st.floats(0, 5000)),
        dispersion=draw(st.sampled_from([1.0, 2.0, 20.0])),
    )


def _promises(options: Options, ask: Ask) -> SelectionPlan:
    return solved(replace(options, steps=10), ask)


@settings(max_examples=at_most(60), deadline=None)
@given(any_asks(), st.sampled_from(["ramsis", "ramsis-paper"]))
def test_any_request_gives_fractions_and_a_decision_for_every_state(ask: Ask, policy: str) -> None:
    plan = _promises(OPTIONS[policy], ask)
    assert 0 <= plan.expected_accuracy <= 1
    assert 0 <= plan.expected_violation <= 1
    for queue in range(1, len(plan.table.model) + 2):
        for slack_s in (-1.0, 0.0, ask.slo_s / 3, ask.slo_s):
            assert plan.table.choose(queue, slack_s).batch == queue


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(any_asks())
def test_a_table_that_may_leave_queries_gives_fractions_and_batches_that_are_there(
    ask: Ask,
) -> None:
    plan = _promises(OPTIONS["ramsis-variable"], replace(ask, dispersion=1.0))
    assert 0 <= plan.expected_accuracy <= 1
    assert 0 <= plan.expected_violation <= 1
    for queue in range(1, len(plan.table.model) + 2):
        for slack_s in (-1.0, 0.0, ask.slo_s / 3, ask.slo_s):
            assert 1 <= plan.table.choose(queue, slack_s).batch <= queue


def test_variable_batching_is_never_worse() -> None:
    for qps in (20.0, 120.0, 220.0):
        part, whole = (
            solved(OPTIONS[policy], an_ask(qps)) for policy in ("ramsis-variable", "ramsis")
        )
        right = [plan.expected_accuracy * (1 - plan.expected_violation) for plan in (part, whole)]
        # Late queues have other choices, and the slack of the rest is rounded again.
        assert right[0] >= right[1] - 5e-3


def test_bursts_with_variable_batching_are_refused() -> None:
    with pytest.raises(SelectionError, match="use whole-queue batching"):
        solved(OPTIONS["ramsis-variable"], an_ask(dispersion=2.0))


def test_more_choices_than_fit_in_memory_are_refused() -> None:
    many = tuple(
        CandidateModel(f"m{n}", 0.5 + n / 400, tuple(1e-3 * b + n * 1e-5 for b in range(1, 33)))
        for n in range(100)
    )
    with pytest.raises(SelectionError, match="does not fit in memory; use fewer models"):
        solved(OPTIONS["ramsis-variable"], an_ask(models=many))
