"""Plain queues and the nodes give the same results for round robin."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.ramsis_baselines import Fixed, held
from benchmarks.papers.ramsis_nodes import fixed
from benchmarks.papers.ramsis_queues import (
    Seen,
    always,
    capped,
    central,
    decided,
    in_runs,
    round_robin,
)
from benchmarks.papers.ramsis_trials import Cluster
from control.policies import POLICIES
from control.policies.option_fields import with_options
from control.policies.ramsis.burst_lengths import SAVING
from control.policies.ramsis.central_queue import make
from control.policies.ramsis.table_builder import TableProblem
from control.policies.ramsis.table_leases import central_lease, most_throughput
from control.policies.ramsis.tables import OPTIONS, Ask, options_for, setting_for, solved
from headrace.arrivals.arrival_processes import Recorded, poisson
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from schemas.pipeline import Policy
from streams.simulated.delays import DelayTrace
from tests.selection_world import SLO_S, TWO_MODELS, a_two_model_file

SMALL = Cluster(models=TWO_MODELS, slo_s=SLO_S, workers=3)
AT_ONCE = ((0.0, 0.0),)  # hops


@pytest.fixture
def file(tmp_path: Path) -> PipelineFile:
    return read_pipeline_file(a_two_model_file(tmp_path))


def by_nodes(
    file: PipelineFile, policy: Policy, times: np.ndarray, admission: bool = False
) -> Seen:
    pipeline = replace(file.pipeline, policies=(policy,), admission=admission)
    run = Run(
        file=replace(file, pipeline=pipeline),
        policy=policy.name,
        seed=1,
        arrivals=Recorded(times),
        latency="p95",
        replay=DelayTrace(seconds=1.0, hops=AT_ONCE),
    )
    account = simulated(run, lambda sent: None).metrics
    counts, in_time = account.counts, account.counts["answered"]
    late = counts["late"] + counts["dropped"] + counts["refused"]
    assert sum(counts.values()) == in_time + late
    return Seen(len(times), late, 0, (account.accuracy or 0.0) * in_time)


@pytest.mark.parametrize(
    ("choice", "qps"),
    [(Fixed("quick", 4), 460.0), (Fixed("quick", 1), 280.0), (Fixed("right", 3), 100.0)],
)
def test_a_fixed_choice_gives_the_same_figures_in_queues_and_nodes(
    file: PipelineFile, choice: Fixed, qps: float
) -> None:
    times = poisson(qps, 10.0, np.random.default_rng(4))
    decide = decided([held(choice, SMALL.models, SLO_S, qps)], SMALL.models, always)
    nodes = by_nodes(file, fixed(choice, SMALL.workers), times)
    bare = round_robin(times.tolist(), SMALL.workers, decide, SLO_S)
    # The nodes count deadlines from the record's time stamp, which has millisecond resolution.
    assert nodes.served == bare.served
    assert nodes.late == pytest.approx(bare.late, abs=0.01 * bare.served)
    assert 0 < bare.late < bare.served
    assert nodes.accuracy == pytest.approx(bare.accuracy)


@pytest.mark.parametrize("qps", [420.0, 460.0])
def test_runs_give_the_same_figures_in_queues_and_nodes(file: PipelineFile, qps: float) -> None:
    times = poisson(qps, 10.0, np.random.default_rng(4))
    ask = Ask(models=SMALL.models, slo_s=SLO_S, workers=3, qps=qps, runs=tuple(range(1, 33)))
    table = solved(OPTIONS["ramsis"], ask).table
    assert table.run > 1
    lease = most_throughput(setting_for(OPTIONS["ramsis"], ask), SAVING)
    decide = decided([table], SMALL.models, always)
    bare = in_runs(times.tolist(), 3, decide, SLO_S, capped(*lease), lambda now: table.run)
    nodes = by_nodes(file, with_options(POLICIES["ramsis"].usual, loads=(qps,)), times)
    assert nodes.served == bare.served
    assert nodes.late == pytest.approx(bare.late, abs=0.01 * bare.served)
    assert nodes.accuracy == pytest.approx(bare.accuracy, abs=0.002)


def test_refusals_under_overload_give_the_same_figures_in_queues_and_nodes(
    file: PipelineFile,
) -> None:
    qps = 600.0
    times = poisson(qps, 10.0, np.random.default_rng(4))
    ask = Ask(models=SMALL.models, slo_s=SLO_S, workers=3, qps=qps, runs=tuple(range(1, 33)))
    table, lease = solved(OPTIONS["ramsis"], ask).table, SMALL.lease()
    decide = decided([table], SMALL.models, always)
    rescue, planned = SMALL.rescue(lease), SMALL.planned(lease)
    bare = in_runs(times.tolist(), 3, decide, SLO_S, rescue, lambda now: table.run, planned)
    policy = with_options(POLICIES["ramsis"].usual, loads=(qps,))
    nodes = by_nodes(file, policy, times, admission=True)
    assert nodes.served == bare.served
    assert bare.late > 0.15 * bare.served
    assert nodes.late == pytest.approx(bare.late, abs=0.01 * bare.served)


@pytest.mark.thorough
@pytest.mark.parametrize("qps", [150.0, 300.0, 420.0])
def test_a_central_queue_gives_the_same_figures_in_queues_and_nodes(
    file: PipelineFile, qps: float
) -> None:
    times = poisson(qps, 10.0, np.random.default_rng(4))
    ask = Ask(models=SMALL.models, slo_s=SLO_S, workers=3, qps=qps)
    policy = POLICIES["ramsis-central"].usual
    options = options_for(policy.kind, policy)
    table = make(TableProblem(kind=policy.kind, ask=ask, options=options)).table
    rescue = capped(*central_lease(setting_for(options, ask)))
    decide = decided([table], SMALL.models, always)
    bare = central(times.tolist(), 3, decide, SLO_S, rescue)
    nodes = by_nodes(file, with_options(policy, loads=(qps,), lead=0.0), times)
    assert nodes.served == bare.served
    assert nodes.late == pytest.approx(bare.late, abs=0.01 * bare.served)
    assert nodes.accuracy == pytest.approx(bare.accuracy, abs=0.003)
