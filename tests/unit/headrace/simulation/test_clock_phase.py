"""A run may begin at any fraction of a clock second; demand is counted by clock seconds."""

from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Rates
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated


@pytest.mark.parametrize("phase_s", [0.0, 0.3125, 0.9375])
def test_arrivals_begin_at_the_given_part_of_a_second(phase_s: float, tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    run = Run(file=file, policy="loki", seed=0, arrivals=Rates((20.0,) * 2), phase_s=phase_s)
    assert simulated(run, lambda _: None).first_s % 1 == pytest.approx(phase_s, abs=1e-9)
