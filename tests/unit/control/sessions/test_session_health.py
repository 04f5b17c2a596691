"""When late queries make a session need another plan."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from control.problem.sample_sets import Truth
from control.problem.tiers import Link
from control.sessions.session_health import Drift, SessionHealth
from schemas.enumerations import NodeState, SessionState
from schemas.records import Report, Session, SessionPlan
from tests.session_world import a_space

CAM = Session(
    id="cam", pipeline="p", state=SessionState.SERVING, slo_s=1.0, accuracy=0.9,
    samples="workload@0",
)  # fmt: skip
PLAN = SessionPlan(session="cam", number=1, slo_s=1.0, admits=True, stages=())


def reported(at_s: float, **counts: float) -> Report:
    return Report(
        node="egress", role="egress", pipeline="p", epoch=1, state=NodeState.READY,
        incarnation=0.0, sent_s=at_s,
        counts={f"session/cam/{name}": count for name, count in counts.items()},
    )  # fmt: skip


def serving(**space: Any) -> SessionHealth:
    """Return the health of a session that serves since 0."""
    health = SessionHealth(replace(a_space(), **space), drain_s=1.0)
    health.serves({"cam": PLAN}, 0.0)
    return health


def seen(truth: Truth, labels: int, answered: float) -> SessionHealth:
    """Return the health of a session after five seconds of 20 queries a second."""
    health = serving(truth=truth)
    health.take(reported(0.0), 0.0)
    for second in range(1, 6):
        ended = 20.0 * second
        right = {"labels": float(labels * second), "score": float(labels * second)}
        counts = {"answered": ended * answered, "late": ended * (1 - answered)}
        health.take(reported(float(second), **counts, **(right if labels else {})), float(second))
    return health


@pytest.mark.parametrize(
    ("truth", "labels", "alarmed"),
    [
        (Truth.WORKLOAD, 0, False),  # nothing that could judge a search
        (Truth.FEEDBACK, 0, False),
        (Truth.WORKLOAD, 5, True),
        (Truth.FEEDBACK, 5, True),
        (Truth.REFERENCE, 0, True),
    ],
)
def test_late_queries_raise_an_alarm_where_a_search_has_a_truth(
    truth: Truth, labels: int, *, alarmed: bool
) -> None:
    alarm = seen(truth, labels, answered=0.3).alarm(CAM, 5.0)
    assert (alarm is not None and alarm.drift is Drift.ATTAINMENT) is alarmed


def test_queries_in_time_raise_none() -> None:
    assert seen(Truth.REFERENCE, 0, answered=1.0).alarm(CAM, 5.0) is None


def test_late_queries_of_the_past_raise_none() -> None:
    """A pause after an earlier alarm may end long after the queries have."""
    health = seen(Truth.REFERENCE, 0, answered=0.3)
    assert health.alarm(CAM, 60.0) is None


def test_egress_counts_from_before_the_control_app_started_are_ignored() -> None:
    health = serving(truth=Truth.REFERENCE)
    health.take(reported(0.2, answered=1_000.0, late=9_000.0), 0.2)
    assert health.alarm(CAM, 0.2) is None
    health.take(reported(0.4, answered=1_000.0, late=9_050.0), 0.4)
    alarm = health.alarm(CAM, 0.4)
    assert alarm is not None
    assert health.qps["cam"] == 10.0  # 50 in five seconds


def test_reopened_session_of_the_same_name_counts_from_zero() -> None:
    health = seen(Truth.REFERENCE, 0, answered=0.5)
    health.serves({}, 6.0)
    health.take(reported(6.0), 6.0)  # egress has forgotten its counts
    health.serves({"cam": PLAN}, 7.0)
    health.take(reported(8.0, late=50.0), 8.0)
    alarm = health.alarm(CAM, 8.0)
    assert alarm is not None
    assert health.qps["cam"] == 10.0


def find_inaccurate(health: SessionHealth) -> None:
    """Let half of a session's answers be correct and raise the alarm."""
    health.serves({"cam": PLAN}, 0.0)
    health.take(reported(0.0), 0.0)
    health.take(reported(1.0, labels=200.0, score=100.0, squares=100.0), 1.0)
    alarm = health.alarm(CAM, 1.0)
    assert alarm is not None
    assert alarm.drift is Drift.ACCURACY


def test_plan_certainly_more_accurate_than_the_inaccurate_one_helps() -> None:
    health = SessionHealth(a_space(), drain_s=1.0)
    find_inaccurate(health)
    assert [health.helps("cam", accuracy) for accuracy in (0.4, 0.6)] == [False, True]


def test_a_session_with_queries_is_not_idle_whatever_the_clock_of_egress_says() -> None:
    health = serving()
    for second in range(100):
        health.take(reported(second - 3600.0, answered=float(min(second, 50))), float(second))
        assert health.idle(30.0, float(second)) == (("cam",) if second >= 80 else ())


def test_a_session_is_not_idle_while_egress_is_silent() -> None:
    health = serving()
    health.take(reported(0.0), 0.0)
    assert health.idle(30.0, 60.0) == ()
    for second in range(60, 100):
        health.take(reported(float(second)), float(second))
        assert health.idle(30.0, float(second)) == (("cam",) if second >= 90 else ())


def test_an_egress_that_is_gone_keeps_no_session_open() -> None:
    health = serving()
    health.take(structs.replace(reported(0.0), node="egress-1"), 0.0)
    for second in range(40):
        health.take(reported(float(second)), float(second))
    assert health.idle(30.0, 39.0) == ()
    health.forget_node("egress-1")
    assert health.idle(30.0, 39.0) == ("cam",)


