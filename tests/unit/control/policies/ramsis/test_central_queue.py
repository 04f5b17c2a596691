"""Tables for one central queue: their choices, the selection of a candidate, and trials."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.ramsis_queues import always, capped, central, decided
from control.policies import POLICIES
from control.policies.option_fields import with_options
from control.policies.ramsis.central_queue import (
    FULL,
    best_table,
    candidates,
    central_table,
    full_queue,
    make,
)
from control.policies.ramsis.central_trial import TrialQuality, Workers, trial_of, trial_quality
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.table_builder import TableProblem
from control.policies.ramsis.table_leases import central_lease
from control.policies.ramsis.tables import Ask, Table, TableEntry, options_for, setting_for
from control.problem.problem import SelectionError
from headrace.arrivals.arrival_processes import poisson

QUICK = CandidateModel("quick", 0.6, (0.01, 0.015, 0.02, 0.025))
RIGHT = CandidateModel("right", 0.8, (0.03, 0.05, 0.07, 0.09))
SLO_S = 0.1
OPTIONS = options_for("ramsis-central", POLICIES["ramsis-central"].usual)


def ask(qps: float, workers: int = 3, dispersion: float = 1.0) -> Ask:
    return Ask(models=(QUICK, RIGHT), slo_s=SLO_S, workers=workers, qps=qps, dispersion=dispersion)


def problem(qps: float, violation: float | None = None, **changes: float) -> TableProblem:
    return TableProblem(
        kind="ramsis-central", ask=ask(qps, **changes), options=OPTIONS, violation=violation
    )  # type: ignore[arg-type]


def the_workers(count: int = 3) -> Workers:
    setting = setting_for(OPTIONS, ask(1.0, count))
    model, batch = central_lease(setting)
    return Workers(
        models=setting.models, slo_s=SLO_S, count=count,
        rescue=(setting.models.index(model), batch),
    )  # fmt: skip


def test_a_short_queue_is_served_well_and_a_long_one_fast() -> None:
    table = central_table(setting_for(OPTIONS, ask(80.0)), 80.0, patience=8, margin=1.0)
    assert table.choose(1, 0.1).model == "right"
    assert table.choose(40, 0.1) == TableEntry("quick", 4)
    # Queries that are late in any case do not delay the others for long.
    assert table.choose(4, 0.0) == TableEntry("quick", 4)


def test_without_load_a_query_gets_the_most_accurate_model() -> None:
    plan = make(problem(0.0))
    assert plan.table.qps == 0.0
    assert plan.table.choose(1, SLO_S).model == "right"
    assert (plan.expected_accuracy, plan.expected_violation) == (pytest.approx(0.8), 0.0)


def test_no_choice_takes_longer_than_the_slack_where_one_fits() -> None:
    seconds = {model.name: model.latency_s for model in (QUICK, RIGHT)}
    for table in candidates(setting_for(OPTIONS, ask(60.0)), 60.0):
        for queue in (1, 2, 5, 100):
            for slack in (0.02, 0.04, 0.1):
                chosen = table.choose(queue, slack + 1e-9)
                assert chosen.batch <= queue
                assert seconds[chosen.model][chosen.batch - 1] <= slack + 2e-9


def test_best_candidate_is_the_most_accurate_of_those_rarely_late() -> None:
    tried = [
        (
            Table(qps=qps, models=(), levels_s=(), model=(), batch=()),
            TrialQuality(accuracy, violation),
        )
        for qps, accuracy, violation in ((1.0, 0.9, 0.01), (2.0, 0.7, 0.0), (3.0, 0.8, 0.0005))
    ]
    assert best_table(tried, 0.001)[0].qps == 3.0
    assert best_table(tried, 0.02)[0].qps == 1.0  # a budget for late queries
    assert best_table(tried[:1], 0.001)[0].qps == 1.0  # no candidate keeps to it


@pytest.mark.parametrize("qps", [30.0, 100.0, 250.0, 400.0])
def test_a_trial_agrees_with_the_bare_queue(qps: float) -> None:
    setting, workers = setting_for(OPTIONS, ask(qps)), the_workers()
    times = poisson(qps, 20.0, np.random.default_rng(3)).tolist()
    for table in candidates(setting, qps):
        decide = decided([table], setting.models, always)
        rescue = capped(setting.models[workers.rescue[0]], workers.rescue[1])
        bare = central(times, 3, decide, SLO_S, rescue)
        tried = trial_quality(table, workers, times)
        assert tried.violation == pytest.approx(bare.violation, abs=0.003)
        assert tried.accuracy == pytest.approx(bare.accuracy, abs=0.003)


@pytest.mark.thorough
def test_plan_reports_the_figures_of_its_trial_and_more_load_costs_accuracy() -> None:
    plans = [make(problem(qps)) for qps in (30.0, 100.0, 250.0, 400.0)]
    for plan in plans:
        assert trial_of(plan.table, the_workers()) == TrialQuality(
            plan.expected_accuracy, plan.expected_violation
        )
    accuracies = [plan.expected_accuracy for plan in plans]
    assert accuracies == sorted(accuracies, reverse=True)
    assert [plan.feasible for plan in plans] == [True, True, True, True]
    assert not make(problem(2000.0)).feasible


def test_central_queue_is_at_least_as_accurate_as_a_queue_at_each_worker() -> None:
    shared, alone = make(problem(120.0, workers=3)), make(problem(40.0, workers=1))
    assert shared.expected_accuracy > alone.expected_accuracy


def test_a_budget_of_late_queries_buys_accuracy() -> None:
    strict, generous = make(problem(200.0)), make(problem(200.0, violation=0.2))
    assert generous.expected_violation <= 0.2
    assert generous.expected_accuracy * (1 - generous.expected_violation) >= (
        strict.expected_accuracy * (1 - strict.expected_violation)
    )


def test_non_poisson_arrivals_are_refused_with_a_remedy() -> None:
    with pytest.raises(SelectionError, match="use ramsis, or a dispersion of 1"):
        make(problem(100.0, dispersion=4.0))


def test_the_options_of_the_kind_reach_its_tables() -> None:
    policy = with_options(POLICIES["ramsis-central"].usual, steps=20)
    setting = setting_for(options_for("ramsis-central", policy), ask(50.0))
    assert len(central_table(setting, 50.0, 8, 1.0).levels_s) == 21


@given(qps=st.floats(1.0, 1e5), slo_s=st.floats(0.05, 10.0))
def test_the_full_queue_is_longer_than_any_batch(qps: float, slo_s: float) -> None:
    setting = setting_for(OPTIONS, Ask(models=(QUICK, RIGHT), slo_s=slo_s, workers=2, qps=qps))
    full = full_queue(setting, qps)
    assert FULL[0] <= full <= FULL[1]
    assert full > setting.longest
