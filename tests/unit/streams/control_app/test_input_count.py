"""The checks that reports arrive at the control app, beside the counts of the input topic."""

from schemas.effects import REPORTS
from streams.control_app.input_count import LISTEN_S, InputCount
from streams.control_app.report_intake import ReportIntake


def test_one_check_that_reports_arrive_is_under_way_at_a_time() -> None:
    """While a shared topic had no leader, every count began one: up to 14 lines on it came within
    five seconds, and the checks held the threads on which plans are checked before their write."""
    counting = InputCount(None, ReportIntake("p", lambda *_: None), lambda: 0.0)  # type: ignore[arg-type]
    assert counting.listens(1.0)
    assert not counting.listens(1.0 + 2 * LISTEN_S)
    counting.blind()
    assert counting.listens(1.0 + 3 * LISTEN_S)
    counting.listen({REPORTS: 0}, 2.0)
    assert not counting.listens(2.0 + LISTEN_S / 2)
    assert counting.listens(2.0 + LISTEN_S)
