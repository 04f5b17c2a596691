"""Worker reports on settings decide the plans of sessions."""

import dataclasses

import pytest
from msgspec.structs import replace

from control.controller.session_desk import NoSessions, SessionDesk
from control.policies.solvers import solve
from control.problem.sample_sets import Truth
from control.problem.seats import open_seats
from control.sessions.session_book import held_settings
from schemas.effects import SESSIONS, Forget, Send, Solve
from schemas.enumerations import NodeState, SessionState
from schemas.pipeline import Pipeline, Policy
from schemas.records import Command, Plan, Report, Session, SessionChoice, Settings
from schemas.release import WITH_SESSIONS
from tests.builders import a_lease, a_plan
from tests.session_world import (
    TASKS,
    a_hand_made_plan,
    a_query_plan,
    a_session_pipeline,
    a_space,
)
from tests.unit.control.sessions.test_session_book import a_choice
from tests.unit.control.sessions.test_session_health import CAM, find_inaccurate

DEVICES = {f"depot-0-{task}": f"{task}@depot" for task in TASKS}
PLAN = a_plan(
    [a_lease(f"depot-0-{task}", task, slots=(0,)) for task in TASKS],
    settings=Settings(policy="compass", slo_s=1.0),
)

CHOICE = a_choice("1")


def reported(*unloadable: str) -> Report:
    return Report(
        node="depot-0-read", role="worker", pipeline="p", epoch=1, incarnation=0.0, sent_s=0.0,
        state=NodeState.READY, counts={f"unloadable/{each}": 1.0 for each in unloadable},
        error="no memory is left",
    )  # fmt: skip


def sessions(plan: Plan) -> list[str]:
    return [each.session for each in plan.sessions]


def test_session_with_an_unloadable_setting_gets_an_error_and_others_continue_to_load() -> None:
    desk = SessionDesk(a_session_pipeline(), a_space())
    for name, votes in (("far", "0.55"), ("near", "0.5")):
        state, plans = SessionState.WAITING, (a_choice(votes),)
        asked = Session(id=name, pipeline="p", state=state, slo_s=1.0, plans=plans, number=1)
        desk.take(asked, 0.0)
    assert sessions(desk.stamped(PLAN, DEVICES, 0.0)) == ["far", "near"]
    desk.take(reported("read/v@votes=0.55"), 0.1)
    assert desk.changed
    assert sessions(desk.stamped(PLAN, DEVICES, 0.1)) == ["near"]
    (far,) = (each for each in desk.news() if isinstance(each, Send) and each.key == "far")
    assert isinstance(far.record, Session)
    assert far.record.reason.startswith("no memory is left; close the session and open it")


def test_improvement_over_an_earlier_plan_does_not_count_for_new_objectives() -> None:
    desk = SessionDesk(a_session_pipeline(), a_space())
    health = desk._health
    desk.take(replace(CAM, plans=(a_choice("1"),), chosen=0, stopped="decided"), 0.0)
    find_inaccurate(health)
    command = Command(
        id="1", pipeline="p", action="set-session-slo", issued_s=7.0,
        arguments={"session": "cam", "accuracy": "0.95"},
    )  # fmt: skip
    assert [done for _, done, _ in desk.carry_out([command], "compass", WITH_SESSIONS, 7.0)] == [
        True
    ]
    assert not health.helps("cam", 0.6)


@pytest.mark.parametrize("samples", ["workload@", "workload@²", "workload@" + 5000 * "7", "mine"])
def test_sample_set_without_a_readable_seed_is_refused(samples: str) -> None:
    """Profilers ended with an error for each of its requests."""
    desk = SessionDesk(a_session_pipeline(), a_space())
    command = Command(
        id="1", pipeline="p", action="open-session",
        arguments={"session": "cam", "accuracy": "0.5", "samples": samples},
    )  # fmt: skip
    ((_, done, message),) = desk.carry_out([command], "compass", WITH_SESSIONS, 0.0)
    assert (done, message[:13]) == (False, "no sample set")


@pytest.mark.parametrize(
    ("issued_s", "accuracy", "done"),
    [(4.9, "0.5", True), (4.9, "0.6", False), (5.1, "0.5", False), (9.0, "0.5", False)],
    ids=["by this command", "with other objectives", "before this command", "after the restart"],
)
def test_session_opened_just_before_a_restart_is_not_refused_to_its_command(
    issued_s: float, accuracy: str, done: bool
) -> None:
    """The control app ended between the record of the session and the result of the command."""
    desk = SessionDesk(a_session_pipeline(), a_space())
    opened = Session(
        id="cam", pipeline="p", state=SessionState.OPENING, slo_s=1.0, accuracy=0.5,
        samples="workload@1", opened_s=5.0,
    )  # fmt: skip
    desk.take(opened, 8.0)
    desk.start(None, 8.0)
    arguments = {"session": "cam", "accuracy": accuracy, "samples": "workload@1"}
    command = Command(
        id="1", pipeline="p", action="open-session", issued_s=issued_s, arguments=arguments
    )
    ((_, carried_out, message),) = desk.carry_out([command], "compass", WITH_SESSIONS, 9.0)
    assert (carried_out, message.startswith("session 'cam' is open already")) == (done, not done)


