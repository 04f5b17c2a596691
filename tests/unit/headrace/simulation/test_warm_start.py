"""A simulation that starts under a plan: the choice of the plan, and the handover to control."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from control.estimation.demand import counted
from control.problem.plan_reasons import STEPS
from headrace.config.pipeline_file import read_pipeline_file
from headrace.fidelity.conditional import start_seen
from headrace.simulation.run_input import Start
from headrace.simulation.warm_start import GivenPlan, filed, start_of
from schemas.effects import PLANS, Arrived, Effect, Event, Send, Wake, Woke
from schemas.enumerations import PlanCause
from schemas.records import Plan, Settings

SETTINGS = Settings(policy="loki", slo_s=0.5)
PLAN = Plan(pipeline="p", epoch=7, issued_s=103.0, reason="", settings=SETTINGS)
LATER = structs.replace(PLAN, epoch=8, issued_s=131.0)


def test_the_newest_plan_at_the_end_of_the_warm_up_is_the_start() -> None:
    older = structs.replace(PLAN, epoch=6, issued_s=103.5)
    assert start_of([LATER, PLAN, older], 100.0, 20.0, 5.0) == Start(PLAN, 18.0)
    assert start_of([LATER, PLAN], 100.0, 32.0, 5.0) == Start(LATER, 31.0)


@pytest.mark.parametrize(
    "causes",
    [*((step,) for step in sorted(STEPS)), (PlanCause.WORKER_SERVES, PlanCause.WORKER_DRAINED)],
)
def test_a_step_on_the_way_was_not_solved_for(causes: tuple[PlanCause, ...]) -> None:
    moved = structs.replace(PLAN, epoch=8, issued_s=105.5, causes=causes)
    assert start_of([PLAN, moved], 100.0, 20.0, 5.0) == Start(moved, 18.0)
    assert start_of([moved], 100.0, 20.0, 5.0) == Start(moved, 15.5)


def test_a_solve_may_also_have_other_reasons() -> None:
    causes = (PlanCause.WORKER_NEW, PlanCause.INTERVAL)
    solved = structs.replace(PLAN, epoch=8, issued_s=105.5, causes=causes)
    assert start_of([PLAN, solved], 100.0, 20.0, 5.0) == Start(solved, 15.5)


def test_seconds_begin_as_they_did_for_the_arrivals() -> None:
    start = start_of([PLAN], 100.25, 20.0, 5.0)
    assert start is not None
    assert start.phase_s == 0.25


def test_a_policy_that_came_by_command_is_as_good_as_filed() -> None:
    pipeline = read_pipeline_file(
        Path(__file__).parents[4] / "examples" / "postcode" / "pipeline.yaml"
    ).pipeline
    commanded = replace(pipeline, policy="loki")
    settings = structs.replace(SETTINGS, filed_policy=pipeline.policy, filed_slo_s=pipeline.slo_s)
    found = filed(structs.replace(PLAN, settings=settings), commanded).settings
    assert found == structs.replace(settings, filed_policy="loki")


def test_warm_start_is_none_without_a_plan_by_then() -> None:
    assert start_of([LATER], 100.0, 20.0, 5.0) is None


@pytest.mark.parametrize(("issued_s", "from_s"), [(98.0, 8.0), (104.5, 9.5), (105.5, 5.5)])
def test_planning_begins_when_there_were_arrivals_for_an_interval(
    issued_s: float, from_s: float
) -> None:
    plan = structs.replace(PLAN, issued_s=issued_s)
    assert start_of([plan], 100.0, 9.0, 5.0) == Start(plan, from_s)


def test_given_plan_is_published_once() -> None:
    given = GivenPlan(PLAN)
    said = Send(PLANS, structs.replace(PLAN, issued_s=0.5), 0)
    assert given.handle(Woke(), 0.5) == [said, Wake(0.6)]
    assert given.handle(Woke(), 0.6) == [Wake(0.7)]
    assert given.handle(Arrived(PLAN, PLANS, 0, 0, 0.5), 0.6) == []


class Listener:
    """A node that records its events."""

    def __init__(self) -> None:
        self.told: list[tuple[Event, float]] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.told.append((event, now))
        return []


def test_successor_of_the_given_plan_has_seen_the_same_arrivals() -> None:
    given, successor = GivenPlan(PLAN), Listener()
    looks = [(counted(at_s, {0: count}, {}), at_s) for at_s, count in ((1.0, 0), (1.3, 4))]
    for event, at_s in looks:
        given.handle(event, at_s)
    given.hand_over(successor)
    assert successor.told == looks


def test_workers_that_choose_by_tables_start_without_a_given_plan() -> None:
    folder = Path(__file__).parents[4] / "examples" / "postcode"
    for name, policy, start in [
        ("read.yaml", "ramsis", None),
        ("pipeline.yaml", "loki", Start(PLAN, 18.0)),
    ]:
        pipeline = read_pipeline_file(folder / name).pipeline
        assert start_seen(pipeline, policy, [PLAN], 100.0, 20.0) == start, name


def test_without_a_warm_up_there_is_no_plan_for_the_load_to_start_with() -> None:
    folder = Path(__file__).parents[4] / "examples" / "postcode"
    pipeline = read_pipeline_file(folder / "pipeline.yaml").pipeline
    assert start_seen(pipeline, "loki", [PLAN], 103.0, 0.0) is None
