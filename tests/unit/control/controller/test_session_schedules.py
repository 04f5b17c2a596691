"""Schedules of contending sessions: what they may use, and when they are made again."""

from dataclasses import replace

from control.controller.session_schedules import AGAIN_S, SessionSchedules
from control.policies.solvers import SCHEDULE, solve
from control.sessions.session_book import SessionBook
from schemas.effects import Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import Session, SessionChoice
from tests.builders import a_pipeline
from tests.session_world import a_space
from tests.unit.control.sessions.test_bound_devices import seats

POLICY = Policy(name="compass", kind="compass")
PIPELINE = a_pipeline({"read": []}, slo_s=1.0, policies=(POLICY,), policy="compass", sessions=True)
SPACE = replace(a_space(), origin="cloud", links={})
THERE = seats("cloud", "cloud-0", tasks=("read",))


def reading(quarters: int) -> SessionChoice:
    """Return a plan of one task on a part of the only device."""
    return SessionChoice(
        settings={"read": "read/v"}, tiers={"read": "cloud"}, quarters={"read": quarters},
        latency_s=0.3, accuracy=0.9, usd_per_h=0.05 * quarters,
    )  # fmt: skip


def opened(**quarters: int) -> SessionBook:
    """Return a book with sessions that wait for parts of the device, opened one after another."""
    book = SessionBook(PIPELINE, SPACE)
    for name, each in quarters.items():
        asked = Session(id=name, pipeline="p", state=SessionState.OPENING, slo_s=0.5, samples="s")
        book.open(asked, 0.0)
        book.planned(name, (reading(each),), 0.0)
        if name == "first":  # alone, it takes its part at once
            book.review(THERE, {}, {}, 0.0)
    book.review(THERE, {}, {}, 0.0)
    return book


def begun(schedules: SessionSchedules, book: SessionBook, now: float) -> Solve | None:
    effects = schedules.begin(book, POLICY, now)
    assert all(isinstance(each, Solve) for each in effects)
    return effects[0] if effects else None  # type: ignore[return-value]


def test_the_quarters_that_a_session_leaves_of_a_device_are_scheduled() -> None:
    """Three quarters are left: enough for one of two halves."""
    book, schedules = opened(first=1, second=2, third=2), SessionSchedules(SPACE)
    asked = begun(schedules, book, 1.0)
    assert asked is not None
    schedules.solved(Solved(asked.job, solve(SCHEDULE, asked.problem)), book, 1.25)
    book.review(THERE, {}, {}, 1.25)
    (served,) = {plan.session for plan in book.plans} - {"first"}
    assert book.session(served).schedule_s == 0.25


def test_a_schedule_is_made_again_while_sessions_wait() -> None:
    """Their weights grow with their waiting."""
    book, schedules = opened(first=4, second=2, third=2), SessionSchedules(SPACE)
    asked = begun(schedules, book, 1.0)
    assert asked is not None
    schedules.solved(Solved(asked.job, solve(SCHEDULE, asked.problem)), book, 1.1)
    assert begun(schedules, book, 0.9 + AGAIN_S) is None
    assert begun(schedules, book, 1.0 + AGAIN_S) is not None
    assert AGAIN_S == 10.0


def test_the_largest_shares_are_placed_first() -> None:
    """Parts of one and of three quarters that fill two devices fit them in this order only."""
    there = seats("cloud", "cloud-0", "cloud-1", tasks=("read",))
    book = SessionBook(PIPELINE, SPACE)
    parts = {"a": 1, "b": 1, "c": 3, "d": 3}
    for name, quarters in parts.items():
        asked = Session(id=name, pipeline="p", state=SessionState.OPENING, slo_s=0.5, samples="s")
        book.open(asked, 0.0)
        book.planned(name, (reading(quarters),), 0.0)
    book.review(there, {}, {}, 0.0)
    book.assign({name: reading(quarters) for name, quarters in parts.items()}, 0.0)
    book.review(there, {}, {}, 0.1)
    assert {plan.session for plan in book.plans} == set(parts)