@pytest.mark.parametrize("issued_s", [4.9, 5.1])
@pytest.mark.parametrize(
    "state", [SessionState.REPLANNING, SessionState.OPENING, SessionState.SEARCHING]
)
def test_session_whose_plan_is_searched_already_is_not_replanned_again(
    state: SessionState, issued_s: float
) -> None:
    """By a command from before a restart, or a second one. A session that had waited for devices
    was counted twice."""
    desk = SessionDesk(a_session_pipeline(), a_space())
    desk.take(replace(CAM, state=state, changed_s=5.0, replans=1), 8.0)
    serving = (a_query_plan("cam"),) if state is SessionState.REPLANNING else ()
    desk.start(replace(PLAN, sessions=serving), 8.0)
    command = Command(
        id="1", pipeline="p", action="replan-session", issued_s=issued_s,
        arguments={"session": "cam"},
    )  # fmt: skip
    ((_, done, _),) = desk.carry_out([command], "compass", WITH_SESSIONS, 9.0)
    assert (done, desk._book.session("cam").replans) == (True, 1)


@pytest.mark.parametrize(
    ("action", "state", "done"),
    [
        ("open-session", SessionState.OPENING, "is open"),
        ("replan-session", SessionState.REPLANNING, "is being replanned"),
        ("close-session", SessionState.CLOSING, "is closing"),
        ("close-session", SessionState.OPENING, ""),
    ],
)
def test_command_carried_out_just_before_a_restart_has_its_result_when_it_has_expired(
    action: str, state: SessionState, done: str
) -> None:
    """It was refused, "give it again": for a session that was then open already."""
    desk = SessionDesk(a_session_pipeline(), a_space())
    desk.take(replace(CAM, state=state, opened_s=5.0, changed_s=5.0, samples="workload@1"), 20.0)
    desk.start(replace(PLAN, sessions=(a_query_plan("cam"),)), 20.0)
    asked = {"accuracy": "0.9", "samples": "workload@1"} if action == "open-session" else {}
    command = Command(
        id="1", pipeline="p", action=action, issued_s=4.9, arguments={"session": "cam", **asked}
    )
    ((_, carried_out, message),) = desk.carry_out([command], "compass", WITH_SESSIONS, 21.0)
    wanted = f"session 'cam' {done}" if done else "the command waited 16 s"
    assert (carried_out, message.startswith(wanted)) == (bool(done), True), message


def serving_desk(pipeline: Pipeline | None = None, choice: SessionChoice = CHOICE) -> SessionDesk:
    """Return a desk with a serving session."""
    desk = SessionDesk(pipeline or a_session_pipeline(), a_space())
    asked = replace(CAM, state=SessionState.WAITING, plans=(choice,), stopped="decided")
    desk.take(asked, 0.0)
    desk.start(None, 0.0)
    made = desk.stamped(PLAN, DEVICES, 0.0)
    for seat in open_seats(PLAN.leases, DEVICES):
        held = held_settings(made.sessions, seat.task, [seat.slot])
        desk.take(replace(reported(), node=seat.worker, held=held), 0.1)
    desk.stamped(PLAN, DEVICES, 0.1)
    assert state_of(desk) is SessionState.SERVING
    return desk


def state_of(desk: SessionDesk) -> SessionState:
    book = desk._book
    return book.session("cam").state


def told(desk: SessionDesk, action: str, now: float, policy: str = "compass") -> tuple[bool, str]:
    """Carry out a command on the session and let its searches continue; return the result."""
    command = Command(
        id=action, pipeline="p", action=action, issued_s=now, arguments={"session": "cam"}
    )
    ((_, done, message),) = desk.carry_out([command], policy, WITH_SESSIONS, now)
    desk.planning(policy, now)
    return done, message


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -3600.0])
def test_slow_operators_show_whatever_the_clock_of_their_new_host_says(ahead_s: float) -> None:
    """After a restart on a host whose clock is behind, no batch counted any more."""
    choice = replace(CHOICE, latency_s=0.9, run_s={"scan": 0.1, "read": 0.5})
    desk = serving_desk(choice=choice)
    scan, began_s = choice.settings["scan"], 100.0
    desk.planning("compass", began_s)
    for at in range(10):
        now, batches = began_s + at, 5.0 * (at + 1)
        counts = {"batches": batches, "finished": batches, "busy_s": 1.2 * batches}
        report = replace(
            reported(), node="depot-0-scan", incarnation=began_s + ahead_s, sent_s=now + ahead_s,
            counts={f"{what}/{scan}": count for what, count in counts.items()},
        )  # fmt: skip
        desk.take(report, now)
    desk.planning("compass", now)
    assert state_of(desk) is SessionState.REPLANNING
    assert desk._book.session("cam").cause.startswith("its operators take longer than planned")


