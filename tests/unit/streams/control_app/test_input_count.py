"""The checks that reports arrive at the control app, beside the counts of the input topic."""

from schemas.effects import REPORTS
from streams.control_app.input_count import LISTEN_S, REMIND_S, InputCount
from streams.control_app.report_intake import ReportIntake


def test_one_check_that_reports_arrive_is_under_way_at_a_time() -> None:
    """While a shared topic had no leader, every count began one: up to 14 lines on it came within
    five seconds, and the checks held the threads on which plans are checked before their write."""
    counting = InputCount(None, ReportIntake("p", lambda *_: None), lambda: 0.0)  # type: ignore[arg-type]
    assert counting.listens(1.0)
    assert not counting.listens(1.0 + 2 * LISTEN_S)
    assert counting.blind(2.0)
    assert counting.listens(1.0 + 3 * LISTEN_S)
    counting.listen({REPORTS: 0}, 2.0)
    assert not counting.listens(2.0 + LISTEN_S / 2)
    assert counting.listens(2.0 + LISTEN_S)


def test_offsets_that_cannot_be_read_are_one_line_with_reminders() -> None:
    """While a partition had no leader, each count brought a line: one or more a second."""
    counting = InputCount(None, ReportIntake("p", lambda *_: None), lambda: 0.0)  # type: ignore[arg-type]
    told = [second for second in range(65) if counting.blind(float(second))]
    assert told == [0, REMIND_S, 2 * REMIND_S]
