"""A whole system in virtual time whose workers choose a variant for every batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Renewal
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import Fault
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated
from schemas.effects import Effect, Event, Infer, Send
from schemas.records import Selection, Work

ALONE: dict[str, Sequence[str]] = {"read": []}


@dataclass
class Seen:
    """Count the batches of each variant; record the tables that were sent, and the queries that
    ingress sent in runs."""

    batches: dict[str, int] = field(default_factory=dict)
    tables: list[Selection] = field(default_factory=list)
    sent: list[tuple[float, int, int]] = field(default_factory=list)  # time, slot, followers

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Infer):
                self.batches[effect.variant] = self.batches.get(effect.variant, 0) + 1
            elif isinstance(effect, Send) and isinstance(effect.record, Selection):
                self.tables.append(effect.record)
        if node.startswith("ingress"):
            sends = [effect for effect in effects if isinstance(effect, Send)]
            works = [(s.slot, s.record.follow) for s in sends if isinstance(s.record, Work)]
            self.sent += [(now, slot, follow) for slot, follow in works]


def watched(
    folder: Path, policy: str, rate: float, seed: int = 0, **changes: object
) -> tuple[Ended, Seen]:
    faults = changes.pop("faults", ())
    path = a_cluster(folder, children=changes.pop("children", ALONE), **changes)  # type: ignore[arg-type]
    asked = Run(
        file=read_pipeline_file(path),
        policy=policy,
        seed=seed,
        arrivals=Renewal(rate, 8.0),
        faults=faults,  # type: ignore[arg-type]
    )
    seen = Seen()
    return simulated(asked, lambda sent: None, (seen,)), seen


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["ramsis", "ramsis-paper"])
def test_light_load_goes_to_the_better_variant_and_heavy_load_to_the_faster(
    tmp_path: Path, policy: str
) -> None:
    light, calm = watched(tmp_path, policy, 20.0)
    heavy, busy = watched(tmp_path, policy, 500.0)
    assert light.metrics.accuracy == pytest.approx(0.95, abs=0.002)
    assert light.metrics.counts["answered"] == light.queries
    assert heavy.metrics.accuracy is not None
    assert 0.8 <= heavy.metrics.accuracy < 0.9
    assert calm.batches["read/large"] > calm.batches.get("read/small", 0)
    assert busy.batches["read/small"] > busy.batches.get("read/large", 0)
    assert [made.complete for made in calm.tables] == [False, False, True]


@pytest.mark.thorough
def test_a_run_is_a_function_of_its_seed(tmp_path: Path) -> None:
    one, two = (watched(tmp_path, "ramsis", 200.0, seed=3)[0] for _ in range(2))
    assert (one.metrics.counts, one.events) == (two.metrics.counts, two.events)


@pytest.mark.thorough
def test_a_worker_that_dies_loses_nothing_and_tables_follow(tmp_path: Path) -> None:
    died = (Fault(kind="death", at_s=2.0, for_s=float("inf"), device="emulated-0"),)
    ended, seen = watched(tmp_path, "ramsis", 60.0, faults=died)
    counts = ended.metrics.counts
    assert counts["answered"] + counts["dropped"] + counts["late"] == ended.queries
    assert counts["answered"] / ended.queries > 0.9
    assert (seen.tables[-1].workers, seen.tables[-1].complete) == (3, True)


@pytest.mark.thorough
def test_runs_are_complete_except_at_a_plan_or_a_death_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    died = (Fault(kind="death", at_s=4.0, for_s=2.0, device="emulated-1"),)
    ended, seen = watched(tmp_path, "ramsis", 500.0, faults=died)
    counts = ended.metrics.counts
    assert sum(counts.values()) == ended.queries
    assert counts["lost"] == counts["failed"] == 0
    assert max(table.run for table in seen.tables[-1].tables) > 1
    assert max(follow for _, _, follow in seen.sent) > 0
    broken = [
        (one, two)
        for one, two in pairwise(seen.sent)
        if one[2] > 0 and two[1:] != (one[1], one[2] - 1)
    ]
    # A few plans: after the death, while variants load, after the return.
    assert len(broken) <= 12
    assert counts["answered"] > 0.8 * ended.queries


@pytest.mark.thorough
def test_a_task_can_select_variants_under_loki(tmp_path: Path) -> None:
    path = a_cluster(tmp_path)
    file = read_pipeline_file(path)
    detect, read = file.pipeline.tasks
    tasks = (detect, replace(read, selection="ramsis"))
    file = replace(file, pipeline=replace(file.pipeline, tasks=tasks))
    seen = Seen()
    asked = Run(file=file, policy="loki", seed=0, arrivals=Renewal(20.0, 8.0))
    ended = simulated(asked, lambda sent: None, (seen,))
    assert {made.task for made in seen.tables} == {"read"}
    assert seen.tables[-1].complete
    assert ended.metrics.counts["answered"] > 0.9 * ended.queries


@pytest.mark.thorough
def test_policies_that_select_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_cluster(tmp_path, children=ALONE)
    workload = ["--rate", "40", "--seconds", "3", "--seed", "1", "2"]
    code = run(["compare", str(path), *workload, "--policy", "ramsis", "fast", "--json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "ramsis" in told.out
