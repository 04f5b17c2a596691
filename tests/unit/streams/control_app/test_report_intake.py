"""streams/control_app/report_intake.py: events for the controller from batches of reports."""

from functools import partial
from typing import Any

from schemas.codec.single_object import encode
from schemas.effects import REPORTS, Arrived, Heartbeat, Heartbeats
from schemas.enumerations import NodeState
from schemas.records import Report
from streams.codecs.wire import Fetched
from streams.control_app.control_records import arrived
from streams.control_app.report_intake import WAITED_S, ReportIntake
from streams.control_app.topic_ends import STALLED_S
from streams.topics import physical


def a_report(node: str = "w", sent_s: float = 100.0, **changes: Any) -> Report:
    kept: dict[str, Any] = {"epoch": 1, "state": NodeState.READY, **changes}
    return Report(
        node=node, role="worker", pipeline="p", incarnation=1.0, sent_s=sent_s, **kept
    )  # fmt: skip


def fetched(report: Report, offset: int = 0) -> Fetched:
    return Fetched(physical("p", REPORTS), 0, offset, report.sent_s, None, encode(report), None)


def an_intake(**read_from: int) -> ReportIntake:
    intake = ReportIntake("p", partial(arrived, "p"))
    intake.begin({REPORTS: 0, **read_from})
    return intake


def of(report: Report, offset: int = 0) -> Arrived:
    return Arrived(report, REPORTS, 0, offset, report.sent_s)


def beat(report: Report) -> Heartbeat:
    return Heartbeat("p", report.node, 1.0, report.sent_s)


def test_of_many_workers_those_without_news_are_heartbeats_behind_the_batch() -> None:
    intake = an_intake()
    first = [a_report(f"w{number}") for number in range(200)]
    assert [*intake.events([fetched(each) for each in first])] == [of(each) for each in first]
    again = [a_report(f"w{number}", sent_s=100.05) for number in range(200)]
    news = a_report("w0", sent_s=100.05, epoch=2)
    batch = [fetched(each, 1) for each in (*again[1:], news)]
    beats = Heartbeats(tuple(beat(each) for each in again[1:]))
    assert [*intake.events(batch)] == [of(news, 1), beats]


def test_new_controller_gets_full_reports_of_every_worker() -> None:
    intake = an_intake()
    for sent_s in (100.0, 100.05):
        made = [a_report(f"w{number}", sent_s=sent_s) for number in range(200)]
        intake.begin({REPORTS: 0})
        assert [*intake.events([fetched(each) for each in made])] == [of(each) for each in made]


def test_records_before_the_term_are_obsolete() -> None:
    intake = an_intake(**{REPORTS: 1})
    late = a_report(sent_s=100.2)
    assert [*intake.events([fetched(a_report()), fetched(late, 1)])] == [of(late, 1)]


def test_workers_whose_reports_wait_are_alive() -> None:
    intake, report = an_intake(**{REPORTS: 1}), a_report()
    intake.arrived([fetched(report, 1), fetched(a_report("v"), 0)], 10.0)
    assert intake.overdue(10.0 + WAITED_S / 2) == ()
    assert intake.overdue(10.0 + 2 * WAITED_S) == (beat(report),)
    assert intake.overdue(20.0) == ()


def test_a_delivered_batch_waits_no_more() -> None:
    intake, batch = an_intake(), [fetched(a_report())]
    intake.arrived(batch, 10.0)
    intake.delivered(batch)
    assert intake.overdue(20.0) == ()


def test_a_reader_that_delivers_nothing_of_what_is_written_has_stalled() -> None:
    intake = an_intake()
    assert not intake.stalled({REPORTS: 5}, 0.0)
    assert not intake.stalled({REPORTS: 8}, STALLED_S)
    assert intake.stalled({REPORTS: 9}, STALLED_S + 1.0)
    intake.arrived([fetched(a_report())], STALLED_S + 1.5)
    assert not intake.stalled({REPORTS: 10}, STALLED_S + 2.0)


def test_a_reader_that_a_quota_delays_has_not_stalled() -> None:
    """The control app ended again and again, which read its topics anew each time."""
    intake = an_intake()
    for second in range(60):
        intake.answered()
        assert not intake.stalled({REPORTS: second}, float(second))


def test_a_topic_that_was_made_anew_is_read_from_its_end_at_most() -> None:
    intake = an_intake(**{REPORTS: 7})
    intake.stalled({REPORTS: 2}, 0.0)
    assert intake.read_from == {REPORTS: 2}
