"""A run may begin at any fraction of a clock second; demand is counted by clock seconds."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Rates
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from operators.reporter import INTERVAL_S
from schemas.effects import Effect, Event


@pytest.mark.parametrize("phase_s", [0.0, 0.3125, 0.9375])
def test_arrivals_begin_at_the_given_part_of_a_second(phase_s: float, tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    run = Run(file=file, policy="loki", seed=0, arrivals=Rates((20.0,) * 2), phase_s=phase_s)
    assert simulated(run, lambda _: None).first_s % 1 == pytest.approx(phase_s, abs=1e-9)


class Started:
    """An observer that keeps the time of every node's first event."""

    def __init__(self) -> None:
        self.at_s: dict[str, float] = {}

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.at_s.setdefault(node, now)


def test_processes_that_start_apart_tick_and_report_out_of_step(tmp_path: Path) -> None:
    file, times = read_pipeline_file(a_cluster(tmp_path)), Rates((20.0,))
    workers, others = set[float](), list[float]()
    for seed in range(4):
        run = Run(file=file, policy="loki", seed=seed, arrivals=times, apart_s=INTERVAL_S)
        started = Started()
        simulated(run, lambda _: None, (started,))
        own = {at_s for name, at_s in started.at_s.items() if name.startswith("emulated")}
        assert len(own) == 1  # they share a process
        workers |= own
        others += [at_s for name, at_s in started.at_s.items() if not name.startswith("emulated")]
    found = [*workers, *others]
    assert len(set(found)) == len(found) == 4 * 4
    assert max(found) < INTERVAL_S
