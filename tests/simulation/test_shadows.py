"""Shadows in a simulated system: they use what is idle, and cost no answer its deadline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Arrivals, Rates, Renewal
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from operators.outcomes import outcome_of
from schemas.effects import RESULTS, SHADOWS, Effect, Event, Send
from schemas.records import ANSWERED, Answer, Origin, Work

pytestmark = pytest.mark.thorough

SECONDS = 8.0
SERVED_QPS = 888.0  # batches of eight in 22.5 ms on two workers, in 45 ms on the third
REPLICAS = {"read/small": 2, "read/large": 1}


class Seen:
    """The outcome of every query, and when shadows have run."""

    def __init__(self) -> None:
        self.outcomes: dict[Origin, str] = {}
        self.ran: dict[Origin, float] = {}
        self.last_s = 0.0  # the last arrival

    @property
    def beside(self) -> int:
        """The shadows that ran while queries came."""
        return sum(ran_s < self.last_s for ran_s in self.ran.values())

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.record, Answer):
                assert effect.topic == RESULTS
                assert effect.record.origin not in self.outcomes
                self.outcomes[effect.record.origin] = outcome_of(effect.record)
                self.last_s = max(self.last_s, effect.record.created_s)
            elif isinstance(effect, Send) and effect.topic == SHADOWS:
                assert isinstance(effect.record, Work)
                self.ran[effect.record.origin] = now


def at(load: float) -> Arrivals:
    return Renewal(load * SERVED_QPS, SECONDS)


def played(
    folder: Path, arrivals: Arrivals, share: float, *, seed: int = 0, hops: bool = False,
    **changes: Any,
) -> Seen:  # fmt: skip
    labels = {"shadow": {"share": share}} if share else {}
    path = a_cluster(
        folder, **{
            "children": {"read": ()}, "fan_out": 0, "batch_s": 0.005, "devices": 3,
            "slo": "200ms", "policies": {"one": {"replicas": REPLICAS}}, "labels": labels,
            **changes,
        },
    )  # fmt: skip
    run = Run(
        file=read_pipeline_file(path), policy="one", seed=seed, hops=hops,
        arrivals=arrivals, latency="" if hops else "p50",
    )  # fmt: skip
    seen = Seen()
    simulated(run, lambda sent: None, [seen])
    return seen


def missed(seen: Seen) -> set[Origin]:
    return {origin for origin, outcome in seen.outcomes.items() if outcome != ANSWERED}


@pytest.mark.parametrize("admission", [True, False])
def test_at_full_load_shadows_cost_no_answer_its_deadline(tmp_path: Path, admission: bool) -> None:
    """Nothing is drawn but the arrivals, so that both runs have the same queries. No worker idles,
    so shadows run once the queries have ended."""
    for load in (1.0, 1.1):
        without = played(tmp_path, at(load), 0.0, admission=admission)
        beside = played(tmp_path, at(load), 0.05, admission=admission)
        assert len(without.outcomes) == len(beside.outcomes) > 6000
        assert missed(beside) <= missed(without)
        assert beside.beside == 0
    assert missed(without)


@pytest.mark.parametrize("full", [1.0, 1.1])
@pytest.mark.parametrize("seed", [0, 1])
def test_shadows_that_run_as_full_load_begins_cost_no_answer_its_deadline(
    tmp_path: Path, full: float, seed: int
) -> None:
    loads = Rates((0.2 * SERVED_QPS,) * 4 + (full * SERVED_QPS,) * 4)
    without = played(tmp_path, loads, 0.0, seed=seed)
    beside = played(tmp_path, loads, 0.05, seed=seed)
    assert missed(beside) <= missed(without)
    assert bool(missed(without)) is (full > 1.0)
    assert beside.beside > 30


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_below_full_load_shadows_run_and_cost_no_answer_its_deadline(
    tmp_path: Path, load: float
) -> None:
    without, beside = played(tmp_path, at(load), 0.0), played(tmp_path, at(load), 0.05)
    assert missed(beside) <= missed(without)
    asked = 0.05 * len(beside.outcomes)
    assert len(beside.ran) > (0.8 if load < 0.5 else 0.01) * asked


def test_without_a_share_or_a_second_variant_there_are_no_shadows(tmp_path: Path) -> None:
    assert not played(tmp_path, at(0.3), 0.0).ran
    policies = {"one": {"replicas": {"read/small": 3}}}
    assert not played(tmp_path, at(0.3), 0.5, policies=policies).ran
