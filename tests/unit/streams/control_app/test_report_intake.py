"""Reports on their way to the controller: what a term in charge knows of an earlier one."""

from schemas.effects import REPORTS
from streams.control_app.report_intake import ReportIntake
from streams.control_app.topic_ends import STALLED_S


def an_intake() -> ReportIntake:
    return ReportIntake("p", lambda topic, fetched: None)


def test_reports_that_are_written_and_not_delivered_are_a_stall() -> None:
    intake = an_intake()
    intake.begin({})
    assert not intake.stalled({REPORTS: 10}, now=0.0)
    assert not intake.stalled({REPORTS: 20}, now=STALLED_S)
    assert intake.stalled({REPORTS: 30}, now=STALLED_S + 1.0)


def test_reports_that_came_while_another_app_was_in_charge_are_no_stall() -> None:
    """A standby that took charge for the second time ended itself: it had read none meanwhile."""
    intake = an_intake()
    intake.begin({})
    assert not intake.stalled({REPORTS: 10}, now=0.0)
    intake.begin({})
    assert not intake.stalled({REPORTS: 500}, now=2 * STALLED_S)
    assert intake.stalled({REPORTS: 900}, now=4 * STALLED_S)
