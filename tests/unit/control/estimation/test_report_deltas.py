"""control/estimation/report_deltas.py: the news in a worker's report."""

from msgspec.structs import replace

from control.estimation.report_deltas import News, ReportDeltas
from schemas.records import Report

FIRST = Report(
    node="w", role="worker", pipeline="p", epoch=1, incarnation=1.0, sent_s=2.0, state="ready",
    counts={"finished/a": 5.0},
)  # fmt: skip


def after(*reports: Report) -> News | None:
    readings, news = ReportDeltas("worker"), None
    for report in reports:
        news = readings.take(report)
    return news


def test_delta_is_the_difference_to_the_previous_report() -> None:
    later = replace(FIRST, sent_s=2.5, counts={"finished/a": 7.0, "finished/b": 1.0})
    news = after(FIRST, later)
    assert news == News(later, FIRST.counts, 0.5)
    assert [news.since(f"finished/{name}") for name in "abc"] == [2.0, 1.0, 0.0]


def test_new_or_restarted_worker_has_no_previous_report() -> None:
    reborn = replace(FIRST, incarnation=9.0, sent_s=9.1, counts={"finished/a": 1.0})
    assert after(FIRST) == News(FIRST, None, None)
    news = after(FIRST, reborn)
    assert news == News(reborn, {}, None)
    assert news.since("finished/a") == 1.0


def test_older_reports_and_reports_of_other_roles_have_no_delta() -> None:
    assert after(FIRST, FIRST) is None
    assert after(FIRST, replace(FIRST, sent_s=1.5)) is None
    assert after(FIRST, replace(FIRST, incarnation=0.5, sent_s=9.0)) is None
    assert after(replace(FIRST, role="ingress")) is None
    other = replace(FIRST, node="x", sent_s=1.0)
    assert after(FIRST, other) == News(other, None, None)
