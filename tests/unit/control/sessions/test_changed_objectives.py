"""The book of sessions: what becomes of plans that load when objectives change."""

from msgspec.structs import replace

from control.problem.seats import Seat
from control.sessions.session_book import SessionBook
from schemas.enumerations import SessionState
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
