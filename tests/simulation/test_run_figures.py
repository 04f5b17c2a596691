"""Figures from the recorded answers and plans equal the figures counted during the run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Recorded, poisson
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.results.figures import figures
from headrace.results.latency_steps import StepTimes
from headrace.roles.profile_lookups import accuracies
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from schemas.effects import Effect, Event, Send
from schemas.records import Answer, Plan
from streams.observers.run_metrics import RunMetrics, given_up

SECONDS = 20.0


class Topics:
    """Record the answers and plans that are written."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.plans: list[Plan] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        written = [effect.record for effect in effects if type(effect) is Send]
        self.answers += [record for record in written if type(record) is Answer]
        self.plans += [record for record in written if type(record) is Plan]


@pytest.mark.parametrize("warm_up_s", [0.0, 5.0])
@pytest.mark.parametrize("rate_qps", [20.0, 200.0])
def test_topics_tell_the_same_figures_as_the_nodes(
    tmp_path: Path, warm_up_s: float, rate_qps: float
) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    times = poisson(rate_qps, SECONDS, np.random.default_rng(3))
    run = Run(file=file, policy="static", seed=1, arrivals=Recorded(times), warm_up_s=warm_up_s)
    topics, watches = Topics(), list[StepTimes]()

    def watch(metrics: RunMetrics) -> StepTimes:
        watches.append(StepTimes(metrics))
        return watches[-1]

    ended = simulated(run, lambda sent: None, (topics,), watch)
    since_s = ended.first_s + warm_up_s
    metrics = RunMetrics(file.pipeline, accuracies(load_profile(file)), since_s)
    steps = StepTimes()
    for plan in topics.plans:
        metrics.plan(plan, plan.issued_s)
    for answer in topics.answers:
        if answer.created_s >= since_s:
            metrics.take(answer, given_up(answer), answer.answered_s)
            steps.take(answer)
    metrics.close(ended.queries)
    found = figures(metrics, steps, ended.last_s)
    assert found == figures(ended.metrics, watches[0], ended.last_s)
    assert found.queries == ended.queries
    assert ended.devices_mean == found.devices_mean == pytest.approx(sum(found.replicas.values()))
    assert sum(found.drops.values()) == pytest.approx(found.violation)
    assert sum(found.steps_ms.values()) > 0
