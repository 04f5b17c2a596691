"""Items of an inner task wait at its dispatcher, in virtual time: none is lost or duplicated."""

from pathlib import Path

import pytest

from headrace.arrivals.arrival_processes import Renewal
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import CONTROL_DOWN, DEATH, Fault
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated
from tests.inner_files import TWO_TASKS, a_two_task_file

# Each of the two dispatchers has a fast and a slow worker.
SEVERAL = (
    TWO_TASKS.replace("cluster:\n", "cluster:\n  dispatchers: 2\n")
    .replace("replicas: 3", "replicas: 4")
    .replace("gpu: 2", "gpu: 3")
)


def played(folder: Path, text: str, *faults: Fault, rate: float = 25.0) -> Ended:
    file = read_pipeline_file(a_two_task_file(folder, text))
    run = Run(
        file=file, policy=file.pipeline.policy, seed=1, arrivals=Renewal(rate, 8.0), faults=faults
    )
    return simulated(run, lambda sent: None)


def answered_share(ended: Ended) -> float:
    return ended.metrics.counts["answered"] / ended.queries


@pytest.mark.parametrize(
    ("policy", "rule"),
    [("static", "kairos"), ("static", "fcfs"), ("static", "earliest"), ("loki", "kairos")],
)
def test_every_rule_answers_nearly_all_at_half_load(tmp_path: Path, policy: str, rule: str) -> None:
    text = TWO_TASKS.replace("dispatch: kairos", f"dispatch: {rule}")
    ended = played(tmp_path, text.replace("policy: static", f"policy: {policy}"))
    assert ended.metrics.counts["lost"] == 0
    assert answered_share(ended) > (0.98 if policy == "static" else 0.9)


@pytest.mark.parametrize("text", [TWO_TASKS, SEVERAL], ids=["one", "two"])
def test_a_killed_dispatcher_loses_and_doubles_nothing(tmp_path: Path, text: str) -> None:
    dies = Fault(at_s=3.0, kind=DEATH, device="dispatcher-read-0", for_s=0.1)
    ended = played(tmp_path, text, dies)
    counts = ended.metrics.counts
    assert counts["lost"] == 0
    assert sum(counts.values()) == ended.queries
    assert answered_share(ended) > 0.97


def test_a_worker_and_the_control_app_may_die(tmp_path: Path) -> None:
    faults = (
        Fault(at_s=2.0, kind=DEATH, device="gpu-1", for_s=2.0),
        Fault(at_s=5.0, kind=CONTROL_DOWN, for_s=1.0),
    )
    ended = played(tmp_path, TWO_TASKS, *faults, rate=10.0)
    assert ended.metrics.counts["lost"] == 0
    assert sum(ended.metrics.counts.values()) == ended.queries
    assert answered_share(ended) > 0.8
