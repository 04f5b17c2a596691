"""Plans of sessions with unloadable settings."""

import pytest
from msgspec.structs import replace

from control.problem.seats import Seat
from control.sessions.session_book import LoadFailures, SessionBook, held_settings
from schemas.enumerations import SessionState
from schemas.records import Session, SessionChoice
from tests.session_world import TASKS, a_session_pipeline, a_space

DEPOT = tuple(
    Seat(worker=f"depot-0-{task}", task=task, tier="depot", device="depot-0", slot=slot)
    for slot, task in enumerate(TASKS)
)


def a_choice(votes: str) -> SessionChoice:
    return SessionChoice(
        settings={"scan": "scan/v@scale=1", "read": f"read/v@votes={votes}"},
        tiers=dict.fromkeys(TASKS, "depot"),
        quarters=dict.fromkeys(TASKS, 1),
    )


A, B = a_choice("1"), a_choice("3")


def loads(book: SessionBook, now: float) -> None:
    """Let the workers hold the settings of the plans."""
    held = {
        seat.worker: frozenset(held_settings(book.plans, seat.task, [seat.slot])) for seat in DEPOT
    }
    book.review(DEPOT, held, {}, now)


def failed(*settings: str) -> LoadFailures:
    return LoadFailures(frozenset(settings), "not loaded: no memory is left")


def serving() -> SessionBook:
    """Return a book with a session that serves by ``A``."""
    book = SessionBook(a_session_pipeline(), a_space())
    asked = Session(
        id="cam", pipeline="p", state=SessionState.OPENING, slo_s=1.0, samples="workload@0"
    )
    book.open(asked, 0.0)
    book.planned("cam", (A,), 0.0)
    book.review(DEPOT, {}, {}, 0.0)
    loads(book, 0.1)
    assert book.session("cam").state is SessionState.SERVING
    return book


def test_session_keeps_its_serving_plan_if_a_better_plan_cannot_be_loaded() -> None:
    book = serving()
    book.replan("cam", 1.0)
    book.planned("cam", (B, A), 1.0)
    assert book.session("cam").chosen == 1
    loads_a = {seat.worker: frozenset(A.settings.values()) for seat in DEPOT}
    book.review(DEPOT, loads_a, {}, 1.1)
    book.review(DEPOT, loads_a, {"depot-0-read": failed("read/v@votes=3")}, 1.2)
    session = book.session("cam")
    assert (session.state, session.plans, session.chosen) == (SessionState.SERVING, (A,), 0)


def test_session_serves_by_its_earlier_plan_if_its_only_new_plan_cannot_be_loaded() -> None:
    book = serving()
    book.replan("cam", 1.0)
    book.planned("cam", (B,), 1.0)
    loads_a = {seat.worker: frozenset(A.settings.values()) for seat in DEPOT}
    book.review(DEPOT, loads_a, {}, 1.1)
    assert "cam" not in book.serving
    book.review(DEPOT, loads_a, {"depot-0-read": failed("read/v@votes=3")}, 1.2)
    session = book.session("cam")
    assert (session.state, session.plans) == (SessionState.SERVING, ())
    assert session.reason == "not loaded: no memory is left"
    assert book.serving["cam"].number == 1  # its health is observed again


def test_plans_are_rejected_for_their_own_settings_only() -> None:
    book = SessionBook(a_session_pipeline(), a_space())
    choices = {"near": a_choice("0.5"), "far": a_choice("0.55")}
    for name, choice in choices.items():
        book.open(
            Session(id=name, pipeline="p", state=SessionState.OPENING, slo_s=1.0, plans=(choice,)),
            0.0,
        )
        book.review(DEPOT, {}, {}, 0.0)
    assert [each.session for each in book.plans] == ["far", "near"]
    book.review(DEPOT, {}, {"depot-0-read": failed("read/v@votes=0.55")}, 0.1)
    assert [each.session for each in book.plans] == ["near"]
    book.review(DEPOT, {}, {"depot-0-read": failed("read/v@votes=0.55", "read/v@votes=0.5")}, 0.2)
    assert book.plans == ()


@pytest.mark.parametrize(
    ("samples", "way_out"),
    [
        ("", "close the session and open it with another plan, or with this one once it loads"),
        ("workload@0", "`headrace session replan` searches for other plans"),
    ],
)
def test_a_session_whose_only_plan_cannot_be_loaded_says_what_to_do(
    samples: str, way_out: str
) -> None:
    book = SessionBook(a_session_pipeline(), a_space())
    opened = SessionState.OPENING
    asked = Session(id="cam", pipeline="p", state=opened, slo_s=1.0, samples=samples)
    book.open(replace(asked, plans=(A,)), 0.0)
    book.review(DEPOT, {}, {}, 0.0)
    book.review(DEPOT, {}, {"depot-0-read": failed("read/v@votes=1")}, 0.1)
    session = book.session("cam")
    assert (session.state, session.plans) == (SessionState.WAITING, ())
    assert session.reason == f"not loaded: no memory is left; {way_out}"


def test_a_session_that_serves_moves_where_a_setting_of_its_plan_can_no_longer_be_loaded() -> None:
    book = serving()
    book.replan("cam", 1.0)
    book.planned("cam", (A, B), 1.0)
    loads(book, 1.1)
    assert book.session("cam").plans == (A, B)
    book.review(DEPOT, {}, {"depot-0-read": failed("read/v@votes=1")}, 5.0)
    assert (book.session("cam").state, book.session("cam").plans) == (SessionState.WAITING, (B,))
    book.review(DEPOT, {}, {"depot-0-read": failed("read/v@votes=1")}, 10.0)
    loads(book, 10.1)
    assert book.session("cam").state is SessionState.SERVING


def test_a_session_without_another_plan_keeps_the_one_whose_setting_cannot_be_loaded() -> None:
    book = serving()
    book.review(DEPOT, {}, {"depot-0-read": failed("read/v@votes=1")}, 5.0)
    assert (book.session("cam").state, book.session("cam").plans) == (SessionState.SERVING, (A,))
