"""Lengths of the runs of queries sent to a worker, and tables for runs."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.small_cluster import a_cluster
from control.policies import POLICIES
from control.policies.option_fields import with_options
from control.policies.ramsis.burst_lengths import (
    ArrivalStream,
    Way,
    batches_of,
    by_queries,
    gathered,
    gathered_arrivals,
    in_runs,
    overrun,
    sustained_qps,
    ways,
)
from control.policies.ramsis.mdp_solver import falls_short
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.table_leases import lease_batch, run_lengths
from control.policies.ramsis.tables import BATCHING, OPTIONS, Ask, TableEntry, setting_for, solved
from control.problem.problem import SelectionError
from headrace.config.pipeline_file import read_pipeline_file
from tests.property_examples import at_most
from tests.selection_world import FAST, GOOD, USUALLY_QUICK

RAMSIS = OPTIONS["ramsis"]
# Eight together take three times as long as one.
QUICK = CandidateModel("quick", 0.6, (0.020, 0.026, 0.032, 0.037, 0.043, 0.049, 0.054, 0.060))
SLOW = CandidateModel("slow", 0.8, (0.030, 0.040, 0.050, 0.060, 0.070, 0.080, 0.090, 0.100))
TEN = ArrivalStream(qps=800.0, workers=10, slo_s=0.1)
RUNS = tuple(range(1, 9))


def an_ask(qps: float, runs: tuple[int, ...] = RUNS, workers: int = 10) -> Ask:
    return Ask(models=(QUICK, SLOW), slo_s=0.1, workers=workers, qps=qps, runs=runs)


def test_the_first_of_a_run_waits_for_the_last() -> None:
    assert TEN.gathering_s(1) == 0
    assert TEN.gathering_s(5) == pytest.approx(4 / 800)


def test_a_run_has_to_come_together_in_a_tenth_of_the_budget() -> None:
    assert [run for run in RUNS if TEN.gathers(run)] == [1, 2, 3]
    assert [run for run in RUNS if replace(TEN, qps=4000.0).gathers(run)] == [*RUNS]
    assert [run for run in RUNS if replace(TEN, qps=50.0).gathers(run)] == [1]


def test_no_more_come_together_than_a_tenth_of_the_budget_has() -> None:
    assert [gathered_arrivals(qps, 0.1) for qps in (0.0, 99.0, 100.0, 450.0)] == [1, 1, 2, 5]
    assert gathered_arrivals(math.inf, 0.1) > 1000


def test_without_a_load_or_with_one_worker_queries_go_one_by_one() -> None:
    for stream in (replace(TEN, qps=0.0), replace(TEN, qps=4000.0, workers=1)):
        assert [run for run in RUNS if stream.gathers(run)] == [1]


def test_the_most_promising_runs_come_first_and_those_that_do_not_fit_not_at_all() -> None:
    stream = ArrivalStream(qps=4000.0, workers=60, slo_s=0.05)
    found = ways([QUICK], stream, RUNS)
    # Six take 49 ms, and the first of them has waited for 1.25.
    assert sorted(way.run for way in found) == [1, 2, 3, 4, 5]
    assert [way.at_most for way in found] == sorted((w.at_most for w in found), reverse=True)


def test_first_run_length_is_the_best_if_no_run_waits_for_another() -> None:
    # In eights quick serves 133 a second, slow 80; in sevens 130 and 78.
    stream = replace(TEN, qps=1320.0, slo_s=0.2)
    assert ways([QUICK, SLOW], stream, RUNS)[0].run == 8


def test_a_worker_with_time_to_spare_may_be_as_accurate_as_its_best_model() -> None:
    assert ways([QUICK, SLOW], replace(TEN, qps=10.0), RUNS) == [Way(1, 0.8, 0.8)]


def test_worker_with_time_for_the_better_model_half_of_the_time_mixes_models() -> None:
    # In fours one takes 9.25 ms a query, the other 15 ms.
    only = [CandidateModel(m.name, m.accuracy, m.latency_s[:4]) for m in (QUICK, SLOW)]
    stream = replace(TEN, qps=10 / ((0.00925 + 0.015) / 2), slo_s=0.2)
    (way,) = ways(only, stream, [4])
    assert (way.at_most, way.alone) == (pytest.approx(0.7), pytest.approx(0.7))


def test_worker_that_cannot_keep_up_serves_only_a_part() -> None:
    only = [CandidateModel("quick", 0.6, QUICK.latency_s[:4])]
    (way,) = ways(only, replace(TEN, qps=10 / 0.00925 * 2), [4])
    assert (way.at_most, way.alone) == (pytest.approx(0.3), 0.0)


def test_runs_in_overload_are_those_that_serve_most_and_leave_time_to_wait() -> None:
    among = [Way(run, 0.0, 0.0) for run in RUNS]
    assert overrun([QUICK], replace(TEN, slo_s=0.08), among).run == 8
    assert overrun([QUICK], replace(TEN, slo_s=0.07), among).run == 7
    assert overrun([QUICK], replace(TEN, slo_s=0.021), among).run == 1


def test_a_longer_batch_serves_more_of_an_overload_until_little_may_wait_beside_it() -> None:
    # The capacity is 80 in 60 ms, and 46 may wait; at an SLO of 65.5 ms none may.
    assert sustained_qps(TEN, 8, 0.06) == pytest.approx(
        80 / 0.06 * (1 - 0.5 / (80 / 0.06 * (0.04 - 7 * 0.06 / 80)))
    )
    assert sustained_qps(replace(TEN, slo_s=0.0655), 8, 0.06) == 0.0
    assert sustained_qps(replace(TEN, workers=0), 8, 0.06) == 0.0


def test_the_lease_has_the_batch_that_serves_most_of_an_overload_where_ingress_keeps_it_short() -> (
    None
):
    setting = setting_for(RAMSIS, Ask(models=(QUICK, SLOW), slo_s=0.1, workers=10, qps=800.0))
    assert lease_batch(setting, RUNS, admitted=True) == (QUICK, 8)
    assert lease_batch(setting, RUNS[:6], admitted=True) == (QUICK, 6)
    # 60 ms are 0.6 of the SLO, 49 are half of it.
    assert lease_batch(
        replace(setting, slo_s=0.09, levels_s=(0.0, 0.09)), RUNS, admitted=False
    ) == (QUICK, 7)
    assert lease_batch(setting, (1,), admitted=True) == (QUICK, 6)
    tight = replace(setting, slo_s=0.021, levels_s=(0.0, 0.021))
    assert lease_batch(tight, RUNS, admitted=True) == (QUICK, 1)


def test_model_in_runs_keeps_batches_that_are_multiples_of_the_run() -> None:
    assert in_runs(QUICK, 3) == CandidateModel("quick", 0.6, (0.032, 0.049))
    assert in_runs(FAST, 4) is None
    assert in_runs(USUALLY_QUICK, 2) == CandidateModel("quick", 0.8, (0.080,), (0.018,))
    assert in_runs(FAST, 1) == FAST


def test_slack_levels_end_at_the_slack_left_by_gathering() -> None:
    assert gathered((0.0, 0.05, 0.1), 0.08) == (0.0, 0.05, 0.08)
    assert gathered((0.0, 0.05, 0.1), 0.1) == (0.0, 0.05, 0.1)


def test_table_rows_of_runs_are_expanded_to_queries() -> None:
    assert by_queries([[7], [8], [9]], 2) == ((7,), (7,), (8,), (8,), (9,))
    assert batches_of([[1], [2], [3]], 2) == ((1,), (2,), (3,), (4,), (5,))
    assert batches_of([[1], [1], [2]], 2) == ((1,), (2,), (2,), (2,), (4,))
    assert batches_of([[1, 1], [2, 1], [3, 3]], 1) == ((1, 1), (2, 1), (3, 3))


def test_table_for_runs_chooses_no_more_queries_than_are_queued() -> None:
    table = solved(RAMSIS, an_ask(800.0, (3,))).table
    assert table.run == 3
    assert len(table.model) == 7
    assert [table.choose(n, 0.0).batch for n in (1, 2, 3, 4, 5, 6, 7, 30)] == [
        1, 2, 3, 4, 5, 6, 7, 30,
    ]  # fmt: skip
    assert table.choose(3, 0.0) == TableEntry("quick", 3)


def test_best_of_several_run_lengths_is_taken() -> None:
    alone = {run: solved(RAMSIS, an_ask(900.0, (run,))) for run in (1, 2, 3, 4)}
    best = solved(RAMSIS, an_ask(900.0, (1, 2, 3, 4)))
    worth = {
        run: RAMSIS.objective.mean(plan.expected_accuracy, plan.expected_violation)
        for run, plan in alone.items()
    }
    assert best.table.run == max(worth, key=lambda run: worth[run]) > 1
    assert best.table == alone[best.table.run].table


def test_runs_beyond_capacity_are_those_that_serve_most() -> None:
    plan = solved(RAMSIS, an_ask(20_000.0))
    assert (plan.table.run, plan.feasible) == (8, False)


@settings(max_examples=at_most(25), deadline=None)
@given(st.floats(300.0, 1600.0), st.integers(1, 4), st.integers(2, 20))
def test_no_table_is_better_than_the_best_mixture_of_batches(
    qps: float, run: int, workers: int
) -> None:
    models = (QUICK, SLOW, GOOD)
    ask = replace(an_ask(qps, (run,), workers), models=models)
    plan = solved(replace(RAMSIS, steps=20), ask)
    worth = plan.expected_accuracy * (1 - plan.expected_violation)
    stream = ArrivalStream(qps=qps, workers=workers, slo_s=ask.slo_s)
    for way in ways(models, stream, [run]):
        assert worth <= way.at_most + 1e-6


@settings(max_examples=at_most(25), deadline=None)
@given(st.floats(300.0, 1600.0), st.integers(1, 4), st.floats(0.001, 0.2))
def test_objective_reached_by_a_table_is_never_called_unreachable(
    qps: float, run: int, apart: float
) -> None:
    options, ask = replace(RAMSIS, steps=20), an_ask(qps, (run,))
    plan = solved(options, ask)
    worth = plan.expected_accuracy * (1 - plan.expected_violation)
    process = BATCHING[options.batching](setting_for(options, ask, run))
    assert not falls_short(process, options.objective, worth - 1e-5)
    assert falls_short(process, options.objective, worth + apart, sweeps=2000)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"qps": 0.0},
        {"workers": 1000, "qps": 50_000.0},
        {"workers": 1},
        {"models": (QUICK,)},
        {"models": (QUICK, QUICK)},
        {"models": (CandidateModel("odd", 0.7, (0.05, 0.03, 0.04)),)},
        {"models": (CandidateModel("single", 0.7, (0.02,)),)},
        {"dispersion": 4.0},
        {"slo_s": 0.0201},
    ],
)
def test_edge_cases_have_a_valid_plan(changes: dict[str, Any]) -> None:
    plan = solved(RAMSIS, replace(an_ask(900.0), **changes))
    assert 0 <= plan.expected_accuracy <= 1
    assert 0 <= plan.expected_violation <= 1
    assert plan.table.choose(plan.table.run, 0.0).batch <= plan.table.run


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slo_s": 0.01}, "raise the SLO or add a faster model"),
        ({"models": ()}, "name one variant"),
        ({"qps": float("nan")}, "0 or above and finite"),
        ({"workers": 0}, "it takes one at least"),
    ],
)
def test_invalid_requests_are_refused_as_without_runs(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SelectionError, match=said):
        solved(RAMSIS, replace(an_ask(900.0), **changes))


def test_runs_are_for_the_only_ingress_of_a_pipeline_of_one_task(tmp_path: Path) -> None:
    alone = read_pipeline_file(a_cluster(tmp_path, children={"read": []})).pipeline
    several = a_cluster(
        tmp_path, children={"read": []}, cluster={"devices": {"emulated": 4}, "ingress": 2}
    )
    ramsis = POLICIES["ramsis"].usual
    assert run_lengths(alone, ramsis) == tuple(range(1, 33))
    assert run_lengths(alone, with_options(ramsis, longest_run=1)) == (1,)
    assert run_lengths(alone, POLICIES["ramsis-paper"].usual) == (1,)
    assert run_lengths(read_pipeline_file(several).pipeline, ramsis) == (1,)
    assert run_lengths(read_pipeline_file(a_cluster(tmp_path)).pipeline, ramsis) == (1,)
