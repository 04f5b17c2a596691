"""A plan's causes and the control app's events agree on whether a solve led to the plan."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from control.problem.plan_reasons import ADMISSION, STAGED, solved_for
from headrace.arrivals.arrival_processes import Rates
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import DEATH, Fault
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from schemas.effects import Effect, Event, Send, Solved
from schemas.enumerations import PlanCause
from schemas.records import Plan


class Roads:
    """Observe the causes of every plan and whether a solve had just returned."""

    def __init__(self) -> None:
        self.taken: list[tuple[tuple[PlanCause, ...], bool, bool]] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if type(effect) is Send and type(effect.record) is Plan:
                plan = effect.record
                assert bool(plan.causes) == bool(plan.reason)
                self.taken.append((plan.causes, solved_for(plan), type(event) is Solved))


@pytest.mark.parametrize("policy", ["loki", "inferline", "static"])
def test_causes_tell_whether_a_solve_led_to_the_plan(tmp_path: Path, policy: str) -> None:
    rates = (20.0,) * 6 + (120.0,) * 8 + (320.0,) * 8 + (30.0,) * 16
    lost = Fault(at_s=9.0, kind=DEATH, device="emulated-1", for_s=6.0)
    roads = Roads()
    file = read_pipeline_file(a_cluster(tmp_path, devices=6))
    run = Run(file=file, policy=policy, seed=3, arrivals=Rates(rates), faults=(lost,))
    simulated(run, lambda sent: None, (roads,))
    assert [causes for causes, told, known in roads.taken if told and not known] == []
    # The next step may start at a solve that changes nothing.
    assert {causes for causes, told, known in roads.taken if known and not told} <= {
        (STAGED.cause,), (PlanCause.WORKER_SERVES,), (ADMISSION.cause,),
    }  # fmt: skip
    assert {told for _, told, _ in roads.taken} == {True, False}


def test_a_plan_that_repeats_the_one_in_force_is_not_published(tmp_path: Path) -> None:
    # Beyond capacity, changes of variants wait, and every event requests the next step.
    roads = Roads()
    file = read_pipeline_file(a_cluster(tmp_path, devices=6))
    run = Run(file=file, policy="loki", seed=3, arrivals=Rates((20.0,) * 4 + (320.0,) * 8))
    simulated(run, lambda sent: None, (roads,))
    assert 5 < len(roads.taken) < 60
