"""headrace/simulation/paid_batches.py: batches that wait until earlier ones are paid for."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from threading import Condition
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Recorded
from headrace.config.pipeline_file import read_pipeline_file
from headrace.roles.workers.device_time import SAVED_S, DeviceTime
from headrace.roles.workers.shared_cpu import PartOperator, SharedCpu
from headrace.simulation.overrides import overridden
from headrace.simulation.paid_batches import PaidBatches, own_rates
from headrace.simulation.run_input import Run, real_workers
from headrace.simulation.simulation_nodes import SimulatedNodes

RATE = 0.125
Asked = Sequence[tuple[float, float]]  # seconds since the batch before ended, seconds that it runs
SCHEDULES = st.lists(st.tuples(st.floats(0.0, 0.5), st.floats(0.001, 0.05)), max_size=30)


@dataclass
class Model:
    """A variant whose next batch runs for ``runs_s``."""

    runs_s: float = 0.0
    load_s: float = 0.0

    def latency_s(self, batch: int) -> float:
        return self.runs_s

    def predict(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


def simulated(asked: Asked, cpu_s: float = inf) -> list[tuple[float, float]]:
    """Return the start and end of each batch, as a simulation has them."""
    model, now, found = Model(), [0.0], []
    paid = PaidBatches(model, DeviceTime(1, RATE, 0.0), lambda: now[0], lambda _: cpu_s)
    for gap_s, runs_s in asked:
        now[0] += gap_s
        model.runs_s = runs_s
        began_s = now[0]
        now[0] += paid.latency_s(1)
        found.append((began_s, now[0]))
    return found


@dataclass
class Live:
    """An operator that computes for ``runs_s`` and waits ``blocked_s`` for a core, and the clock of
    its thread."""

    now: float = 0.0
    used_s: float = 0.0
    runs_s: float = 0.0
    blocked_s: float = 0.0
    device: str = field(default="", init=False)

    def load(self, device: str) -> None:
        self.device = device

    def predict(self, batch: list[Any]) -> list[Any]:
        self.now += self.runs_s + self.blocked_s
        self.used_s += self.runs_s
        return batch

    def wait(self, _: Condition, seconds: float) -> None:
        self.now += seconds


def live(asked: Asked, blocked_s: float = 0.0) -> list[tuple[float, float, float]]:
    """Return the start and end of each batch, as a worker's executor sees them, and what the worker
    is charged for it."""
    there, found = Live(blocked_s=blocked_s), []
    cpu = SharedCpu(1, RATE, lambda: there.now, there.wait)
    operator = PartOperator(there, cpu, 0, apart=False, thread_s=lambda: there.used_s)
    for gap_s, runs_s in asked:
        there.now += gap_s
        there.runs_s = runs_s
        began_s = there.now
        operator.predict([0])
        found.append((began_s, there.now, cpu.charged_s(0)))
    return found


@given(SCHEDULES)
def test_a_simulated_worker_waits_as_a_live_one(asked: Asked) -> None:
    for one, other in zip(simulated(asked), live(asked), strict=True):
        assert one == pytest.approx(other[:2], abs=1e-6)


def test_waiting_for_a_core_is_not_charged() -> None:
    """A batch runs for ten times its CPU time on a core with other users."""
    assert simulated([(1.0, 0.2), (0.0, 0.02)], cpu_s=0.02)[-1][1] == pytest.approx(1.22)
    assert simulated([(1.0, 0.2), (0.0, 0.02)])[-1][1] > 2.0


def test_batches_beyond_the_share_take_the_share_s_time() -> None:
    ends = [ended_s for _, ended_s in simulated([(0.0, 0.01)] * 1000)]
    # It begins with its savings and owes nothing when the last one begins.
    assert ends[-1] == pytest.approx((9.99 - RATE * SAVED_S) / RATE + 0.01)


@pytest.mark.parametrize(
    ("devices", "changes", "paying"),
    [
        ({"cpu": 2, "emulated": 1}, {"share": 0.5}, {"cpu-0": 0.5, "cpu-1": 0.5}),
        ({"cpu": 1, "cuda:0": 1}, {"share": 0.5}, {"cpu-0": 0.5}),
        ({"cpu": 2}, {}, {}),
        ({"cpu": 2}, {"share": 0.5, "tasks_per_device": 2}, {}),
    ],
)
def test_workers_on_a_part_of_a_cpu_pay_for_their_own_batches(
    tmp_path: Path, devices: dict[str, int], changes: dict[str, Any], paying: dict[str, float]
) -> None:
    file = overridden(read_pipeline_file(a_cluster(tmp_path)), devices)
    file = replace(file, cluster=replace(file.cluster, **changes))
    assert own_rates(file, real_workers(file)) == paying


def test_a_worker_on_a_device_rented_later_pays_like_the_first_ones(tmp_path: Path) -> None:
    path, profile = a_cluster(tmp_path), tmp_path / "profile.json"
    profile.write_text(profile.read_text().replace("cuda:0", "cpu"))
    file = overridden(read_pipeline_file(path), {"cpu": 1})
    file = replace(file, cluster=replace(file.cluster, share=0.5))
    run = Run(file=file, policy="fast", seed=0, arrivals=Recorded(np.zeros(1)), latency="p50")
    nodes = SimulatedNodes(run, lambda: 0.0, lambda: 0.0)
    nodes.rent("rented-0", "cpu")
    for name in ("cpu-0", "rented-0"):
        nodes.node(name, 0.0)
        assert isinstance(nodes.batches(name, "detect/small"), PaidBatches)
