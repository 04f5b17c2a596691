"""Null models: the calibration figures, and a queue in closed form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.small_cluster import a_cluster
from headrace.config.pipeline_file import read_pipeline_file
from headrace.fidelity.null_models import at_nearest_rate, null_models, queueing
from streams.simulated.world import World
from tests.unit.headrace.simulation.test_world_file import FIGURES, a_calibration


def test_the_calibration_stands_for_the_nearest_of_its_rates(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    one = a_calibration(file)
    (phase,) = one.world.phases
    other = replace(FIGURES, p50_ms=80.0)
    phases = (phase, phase, replace(phase, rate_qps=60.0))
    several = replace(
        one, world=World(phases), figures=(FIGURES, replace(FIGURES, p50_ms=50.0), other)
    )
    assert at_nearest_rate(several, 30.0)["p50_ms"] == 45.0  # the mean of both passes at 20/s
    assert at_nearest_rate(several, 90.0)["p50_ms"] == 80.0


def test_an_idle_queue_takes_the_batches_of_its_plan_and_a_full_one_is_no_model(
    tmp_path: Path,
) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    idle = queueing(file, "fast", 0.01, np.random.default_rng(0))
    # Plan "fast": batches of 8 of 45 ms at both tasks.
    assert idle["p50_ms"] == pytest.approx(90.0, rel=0.01)
    assert idle["violation"] == 0.0
    loaded = queueing(file, "fast", 60.0, np.random.default_rng(0))
    assert (loaded["p99_ms"] or 0) > (idle["p99_ms"] or 0)
    assert queueing(file, "fast", 1e6, np.random.default_rng(0)) == {}


def test_a_policy_that_plans_by_tables_has_the_calibration_only(tmp_path: Path) -> None:
    folder = Path(__file__).parents[4] / "examples" / "postcode"
    file = read_pipeline_file(folder / "read.yaml")
    assert queueing(file, "ramsis", 10.0, np.random.default_rng(0)) == {}
    assert null_models(file, "ramsis", None, 10.0, 1.0, np.random.default_rng(0)) == {}