def test_answers_without_bytes_over_a_slow_link_raise_no_alarm() -> None:
    health = serving()
    for second in range(3):
        hop = {"records": 4.0 * second, "bytes": 0.0, "busy_s": 2.0 * second}
        counts = {f"hop/cam/handheld>cloud/{what}": count for what, count in hop.items()}
        health.take(structs.replace(reported(float(second)), counts=counts), float(second))
    assert health.alarm(CAM, 2.0) is None


def test_counts_that_a_node_dropped_between_two_reports_begin_anew() -> None:
    """A session that was without a plan for less than a report's interval had negative ones, which
    hid its late queries."""
    health = seen(Truth.REFERENCE, 0, answered=1.0)
    health.take(reported(10.5, answered=5.0, late=50.0), 10.5)
    alarm = health.alarm(CAM, 10.5)
    assert alarm is not None
    assert health.qps["cam"] == 11.0


def alarms_of_late_queries(*times_s: float) -> list[bool]:
    """Return, for times at which 50 queries were late, whether each raised an alarm."""
    health = serving(truth=Truth.REFERENCE)
    health.take(reported(0.0), 0.0)
    found = []
    for number, at_s in enumerate(times_s, start=1):
        health.take(reported(at_s, late=50.0 * number), at_s)
        found.append(health.alarm(CAM, at_s) is not None)
    return found


def test_searches_that_do_not_help_are_repeated_after_pauses_that_double() -> None:
    assert alarms_of_late_queries(10.0, 19.0, 20.0, 39.0, 40.0, 79.0, 80.0) == [
        True, False, True, False, True, False, True
    ]  # fmt: skip


def test_troubles_of_earlier_days_do_not_delay_the_search_for_a_new_one() -> None:
    """The pause had grown to ten minutes within a week of one alarm a day."""
    days = [86400.0 * day for day in range(1, 8)]
    assert alarms_of_late_queries(*days, days[-1] + 11.0) == [True] * 8


def test_counts_of_sessions_that_do_not_serve_are_ignored() -> None:
    health = SessionHealth(a_space(), drain_s=1.0)
    health.serves({"desk": structs.replace(PLAN, session="desk")}, 0.0)
    health.take(reported(0.0), 0.0)
    health.take(reported(1.0, labels=200.0, score=0.0, late=50.0), 1.0)
    assert health.alarm(CAM, 1.0) is None
    assert health.alarm(structs.replace(CAM, id="desk"), 1.0) is None


def test_labels_that_are_all_wrong_raise_the_alarm() -> None:
    health = serving()
    health.take(reported(0.0), 0.0)
    health.take(reported(1.0, labels=40.0), 1.0)  # a count of nothing is not reported
    alarm = health.alarm(CAM, 1.0)
    assert alarm is not None
    assert alarm.drift is Drift.ACCURACY


def test_answers_by_the_plan_before_do_not_count_against_the_next_one() -> None:
    health = SessionHealth(replace(a_space(), truth=Truth.REFERENCE), drain_s=2.0)
    health.serves({"cam": PLAN}, 0.0)
    health.take(reported(0.0), 0.0)
    health.serves({"cam": structs.replace(PLAN, number=2)}, 1.0)
    health.take(reported(2.9, late=50.0, labels=40.0), 2.9)
    assert health.alarm(CAM, 2.9) is None
    health.take(reported(3.0, late=100.0), 3.0)
    assert health.alarm(CAM, 3.0) is not None


def test_an_alarm_for_late_queries_ends_the_comparison_with_an_inaccurate_plan() -> None:
    health = SessionHealth(a_space(), drain_s=0.0)
    find_inaccurate(health)
    health.serves({"cam": structs.replace(PLAN, number=2)}, 20.0)
    counts = {"labels": 200.0, "score": 100.0, "squares": 100.0}
    good = {"labels": 210.0, "score": 110.0, "squares": 110.0}
    health.take(reported(20.0, **counts), 20.0)
    health.take(reported(21.0, late=50.0, **good), 21.0)
    alarm = health.alarm(CAM, 21.0)
    assert alarm is not None
    assert alarm.drift is Drift.ATTAINMENT
    assert not health.helps("cam", 0.99)


def test_a_session_that_is_replanned_by_a_command_begins_anew() -> None:
    health = SessionHealth(replace(a_space(), truth=Truth.REFERENCE), drain_s=1.0)
    find_inaccurate(health)
    health.links["cam"] = {("handheld", "cloud"): Link(1.0, 0.0)}
    health.forget("cam")
    assert (health.links, health.qps, health.helps("cam", 0.99)) == ({}, {}, False)
    health.take(reported(2.0, labels=200.0, score=100.0, squares=100.0, late=50.0), 2.0)
    assert health.alarm(CAM, 2.0) is not None  # without a pause


def test_a_node_that_is_gone_and_comes_back_is_counted_from_its_next_report_on() -> None:
    health = serving(truth=Truth.REFERENCE)
    health.take(reported(0.0), 0.0)
    health.forget_node("egress")
    health.take(reported(1.0, late=50.0), 1.0)
    assert health.alarm(CAM, 1.0) is None


def test_only_the_silence_of_an_egress_keeps_sessions_from_being_idle() -> None:
    health = serving()
    health.take(structs.replace(reported(0.0), node="scorer", role="scorer"), 0.0)
    for second in range(31):
        health.take(reported(float(second)), float(second))
    assert health.idle(30.0, 30.0) == ("cam",)
