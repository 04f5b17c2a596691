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
from headrace.simulation.faults import DEATH, SLOW, Fault
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


class Lives:
    """Record the times, since the first arrival, at which a node handled events, and its batches'
    durations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen_s: list[float] = []
        self.batches: list[tuple[float, float]] = []  # begin, duration

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        if node == self.name:
            self.seen_s.append(now)
            if isinstance(event, Inferred):
                self.batches.append((event.started_s, event.finished_s - event.started_s))


def with_faults(folder: Path, name: str, *faults: Fault) -> tuple[Lives, float]:
    lives = Lives(name)
    file = read_pipeline_file(a_cluster(folder))
    run = Run(
        file=file, policy="static", seed=1, arrivals=Renewal(20.0, 12.0), faults=faults,
        latency="p50",
    )  # fmt: skip
    return lives, simulated(run, lambda sent: None, (lives,)).first_s


def test_a_device_is_back_when_the_last_of_its_overlapping_faults_ends(tmp_path: Path) -> None:
    """The end of a short fault used to end a long one."""
    dead = [Fault(at_s=2.0, kind=DEATH, device="emulated-0", for_s=6.0),
            Fault(at_s=3.0, kind=DEATH, device="emulated-0", for_s=1.0)]  # fmt: skip
    lives, first_s = with_faults(tmp_path, "emulated-0", *dead)
    assert not [at_s for at_s in lives.seen_s if 2.0 < at_s - first_s < 7.9]
    assert max(lives.seen_s) - first_s > 8.0


def test_the_larger_of_two_factors_counts_while_a_device_is_slow_twice(tmp_path: Path) -> None:
    slow = [Fault(at_s=2.0, kind=SLOW, device="emulated-0", for_s=6.0, factor=10.0),
            Fault(at_s=3.0, kind=SLOW, device="emulated-0", for_s=1.0, factor=5.0)]  # fmt: skip
    lives, first_s = with_faults(tmp_path, "emulated-0", *slow)
    within = [took_s for at_s, took_s in lives.batches if 4.0 < at_s - first_s < 8.0]
    after = [took_s for at_s, took_s in lives.batches if at_s - first_s > 8.0]
    assert within
    assert min(within) >= 10 * min(after) * (1 - 1e-9)


def test_a_failure_names_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(Invariants, "saw", broken)
    with pytest.raises(AssertionError) as caught:
        played(a_cluster(tmp_path), "static", 3, 1, 1.0)
    assert "--policy static --seed 3 --rate 30.0" in caught.value.__notes__[0]
