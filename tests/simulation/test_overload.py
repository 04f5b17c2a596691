"""After an overload ends, no worker stays behind permanently."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.overload import CAPACITY_QPS, LOADS, ONE_TASK, goodput, scene
from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Rates, Renewal
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import Fault
from headrace.simulation.run_input import Run, devices
from headrace.simulation.simulation_run import simulated
from schemas.effects import RESULTS, Effect, Event, Send
from schemas.records import ANSWERED, Answer

CALM, FLOOD = 220, 900  # queries/s; the worker serves 333 in batches of two
RATES = (CALM, CALM, FLOOD, FLOOD, FLOOD, *(CALM,) * 8)
AFTER_S = 7.0  # two seconds after the end of the flood


class Outcomes:
    """Record the outcome of every query with its creation time."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, bool]] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.topic == RESULTS:
                said = effect.record
                assert isinstance(said, Answer)
                self.seen.append((said.created_s, said.outcome == ANSWERED and not said.late))


@pytest.mark.parametrize("dropping", ["deadline", "reroute"])
def test_after_a_flood_a_worker_of_small_batches_is_in_time_again(
    tmp_path: Path, dropping: str
) -> None:
    policy = {"replicas": {"read/small": 1}, "batch": {"read/small": 2}, "dropping": dropping}
    file = a_cluster(
        tmp_path, children={"read": ()}, fan_out=0, batch_s=0.004, devices=1, slo="100ms",
        admission=False, policies={"one": policy},
    )  # fmt: skip
    run = Run(file=read_pipeline_file(file), policy="one", seed=0, arrivals=Rates(RATES))
    outcomes = Outcomes()
    ended = simulated(run, lambda sent: None, [outcomes])
    assert ended.queries == len(outcomes.seen)
    flooded = [good for made_s, good in outcomes.seen if 3.0 <= made_s - ended.first_s < 5.0]
    after = [good for made_s, good in outcomes.seen if made_s - ended.first_s >= AFTER_S]
    assert sum(flooded) / len(flooded) > 0.2  # of the 0.37 that one worker can serve
    assert after.count(False) == 0, f"{after.count(False)} of {len(after)} missed"


def violation(tmp_path: Path, paced: bool) -> float:
    """Return the violation under ``loki`` on devices 2.5 times slower than their profile."""
    policies = {"planned": {"kind": "loki", "paced": paced}}
    file = read_pipeline_file(a_cluster(
        tmp_path, children={"read": ()}, fan_out=0, batch_s=0.01, devices=4, policies=policies,
    ))  # fmt: skip
    slow = tuple(
        Fault(at_s=0.0, kind="slow", device=name, for_s=60.0, factor=2.5) for name in devices(file)
    )
    run = Run(file=file, policy="planned", seed=0, arrivals=Renewal(60.0, 40.0), faults=slow)
    ended = simulated(run, lambda sent: None)
    return 1.0 - ended.metrics.counts[ANSWERED] / ended.queries


@pytest.mark.thorough
def test_a_plan_based_on_observed_paces_uses_enough_devices(tmp_path: Path) -> None:
    assert violation(tmp_path, paced=True) < 0.2
    # Ingress admits what the devices are observed to serve, but the plan has too few devices.
    assert violation(tmp_path, paced=False) > 0.4


# Under the rules of the paper, with a profile that is too fast, goodput grows with load
# (docs/results/overload.md: 0.82 of the best over five seeds).
LESS = {("loki-paper", 1.3): 0.8}


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [pytest.param(1.0, marks=pytest.mark.slow), 1.3])
@pytest.mark.parametrize("policy", list(CAPACITY_QPS))
def test_every_policy_keeps_its_goodput_beyond_its_capacity(
    tmp_path: Path, policy: str, factor: float
) -> None:
    found = [
        goodput(tmp_path, policy, load * CAPACITY_QPS[policy] / factor, factor, **scene(policy))
        for load in LOADS
    ]
    assert min(found[1:]) >= LESS.get((policy, factor), 0.9) * max(found), found


@pytest.mark.thorough
def test_a_simulated_policy_dispatches_though_the_file_does_not_name_it(tmp_path: Path) -> None:
    """A regression: it used round robin without admission, and no answer was in time."""
    assert goodput(tmp_path, "kairos", 300.0, **ONE_TASK) > 80.0
