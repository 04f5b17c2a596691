"""The session book: effects of changed objectives on plans."""

from types import SimpleNamespace

from msgspec.structs import replace

from control.controller.session_schedules import SessionSchedules
from control.problem.seats import Seat
from control.sessions.session_book import SessionBook
from schemas.effects import Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import Session, SessionChoice
from tests.session_world import a_session_pipeline, a_space

SEATS = tuple(
    Seat(worker=f"{tier}-0-{task}", device=f"{tier}-0", tier=tier, task=task, slot=number)
    for tier in ("depot", "cloud")
    for number, task in enumerate(("scan", "read"))
)
HELD = {seat.worker: frozenset({"scan/v", "read/v"}) for seat in SEATS}


def a_plan(tier: str, latency_s: float, usd_per_h: float) -> SessionChoice:
    return SessionChoice(
        settings={"scan": "scan/v", "read": "read/v"}, tiers={"scan": tier, "read": tier},
        quarters={"scan": 2, "read": 2}, latency_s=latency_s, accuracy=0.9, usd_per_h=usd_per_h,
    )  # fmt: skip


FAST, CHEAP = a_plan("cloud", 0.05, 0.4), a_plan("depot", 0.3, 0.1)


def test_a_plan_that_loads_is_dropped_if_it_does_not_meet_new_objectives() -> None:
    book = SessionBook(a_session_pipeline(), a_space())
    book.open(
        Session(id="a", pipeline="p", state=SessionState.OPENING, slo_s=0.5, samples="workload@0"),
        0.0,
    )
    book.first_planned("a", (FAST,), 1.0)
    book.review(SEATS, {}, {}, 1.0)
    book.review(SEATS, HELD, {}, 2.0)
    assert book.session("a").state is SessionState.SERVING
    book.planned("a", (CHEAP, FAST), 3.0)
    book.review(SEATS, {}, {}, 3.0)
    assert [plan.stage("read").tier for plan in book.plans] == ["cloud", "depot"]
    changed = replace(book.session("a"), slo_s=0.2)
    assert book.change_objectives(changed, 4.0) == ""
    book.review(SEATS, HELD, {}, 4.0)
    assert [plan.stage("read").tier for plan in book.plans] == ["cloud"]
    assert book.session("a").state is SessionState.SERVING
    assert book.session("a").plans == (FAST,)


def contending() -> tuple[SessionBook, SessionSchedules, int]:
    """Return a book of two contending sessions and the job that schedules them."""
    space = a_space()
    book, schedules = SessionBook(a_session_pipeline(), space), SessionSchedules(space)
    for name in ("a", "b"):
        opening = Session(
            id=name, pipeline="p", state=SessionState.OPENING, slo_s=0.5, samples="workload@0"
        )
        book.open(opening, 0.0)
        book.planned(name, (CHEAP, FAST), 0.0)
    book.review(SEATS, {}, {}, 0.0)
    (solve,) = schedules.begin(book, Policy(name="compass", kind="compass"), 0.0)
    assert isinstance(solve, Solve)
    return book, schedules, solve.job


def coming(book: SessionBook, now: float) -> dict[str, str]:
    """Return the tier of each loading plan by session."""
    book.review(SEATS, {}, {}, now)
    return {plan.session: plan.stage("read").tier for plan in book.plans}


def test_schedule_in_flight_assigns_the_plans_of_its_request() -> None:
    book, schedules, job = contending()
    book.change_objectives(replace(book.session("a"), slo_s=0.2), 0.1)  # only FAST is left
    schedules.solved(Solved(job, SimpleNamespace(plans=(1, 0))), book, 0.2)
    assert coming(book, 0.2) == {"a": "cloud", "b": "depot"}


def test_a_plan_that_a_schedule_assigns_is_refused_if_it_is_gone() -> None:
    book, schedules, job = contending()
    book.change_objectives(replace(book.session("a"), slo_s=0.2), 0.1)
    schedules.solved(Solved(job, SimpleNamespace(plans=(0, 1))), book, 0.2)
    assert coming(book, 0.2) == {"b": "cloud"}


def test_an_assigned_plan_is_given_up_when_objectives_change() -> None:
    book, schedules, job = contending()
    schedules.solved(Solved(job, SimpleNamespace(plans=(0, 1))), book, 0.1)
    book.change_objectives(replace(book.session("a"), slo_s=0.2), 0.2)
    assert coming(book, 0.2) == {"b": "cloud"}


def test_contending_sessions_are_scheduled_at_once_when_objectives_have_changed() -> None:
    book, schedules, job = contending()
    schedules.solved(Solved(job, SimpleNamespace(plans=(None, None))), book, 0.1)
    policy = Policy(name="compass", kind="compass")
    assert schedules.begin(book, policy, 0.2) == []
    book.change_objectives(replace(book.session("a"), slo_s=0.2), 0.3)
    book.review(SEATS, {}, {}, 0.3)
    assert len(schedules.begin(book, policy, 0.3)) == 1


def test_a_plan_that_drains_is_kept_for_the_queries_of_a_longer_slo() -> None:
    book = SessionBook(a_session_pipeline(), a_space())
    opening = Session(
        id="a", pipeline="p", state=SessionState.OPENING, slo_s=9.0, samples="workload@0"
    )
    book.open(opening, 0.0)
    book.planned("a", (FAST,), 1.0)
    book.review(SEATS, {}, {}, 1.0)
    book.review(SEATS, HELD, {}, 2.0)
    book.change_objectives(replace(book.session("a"), slo_s=0.2), 10.0)
    book.close("a", 11.0)
    grace_s = a_session_pipeline().grace_s
    assert book.next_s() == 10.0 + 9.0 + grace_s
    book.review(SEATS, HELD, {}, 18.9 + grace_s)
    assert [plan.session for plan in book.plans] == ["a"]
    book.review(SEATS, HELD, {}, 19.0 + grace_s)
    assert book.plans == ()
