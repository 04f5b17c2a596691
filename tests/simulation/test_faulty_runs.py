"""Runs of ``headrace simulate`` with faults keep the invariants after every event.

A failure names the seed and the command that repeats the run.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.small_cluster import a_cluster
from control.checks.structure_check import check_structure
from headrace.arrivals.arrival_processes import Renewal
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated
from schemas.effects import (
    PLANS,
    RESULTS,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    Send,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import FULL_CREDIT, Answer, Item, Origin, Plan, Work

RATE, SECONDS = 30.0, 6.0


class Invariants:
    """Check what must hold after every event."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.now = 0.0
        self.epoch = 0
        self.busy: dict[str, tuple[int, float]] = {}  # job, start time
        self.answered: set[Origin] = set()
        self.credit: dict[Origin, dict[tuple[int, ...], int]] = {}  # at egress, for open queries

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        assert now >= self.now, f"time went back from {self.now} to {now}"
        self.now = now
        if isinstance(event, Inferred):
            job, since_s = self.busy.pop(node)
            assert (job, since_s) == (event.job, event.started_s)
            assert event.started_s <= event.finished_s == now
        elif isinstance(event, Failed):
            self.busy.pop(node, None)
        elif isinstance(event, Woke) and node.startswith("emulated"):
            self._reborn(node, effects)
        for effect in effects:
            if isinstance(effect, Infer):
                assert node not in self.busy, f"{node} runs two batches"
                self.busy[node] = (effect.job, now)
            elif isinstance(effect, Send):
                self._sent(effect)

    def _reborn(self, node: str, effects: Sequence[Effect]) -> None:
        # A node starts by reading the plans; batches of its previous life died with it.
        if any(type(e).__name__ == "Assign" and e.topic == PLANS for e in effects):  # type: ignore[union-attr]
            self.busy.pop(node, None)

    def _sent(self, effect: Send) -> None:
        record = effect.record
        if effect.topic == PLANS and isinstance(record, Plan):
            assert check_structure(record, self.pipeline) == ()
            assert record.epoch > self.epoch
            self.epoch = record.epoch
        elif isinstance(record, Work):
            for item in record.items:
                self._told(record, item)
        elif effect.topic == RESULTS and isinstance(record, Answer):
            assert record.origin not in self.answered, f"{record.id} was answered twice"
            self.answered.add(record.origin)
            whole = sum(self.credit.pop(record.origin, {}).values())
            if record.outcome == "answered" and not record.incomplete:
                assert whole == FULL_CREDIT

    def _told(self, work: Work, item: Item) -> None:
        since_s = work.created_s
        for hop in item.path:
            assert since_s <= hop.received_s <= hop.started_s <= hop.finished_s <= self.now
            since_s = hop.finished_s
        if not work.task and work.origin not in self.answered:
            held = self.credit.setdefault(work.origin, {})
            assert held.setdefault(item.branch, item.credit) == item.credit
            assert sum(held.values()) <= FULL_CREDIT, f"{work.query_id} has more than its credit"


def played(file: Path, policy: str, seed: int, faults: int, cv: float) -> Ended:
    read = read_pipeline_file(file)
    run = Run(
        file=read,
        policy=policy,
        seed=seed,
        arrivals=Renewal(RATE, SECONDS, cv),
        random_faults=faults,
    )
    try:
        ended = simulated(run, lambda sent: None, (Invariants(read.pipeline),))
        assert sum(ended.metrics.counts.values()) == ended.queries
        assert min(ended.metrics.counts.values()) >= 0
        assert ended.metrics.counts["lost"] == 0
    except Exception as error:
        error.add_note(
            f"repeat it: headrace simulate {file} --policy {policy} --seed {seed} --rate {RATE} "
            f"--seconds {SECONDS} --cv {cv} --random-faults {faults}, the file from "
            "benchmarks.small_cluster.a_cluster"
        )
        raise
    return ended


@pytest.mark.thorough
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    policy=st.sampled_from(["static", "fast", "loki-paper"]),
    seed=st.integers(0, 2**31),
    faults=st.integers(0, 5),
    cv=st.sampled_from([0.5, 1.0, 3.0]),
    fan_out=st.integers(0, 3),
    incomplete=st.sampled_from(["answered", "dropped"]),
)
def test_the_invariants_hold_after_every_event_whatever_goes_wrong(
    tmp_path: Path, policy: str, seed: int, faults: int, cv: float, fan_out: int, incomplete: str
) -> None:
    file = a_cluster(tmp_path, fan_out=fan_out, incomplete=incomplete)
    played(file, policy, seed, faults, cv)


def test_a_failure_names_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(Invariants, "saw", broken)
    with pytest.raises(AssertionError) as caught:
        played(a_cluster(tmp_path), "static", 3, 1, 1.0)
    assert "--policy static --seed 3 --rate 30.0" in caught.value.__notes__[0]
