"""After a restart between a plan and the records of its sessions every session can serve."""

import dataclasses
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.sessions.session_book import SessionBook, held_settings
from schemas.enumerations import SessionState
from schemas.records import Session, SessionChoice, SessionPlan
from tests.session_world import a_session_pipeline, a_space
from tests.unit.control.sessions.test_session_book import DEPOT, A, B

Written = tuple[tuple[Session, ...], tuple[SessionPlan, ...]]  # records, and the plan in force
MOVED = tuple(
    dataclasses.replace(seat, device="depot-1", worker=f"depot-1-{seat.task}") for seat in DEPOT
)
PLACES = {"home": DEPOT, "moved": MOVED, "none": ()}


class Life:
    """A book and the existing devices; ``now`` advances with every step."""

    def __init__(self, now: float = 0.0) -> None:
        self.book = SessionBook(a_session_pipeline(), a_space())
        self.seats, self.now = DEPOT, now

    def written(self) -> Written:
        return self.book.sessions, self.book.plans

    def review(self, *, loads: bool = False) -> None:
        held = {
            seat.worker: frozenset(held_settings(self.book.plans, seat.task, [seat.slot]))
            for seat in self.seats
        }
        self.now += 0.1
        self.book.review(self.seats, held if loads else {}, {}, self.now)
        self.book.deletions()

    def do(self, step: str) -> None:
        """Take one step that the state allows, as the controller's review does."""
        book, now = self.book, self.now
        if "cam" not in book:
            if step == "open":
                asked = Session(
                    id="cam", pipeline="p", state=SessionState.OPENING, slo_s=1.0,
                    samples="workload@0",
                )  # fmt: skip
                book.open(asked, now)
        elif step in PLACES:
            self.seats = PLACES[step]
        elif step == "close":
            book.close("cam", now)
        elif step == "replan" and book.session("cam").state is not SessionState.CLOSING:
            book.replan("cam", now)
        elif book.unplanned() and book.session("cam").state is not SessionState.CLOSING:
            self._find(step)
        self.review(loads=step == "load")

    def _find(self, step: str) -> None:
        found: dict[str, tuple[SessionChoice, ...]] = {"a": (A, B), "b": (B, A), "nothing": ()}
        if self.book.planless("cam"):
            self.book.searched("cam", "", self.now)
            if step == "first":
                self.book.first_planned("cam", (A,), self.now)
                return
        if step in found:
            self.book.planned("cam", found[step], self.now)


def restored(written: Written, now: float) -> Life:
    life = Life(now)
    records, plans = written
    for each in records:
        life.book.restore(each)
    life.book.resume(plans, now)
    return life


def serves_again(life: Life, then: Iterable[str]) -> None:
    """Check that an open session serves once it has plans, devices and its settings."""
    for step in (*then, "home"):
        life.do(step)
    if "cam" not in life.book or life.book.session("cam").state is SessionState.CLOSING:
        return
    life.now += 10.0  # draining plans have drained
    if not life.book.session("cam").plans:  # its search may have found no plan
        life.do("replan")
    life.do("a")
    for _ in range(3):
        life.do("load")
    assert life.book.session("cam").state in (SessionState.SERVING, SessionState.REPLANNING)
    assert [plan.admits for plan in life.book.plans].count(True) == 1
    numbers = [plan.number for plan in life.book.plans]
    assert len({*numbers}) == len(numbers)


STEPS = st.lists(
    st.sampled_from(
        ["open", "a", "b", "first", "nothing", "load", "load", "replan", "close", *PLACES]
    ),
    max_size=12,
)


@given(STEPS, STEPS)
def test_a_restart_between_plan_and_records_leaves_a_session_that_serves(
    before: list[str], then: list[str]
) -> None:
    life = Life()
    history = [life.written()]
    for step in ("open", "first", *before):
        life.do(step)
        history.append(life.written())
    for (records, plans), (next_records, next_plans) in pairwise(history):
        serves_again(restored((records, next_plans), life.now), then)
        serves_again(restored((next_records, plans), life.now), then)
        serves_again(restored((next_records, next_plans), life.now), then)
        serves_again(restored((next_records, ()), life.now), then)


def serving() -> Life:
    life = Life()
    for step in ("open", "a", "load"):
        life.do(step)
    assert life.book.session("cam").state is SessionState.SERVING
    return life


def test_a_plan_that_admits_serves_a_session_whose_record_waits() -> None:
    life = Life()
    for step in ("open", "a"):
        life.do(step)
    waiting = life.book.sessions
    life.do("load")
    book = restored((waiting, life.book.plans), 1.0).book
    assert book.session("cam").state is SessionState.SERVING
    assert (book.session("cam").chosen, book.plans) == (0, life.book.plans)


@pytest.mark.parametrize("there", ["none", "home"])
def test_a_plan_that_drains_is_not_loaded_again_for_a_record_that_serves_by_it(there: str) -> None:
    life = serving()
    records = life.book.sessions
    plans = tuple(replace(each, admits=False) for each in life.book.plans)
    life = restored((records, plans), 1.0)
    assert life.book.session("cam").state is SessionState.WAITING
    life.do(there)
    serves_again(life, ())


def test_a_session_that_serves_waits_for_devices_where_its_plan_is_lost() -> None:
    book = restored((serving().book.sessions, ()), 1.0).book
    assert book.session("cam").state is SessionState.WAITING


@pytest.mark.parametrize(
    ("samples", "stopped", "searched"),
    [("workload@0", "", True), ("workload@0", "space", False), ("", "", False)],
    ids=["search goes on", "search has ended", "made by hand"],
)
@pytest.mark.parametrize("steps", [("open", "a"), ("open", "a", "load")], ids=["waits", "serves"])
def test_only_a_search_that_had_not_ended_goes_on_after_a_restart(
    steps: tuple[str, ...], samples: str, stopped: str, searched: bool
) -> None:
    life = Life()
    for step in steps:
        life.do(step)
    (record,), plans = life.written()
    book = restored(((replace(record, samples=samples, stopped=stopped),), plans), 1.0).book
    assert [each.id for each in book.unplanned()] == (["cam"] if searched else [])
    assert not book.planless("cam")


def test_next_plan_has_a_number_above_the_one_in_force_although_its_record_is_older() -> None:
    life = Life()
    for step in ("open", "a"):
        life.do(step)
    (record,), plans = life.written()
    life = restored(((replace(record, number=0),), plans), 1.0)
    assert (life.book.session("cam").number, [each.number for each in plans]) == (1, [1])
    life.do("replan")
    life.do("b")
    life.do("load")
    assert [each.number for each in life.book.plans if each.admits] == [2]