def test_session_can_close_during_a_new_search() -> None:
    desk = serving_desk()
    assert told(desk, "replan-session", 1.0)[0]
    assert state_of(desk) is SessionState.REPLANNING
    assert told(desk, "close-session", 2.0)[0]
    assert state_of(desk) is SessionState.CLOSING
    assert sessions(desk.stamped(PLAN, DEVICES, 100.0)) == []


def test_session_closed_under_a_policy_without_sessions_is_removed() -> None:
    policies = (Policy(name="compass", kind="compass"), Policy(name="static"))
    desk = serving_desk(a_session_pipeline(policies=policies))
    other = replace(PLAN, settings=replace(PLAN.settings, policy="static"))
    assert told(desk, "close-session", 1.0, "static")[0]
    desk.stamped(other, DEVICES, 1.1)
    assert desk.deletions() == []
    desk.stamped(other, DEVICES, 100.0)
    assert desk.deletions() == [Forget(SESSIONS, "cam")]


def test_a_session_that_closes_is_not_planned_again() -> None:
    desk = serving_desk()
    assert told(desk, "close-session", 1.0)[0]
    assert told(desk, "replan-session", 1.1) == (
        False, "session 'cam' closes; open another one",
    )  # fmt: skip


@pytest.mark.parametrize("action", ["open-session", "set-session-slo"])
def test_slo_beyond_the_retention_of_work_is_refused(action: str) -> None:
    """A closed session kept its devices for that long, and work could be deleted unread."""
    desk = serving_desk()
    name = "new" if action == "open-session" else "cam"
    commands = [
        Command(id=slo, pipeline="p", action=action, issued_s=1.0,
                arguments={"session": name, "accuracy": "0.5", "slo": slo})
        for slo in ("481s", "480s")
    ]  # fmt: skip
    long, longest = desk.carry_out(commands, "compass", WITH_SESSIONS, 1.0)
    assert long[1:] == (
        False, "the SLO is 481s; work is kept for ten minutes, so 480s at most",
    )  # fmt: skip
    assert longest[1]


@pytest.mark.parametrize("weight", ["0", "-1", "1e20", "inf"])
def test_weight_that_no_schedule_takes_is_refused(weight: str) -> None:
    """No contending session got devices; above 1.7e308 with age, the control app ended."""
    desk = SessionDesk(a_session_pipeline(), a_space())
    arguments = {"session": "cam", "weight": weight, "plan": a_hand_made_plan()}
    command = Command(id="1", pipeline="p", action="open-session", arguments=arguments)
    ((_, done, message),) = desk.carry_out([command], "compass", WITH_SESSIONS, 0.0)
    assert (done, message[:6]) == (False, "weight")


@pytest.mark.parametrize("weight", [1e9, 1.7e308])
def test_sessions_of_any_weight_and_age_are_scheduled(weight: float) -> None:
    desk = SessionDesk(a_session_pipeline(), a_space())
    for name in ("a", "b"):
        asked = replace(CAM, id=name, state=SessionState.WAITING, plans=(a_choice("1"),))
        desk.take(replace(asked, weight=weight, changed_s=0.0, stopped="space"), 0.0)
    desk.start(None, 0.0)
    desk.stamped(PLAN, DEVICES, 1e9)
    (asked_for,) = (e for e in desk.planning("compass", 1e9) if isinstance(e, Solve))
    assert solve(asked_for.solver, asked_for.problem).served == 2


def refused(desk: SessionDesk | NoSessions, action: str, **arguments: str) -> str:
    """Return why a command on the session cam is refused."""
    asked = {"session": "cam", **arguments}
    command = Command(id="1", pipeline="p", action=action, arguments=asked)
    ((_, done, message),) = desk.carry_out([command], "compass", WITH_SESSIONS, 0.0)
    assert not done
    return message


@pytest.mark.parametrize("action", ["close-session", "replan-session", "set-session-slo"])
def test_command_on_a_session_that_is_not_open_is_refused(action: str) -> None:
    desk = SessionDesk(a_session_pipeline(), a_space())
    desk.take(replace(CAM, id="desk"), 0.0)
    assert refused(desk, action) == "there is no session 'cam'; open are: desk"


@pytest.mark.parametrize("action", ["open-session", "close-session"])
def test_command_on_a_session_of_a_pipeline_without_tiers_is_refused(action: str) -> None:
    message = refused(NoSessions("p"), action)
    assert message.startswith("p has no sessions: its cluster has no tiers; add cluster.tiers")


def test_sample_set_is_refused_if_labelled_inputs_are_the_samples() -> None:
    space = dataclasses.replace(a_space(), truth=Truth.FEEDBACK, profilers=1)
    message = refused(
        SessionDesk(a_session_pipeline(), space), "open-session", samples="workload@1"
    )
    assert message.startswith("no sample set 'workload@1': profiling.truth is feedback")
