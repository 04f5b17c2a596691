"""Policies that plan by demand use the observed sizes of queries, in virtual time."""

from pathlib import Path

import numpy as np
import pytest

from headrace.arrivals.arrival_processes import Recorded
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.device_mix import with_mix
from headrace.simulation.faults import CONTROL_DOWN, Fault
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from tests.typed_files import RANK, a_typed_file

# The file gives no sizes. A gpu takes 80 ms for the largest query, 10 ms for the smallest.
UNKNOWN = RANK.replace("sizes: sizes.csv\n", "").replace("slo: 100ms", "slo: 400ms")
RATE, SECONDS = 120.0, 40.0  # four of them serve 50/s of the largest queries


@pytest.mark.parametrize("faults", [(), (Fault(at_s=28.0, kind=CONTROL_DOWN, for_s=1.0),)])
def test_small_queries_are_admitted_once_a_thousand_were_seen(
    tmp_path: Path, faults: tuple[Fault, ...]
) -> None:
    text = UNKNOWN.replace("policy: kairos", "policy: loki")
    file = with_mix(read_pipeline_file(a_typed_file(tmp_path, text)), {"gpu": 4})
    times = np.arange(0.0, SECONDS, 1 / RATE)
    arrivals = Recorded(times, (10,) * len(times))
    run = Run(file=file, policy="loki", seed=1, arrivals=arrivals, faults=faults, warm_up_s=25.0)
    ended = simulated(run, lambda sent: None)
    assert ended.metrics.counts["answered"] > 0.97 * ended.queries
