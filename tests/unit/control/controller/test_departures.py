"""What is known of nodes that are gone is forgotten."""

import gc
from types import FunctionType, ModuleType

from control.controller.command_queue import CommandQueue
from control.controller.control_state import ControlState
from control.controller.departures import GONE_S, Departures
from control.controller.record_intake import RecordIntake
from control.controller.session_desk import SessionDesk
from schemas.effects import REPORTS, Arrived
from schemas.records import Report
from tests.control_world import a_pipeline, a_profile
from tests.session_world import a_session_pipeline, a_space


def test_a_node_is_gone_after_an_hour_without_a_report_and_named_once() -> None:
    departures = Departures()
    assert departures.heard("w0", 0.0) == ()
    assert departures.heard("w1", 1.0) == ()
    assert departures.heard("w0", GONE_S) == ()
    assert departures.heard("w0", GONE_S + 1.0) == ()
    assert departures.heard("w0", GONE_S + 1.5) == ("w1",)
    assert departures.heard("w0", GONE_S + 2.0) == ()


def names_in(*parts: object) -> set[str]:
    """Return the names of rented workers that these objects hold, however deep."""
    found: set[str] = set()
    seen: set[int] = set()
    left = list(parts)
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type | FunctionType | ModuleType):
            continue
        seen.add(id(each))
        if isinstance(each, str) and each.startswith("rented-"):
            found.add(each)
        elif isinstance(each, Report):
            left.append(each.node)
        elif isinstance(each, dict):  # `get_referents` leaves text keys out
            left += [*each, *each.values()]
        else:
            left += gc.get_referents(each)
    return found


def test_workers_that_come_and_go_for_months_cost_no_memory() -> None:
    """Every rented worker has a new name; the control app kept the last report of each of them."""
    state, gone = ControlState(a_pipeline(), a_profile(), {}), list[str]()
    intake = RecordIntake(state, CommandQueue(), gone=gone.append)
    every_s = 300.0
    for number in range(500):
        now = number * every_s
        report = Report(
            node=f"rented-{number}", role="worker", pipeline="postcode", epoch=0, incarnation=now,
            sent_s=now, state="loading" if number % 2 else "ready", device="cpu", task="locate",
            variant="net", counts={"arrived/locate/net": 1.0},
        )  # fmt: skip
        intake.arrived(Arrived(report, REPORTS, 0, number, now), now)
    last_hour = {f"rented-{500 - n}" for n in range(1, round(GONE_S / every_s) + 2)}
    assert names_in(state.estimates, intake._reach, intake._departures) == last_hour
    assert names_in(intake._ages) == last_hour
    assert set(gone) == {f"rented-{n}" for n in range(500)} - last_hour  # `PlanGate` forgets them


def test_workers_of_sessions_that_come_and_go_for_months_cost_no_memory() -> None:
    """The control app kept what each of them held, its failures and its counts."""
    desk = SessionDesk(a_session_pipeline(), a_space())
    every_s = 600.0
    for number in range(100):
        now = number * every_s
        report = Report(
            node=f"rented-{number}", role="worker", pipeline="p", epoch=1, incarnation=now,
            sent_s=now, state="ready", held=("read/v",), error="no memory is left",
            counts={"unloadable/read/v": 1.0, "hop/a>b": 1.0},
        )  # fmt: skip
        desk.take(report, now)
    assert names_in(desk) == {f"rented-{100 - n}" for n in range(1, round(GONE_S / every_s) + 2)}
