"""Simulations that start under the plan of an earlier run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Renewal
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.run_input import Run, Start
from headrace.simulation.simulation_run import Ended, simulated
from schemas.effects import PLANS, Effect, Event, Send
from schemas.records import Plan


class Plans:
    """Observe every plan that is sent, with the time."""

    def __init__(self) -> None:
        self.said: list[tuple[float, Plan]] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if type(effect) is Send and effect.topic == PLANS and type(effect.record) is Plan:
                self.said.append((now, effect.record))


def played(run: Run) -> tuple[Ended, list[tuple[float, Plan]]]:
    plans = Plans()
    return simulated(run, lambda sent: None, (plans,)), plans.said


def test_a_plan_holds_until_planning_begins_and_its_epochs_go_on(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    cold = Run(file=file, policy="loki", seed=1, arrivals=Renewal(60.0, 12.0), warm_up_s=6.0)
    _, before = played(cold)
    # Time stamps of another run, as in a live run.
    plan = structs.replace(before[-1][1], epoch=40, issued_s=1e9)
    ended, said = played(replace(cold, start=Start(plan, 5.0)))
    (first_s, first), *others = said
    assert (first.epoch, first.leases, first_s) == (40, plan.leases, 0.0)
    assert all(at_s >= ended.first_s + 5.0 for at_s, _ in others)
    assert [each.epoch for _, each in others] == list(range(41, 41 + len(others)))
    assert ended.metrics.counts["answered"] > 0.9 * ended.queries


def test_planning_continues_from_the_arrivals_before_the_start(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    cold = Run(file=file, policy="loki", seed=1, arrivals=Renewal(60.0, 20.0), warm_up_s=10.0)
    _, before = played(cold)
    start = Start(structs.replace(before[0][1], epoch=40), 8.0)
    ended, said = played(replace(cold, start=start))
    demands = [plan.demand_qps for at_s, plan in said if 8.0 < at_s - ended.first_s < 20.0]
    # 60 queries/s plus headroom; without the earlier arrivals the first plan would be for none.
    assert demands
    assert all(60.0 < demand < 120.0 for demand in demands)


@pytest.mark.thorough
def test_a_policy_set_by_command_runs_like_the_policy_of_the_file(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    assert file.pipeline.policy != "loki"
    cold = Run(file=file, policy="loki", seed=1, arrivals=Renewal(60.0, 20.0), warm_up_s=10.0)
    _, before = played(cold)
    known = structs.replace(before[0][1], epoch=40)
    commanded = structs.replace(known.settings, filed_policy=file.pipeline.policy)
    _, by_file = played(replace(cold, start=Start(known, 8.0)))
    _, by_command = played(
        replace(cold, start=Start(structs.replace(known, settings=commanded), 8.0))
    )
    assert by_command == by_file


def test_arrivals_keep_their_offset_within_the_second(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    cold = Run(file=file, policy="loki", seed=1, arrivals=Renewal(60.0, 3.0))
    _, before = played(cold)
    ended, _ = played(replace(cold, start=Start(before[-1][1], 8.0, 0.375)))
    assert ended.first_s % 1 == pytest.approx(0.375, abs=1e-9)
