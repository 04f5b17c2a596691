"""Drifting accuracy in a simulated system: the delay of the detection, and the gain of the new
plan.

The pipeline's two variants are emulated and both serve. From ``HALF_S`` on the large one, the more
accurate by its profile, is right half as often. Labels arrive a second after the answers.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.small_cluster import a_cluster
from control.estimation.accuracy.accuracy_drift import drifted_paths, expected_of
from headrace.arrivals.arrival_processes import Renewal
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_nodes import SimulatedNodes
from headrace.simulation.simulation_run import _Simulation
from operators.models.emulated import Emulated
from operators.outcomes import outcome_of
from operators.scoring.scorer import Scorer
from schemas.effects import LABELS, RESULTS, Effect, Event, Send
from schemas.enumerations import PlanCause
from schemas.records import ANSWERED, Answer, Label, MeasuredAccuracy, Plan

pytestmark = pytest.mark.thorough

SECONDS, HALF_S, LABEL_S = 36.0, 12.0, 1.0
RATE_QPS = 150.0  # one large variant serves 177 in batches of eight, a small one twice as many


class Worse:
    """An emulated variant that is right half as often after a given moment."""

    def __init__(self, model: Emulated, is_worse: Any) -> None:
        self._model, self._is_worse = model, is_worse
        self.load_s, self.latency_s = model.load_s, model.latency_s

    def predict(self, values: Sequence[Any]) -> list[Any]:
        outputs = self._model.predict(values)
        if not self._is_worse():
            return outputs
        return [right and number % 2 == 0 for number, right in enumerate(outputs)]


class Watcher:
    """Label every answer by the outputs of the emulated leaves; record the results of scorer and
    control."""

    def __init__(self) -> None:
        self.system: Any = None
        self.right: list[tuple[float, bool]] = []
        self.drifted_s: float | None = None
        self.plans: list[tuple[float, Plan]] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            record = effect.record if isinstance(effect, Send) else None
            if isinstance(record, Answer) and effect.topic == RESULTS:  # type: ignore[union-attr]
                self._label(record, now)
            elif isinstance(record, MeasuredAccuracy):
                if self.drifted_s is None and drifted_paths(record.recent):
                    self.drifted_s = now
            elif isinstance(record, Plan):
                self.plans.append((now, record))

    def _label(self, answer: Answer, now: float) -> None:
        if outcome_of(answer) != ANSWERED:
            return
        assert isinstance(answer.result, list)
        right = all(answer.result)
        self.right.append((now, right))
        self.system.input(now + LABEL_S, LABELS, 0, Label(id=answer.id, truth=[True]))


def played(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    plan_by: str,
    *,
    drifts: bool = True,
    kind: str = "loki",
    rate_qps: float = RATE_QPS,
) -> tuple[Watcher, float]:
    """Return the watcher of the run, and the time at which the drift began."""
    path = a_cluster(
        folder, children={"read": ()}, fan_out=0, batch_s=0.01, load_s=0.1, devices=2,
        slo="400ms", policies={"best": {"kind": kind, "interval": "5s"}},
        labels={"plan_by": plan_by},
    )  # fmt: skip
    file = read_pipeline_file(path)
    run = Run(file=file, policy="best", seed=3, arrivals=Renewal(rate_qps, SECONDS))
    emulated = SimulatedNodes.batches

    def batches(self: SimulatedNodes, node: str, key: str) -> Any:
        model = emulated(self, node, key)
        assert isinstance(model, Emulated)
        return Worse(model, partial(_after, self)) if drifts and key == "read/large" else model

    monkeypatch.setattr(SimulatedNodes, "batches", batches)
    watcher = Watcher()
    simulation = _Simulation(run, [watcher], None)
    watcher.system = simulation.system
    simulation.system.start("scorer", a_scorer(file))
    simulation.play(lambda sent: None)
    return watcher, simulation.first_s + HALF_S


def _after(nodes: SimulatedNodes) -> bool:
    return 0 < nodes._first_s() <= nodes._now() - HALF_S


def a_scorer(file: PipelineFile) -> Scorer:
    pipeline = file.pipeline
    assert pipeline.labels is not None
    return Scorer(
        "scorer", pipeline, pipeline.labels, lambda result, truth: result == truth,
        incarnation=0.0, answer_slots=range(4), label_slots=(0,),
        accuracies={"read/small": 0.8, "read/large": 0.95},
        expected=partial(expected_of, load_profile(file)),
    )  # fmt: skip


def accuracy(watcher: Watcher, from_s: float, until_s: float) -> float:
    seen = [right for at_s, right in watcher.right if from_s <= at_s < until_s]
    return sum(seen) / len(seen)


def large_serves(plan: Plan) -> bool:
    return any(lease.variant == "large" and lease.open_slot >= 0 for lease in plan.leases)


def test_a_drift_is_reported_and_the_next_plan_uses_the_measured_accuracy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen, began_s = played(monkeypatch, tmp_path, "measured")
    assert seen.drifted_s is not None
    assert 0 < seen.drifted_s - began_s < 6.0
    anew = next((at_s, plan) for at_s, plan in seen.plans if PlanCause.ACCURACY in plan.causes)
    assert anew[0] - began_s < 8.0
    assert "the accuracy of read/" in anew[1].reason
    assert not large_serves(seen.plans[-1][1])  # also when the load ends
    before = accuracy(seen, began_s + 0.5, seen.drifted_s)
    after = accuracy(seen, anew[0] + 2.0, float("inf"))
    assert after > before + 0.05
    assert after == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("kind", "rate_qps"), [("loki-paper", 240.0), ("proteus", 240.0), ("ramsis", 150.0)]
)
def test_every_policy_that_mixes_variants_uses_the_measured_accuracy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, rate_qps: float
) -> None:
    """At these rates both variants serve before the drift."""
    seen, began_s = played(monkeypatch, tmp_path, "measured", kind=kind, rate_qps=rate_qps)
    assert seen.drifted_s is not None
    before = accuracy(seen, began_s + 0.5, seen.drifted_s)
    after = accuracy(seen, seen.drifted_s + 9.0, float("inf"))
    assert after > before + 0.05
    assert after == pytest.approx(0.8, abs=0.03)


def test_by_default_a_drift_is_reported_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen, began_s = played(monkeypatch, tmp_path, "profile")
    assert seen.drifted_s is not None
    assert seen.drifted_s > began_s
    assert not any(PlanCause.ACCURACY in plan.causes for _, plan in seen.plans)
    assert large_serves(seen.plans[-1][1])


def test_without_a_drift_nothing_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen, _ = played(monkeypatch, tmp_path, "measured", drifts=False)
    assert seen.drifted_s is None
    assert large_serves(seen.plans[-1][1])
