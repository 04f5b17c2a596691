"""Devices of batched tasks: a share is a seat in the batches of one setting."""

from dataclasses import replace

import pytest

from control.controller.session_schedules import SessionSchedules
from control.policies.solvers import SCHEDULE, solve
from control.problem.seats import Seat
from control.problem.session_space import SessionSpace
from control.sessions.devices import Devices, session_plan
from control.sessions.session_book import SessionBook
from schemas.effects import Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import Session, SessionChoice
from tests.session_world import TASKS, a_session_pipeline, a_space

ONE, OTHER = "read/v@votes=1", "read/w@votes=1"
SHARES = a_space()
STAGES = tuple(replace(stage, batched=stage.name == "read") for stage in SHARES.space.stages)
SEATS = replace(SHARES, space=replace(SHARES.space, stages=STAGES))


def seats(*devices: str) -> tuple[Seat, ...]:
    return tuple(
        Seat(worker=f"{each}-{task}", task=task, tier="cloud", device=each, slot=slot)
        for slot, each in enumerate(devices)
        for task in TASKS
    )


def a_choice(setting: str, quarters: int = 1) -> SessionChoice:
    return SessionChoice(
        settings={"scan": "scan/v@scale=1", "read": setting},
        tiers=dict.fromkeys(TASKS, "cloud"), quarters={"scan": 0, "read": quarters},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("space", "beside"), [(SHARES, "cloud-0"), (SEATS, "cloud-1")], ids=["shares", "seats"]
)
def test_seats_of_different_settings_share_no_device(space: SessionSpace, beside: str) -> None:
    """They run in batches of their own, so that each was as slow as on a share of the device."""
    devices = Devices(seats("cloud-0", "cloud-1"), space)
    for number, (setting, wanted) in enumerate(
        ((ONE, "cloud-0"), (OTHER, beside), (ONE, "cloud-0"))
    ):
        choice = a_choice(setting)
        placed = devices.place(f"s{number}", choice, TASKS)
        assert placed is not None
        assert placed["read"].device == wanted
        devices.take(session_plan(f"s{number}", 1, 1.0, choice, placed))
    assert (devices.place("last", a_choice(OTHER, 4), TASKS) is None) is (space is SEATS)


def test_a_task_that_takes_no_share_runs_beside_seats() -> None:
    devices = Devices(seats("cloud-0"), SEATS)
    placed = devices.place("a", a_choice(ONE, 4), TASKS)
    assert placed is not None
    devices.take(session_plan("a", 1, 1.0, a_choice(ONE, 4), placed))
    assert devices.place("b", a_choice(OTHER, 0), TASKS) is not None


def served(space: SessionSpace, *settings: str) -> set[str]:
    """Return the settings of the sessions that a schedule places on one device."""
    book, schedules = SessionBook(a_session_pipeline(), space), SessionSchedules(space)
    for number, setting in enumerate(settings):
        asked = Session(
            id=f"s{number}", pipeline="p", state=SessionState.OPENING, slo_s=0.5,
            samples="workload@0",
        )  # fmt: skip
        book.open(asked, 0.0)
        book.planned(asked.id, (a_choice(setting, 2),), 0.0)
    there = seats("cloud-0")
    book.review(there, {}, {}, 0.0)
    (solving,) = schedules.begin(book, Policy(name="compass", kind="compass"), 0.0)
    assert isinstance(solving, Solve)
    made = solve(SCHEDULE, solving.problem)
    assert made.served == (2 if len(set(settings)) == 1 or space is SHARES else 1)
    schedules.solved(Solved(solving.job, made), book, 0.1)
    book.review(there, {}, {}, 0.1)
    return {plan.stage("read").setting for plan in book.plans}


def test_a_schedule_fills_a_device_with_seats_of_one_setting() -> None:
    assert served(SHARES, ONE, OTHER) == {ONE, OTHER}
    assert served(SEATS, ONE, ONE) == {ONE}
    assert len(served(SEATS, ONE, OTHER)) == 1


def test_sessions_part_if_their_task_is_batched_since_a_restart() -> None:
    """Both kept their device, and a plan with such a pair is rejected: no plan came in force."""
    settings, there = {"a": ONE, "b": OTHER}, seats("cloud-0", "cloud-1")
    before = SessionBook(a_session_pipeline(), SHARES)
    for name, setting in settings.items():
        asked = Session(
            id=name, pipeline="p", state=SessionState.OPENING, slo_s=0.5,
            plans=(a_choice(setting),),
        )  # fmt: skip
        before.open(asked, 0.0)
        before.review(there, {}, {}, 0.0)
    held = {seat.worker: frozenset({"scan/v@scale=1", ONE, OTHER}) for seat in there}
    before.review(there, held, {}, 0.1)
    assert {plan.stage("read").device for plan in before.plans} == {"cloud-0"}

    after = SessionBook(a_session_pipeline(), SEATS)
    for session in before.sessions:
        after.restore(session)
    after.resume(before.plans, 1.0)
    after.review(there, held, {}, 1.0)
    after.review(there, held, {}, 1.1)
    admitting = [plan for plan in after.plans if plan.admits]
    assert {(each.session, each.stage("read").device) for each in admitting} == {
        ("a", "cloud-0"), ("b", "cloud-1"),
    }  # fmt: skip
