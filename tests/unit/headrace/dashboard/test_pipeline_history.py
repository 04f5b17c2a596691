"""The history of a pipeline: one row per second, even with late or silent nodes."""

from typing import Any

from headrace.dashboard.pipeline_history import FIGURES, KEPT_S, PipelineHistory
from headrace.dashboard.topic_feed import in_turn
from headrace.dashboard.view_delta import SERIES, delta
from headrace.status.snapshot import Board
from schemas.records import CommandResult, Report, SlotState
from tests.applied_deltas import applied
from tests.builders import a_plan


def report(sent_s: float, arrived: float = 0.0, node: str = "ingress-0", **more: Any) -> Report:
    return Report(
        node=node, role="ingress", pipeline="p", epoch=1, incarnation=1.0, sent_s=sent_s,
        state="ready", counts={"arrived": arrived}, **more,
    )  # fmt: skip


def history() -> PipelineHistory:
    return PipelineHistory(Board("p"))


def arrived(rows: Any) -> list[tuple[float, float]]:
    return [(row[0], row[1 + FIGURES.index("arrived_qps")]) for row in rows]


def test_every_second_has_a_row_with_the_rate_of_that_time() -> None:
    found = history()
    reports = [report(100 + at / 5, 10 * at) for at in range(16)]  # 50 queries/s for three seconds
    found.see(reports, now=103.2)
    found.reach(103.2)
    assert arrived(found.rates) == [(101.0, 50.0), (102.0, 50.0), (103.0, 50.0)]


def test_history_read_at_once_has_the_same_rows_as_live() -> None:
    reports = [report(100 + at / 5, at * at) for at in range(40)]
    live, read_back = history(), history()
    for each in reports:
        live.see((each,), now=each.sent_s)
        live.reach(each.sent_s)
    read_back.see(reports, now=107.9)
    read_back.reach(107.9)
    assert list(read_back.rates) == list(live.rates)


def test_a_clock_that_is_ahead_does_not_move_the_time_on() -> None:
    found = history()
    found.see([report(100.0), report(100.2), report(5000.0, node="other")], now=101.5)
    found.reach(101.5)
    assert [row[0] for row in found.rates] == [101.0]


def test_after_the_clock_is_set_back_rows_begin_anew() -> None:
    """Nothing was sampled until the clock reached its old time."""
    found = history()
    found.see([report(5000 + at / 5, 10 * at) for at in range(16)], now=5003.0)
    found.reach(5003.0)
    found.reach(5002.5)  # a small step: the next second follows
    assert [row[0] for row in found.rates] == [5001.0, 5002.0, 5003.0]
    set_back = [report(100 + at / 5, 150 + 10 * at) for at in range(16)]
    found.see(set_back[:1], now=100.0)
    found.reach(100.0)
    assert (list(found.rates), list(found.queues)) == ([], [])  # so viewers discard theirs
    found.see(set_back[1:], now=103.0)
    found.reach(103.0)
    assert arrived(found.rates) == [(101.0, 50.0), (102.0, 50.0), (103.0, 50.0)]


def test_a_late_report_does_not_begin_the_rows_anew() -> None:
    found = history()
    found.see([report(100 + at / 5) for at in range(16)], now=103.0)
    found.reach(103.0)
    found.see([report(90.0, node="slow")], now=103.1)
    found.reach(103.1)
    assert [row[0] for row in found.rates] == [101.0, 102.0, 103.0]


def test_rows_are_forgotten_after_the_time_shown() -> None:
    found = history()
    found.see([report(100.0)], now=100.0)
    for second in range(100, 100 + int(KEPT_S) + 50):
        found.reach(float(second))
    assert (len(found.rates), found.rates[0][0]) == (KEPT_S, 150.0)


def test_a_node_that_falls_silent_and_comes_back_is_two_events() -> None:
    found = history()
    found.see([report(100.0), report(100.0, node="cpu-0")], now=100.0)
    found.reach(101.0)
    assert (list(found.events), found.gone()) == ([], [])  # known nodes are not news
    found.see([report(at, node="ingress-0") for at in (102.0, 103.0, 104.0)], now=104.0)
    found.reach(104.0)
    assert found.gone() == ["cpu-0"]
    found.see([report(104.8, node="cpu-0"), report(105.0)], now=105.0)
    found.reach(105.0)
    assert [(e["kind"], e["who"], e["good"]) for _, e in found.events] == [
        ("silent", "cpu-0", False), ("reports", "cpu-0", True),
    ]  # fmt: skip
    assert found.gone() == []


def test_nodes_that_were_never_heard_again_are_forgotten() -> None:
    """The page's process kept the reports of every node, such as the ingress of each session."""
    found = history()
    for second in range(1000, 3000):
        found.see([report(second, node=f"session-{second}")], now=second)
        found.reach(second)
    assert len(found.board.reports()) <= KEPT_S + 1
    assert found.gone() == sorted(f"session-{s}" for s in range(2399, 2997))


def test_commands_are_events_and_plans_keep_the_one_in_force_before() -> None:
    found = history()
    plans = [
        a_plan(epoch=epoch, issued_s=at_s, pipeline="p")
        for epoch, at_s in ((1, 10.0), (2, 50.0), (3, 800.0))
    ]
    done = CommandResult(
        id="me-1",
        pipeline="p",
        action="pause",
        ok=True,
        message="paused",
        epoch=3,
        finished_s=801.0,
    )
    found.see(in_turn([*plans, done, report(802.0)]), now=802.0)
    found.reach(803.0)
    assert [row["epoch"] for _, row in found.plan_rows()] == [2, 3]
    assert [(number, e["kind"], e["text"]) for number, e in found.events] == [
        (1, "command", "pause: paused")
    ]


def test_plans_after_a_purge_follow_those_before_it_although_their_epochs_are_smaller() -> None:
    found = history()
    before, after = (a_plan(epoch=n, issued_s=at, pipeline="p") for n, at in ((9, 10.0), (1, 50.0)))
    found.see([before, before, report(40.0)], now=40.0)
    shown = found.plan_rows()
    found.see([after, report(60.0)], now=60.0)
    assert found.board.snapshot(60.0).epoch == 1
    assert [row["epoch"] for _, row in found.plan_rows()] == [9, 1]
    rest: dict[str, Any] = {series: [] for series in SERIES}
    view, news = {"p": {**rest, "plans": shown}}, {"p": {**rest, "plans": found.plan_rows()}}
    assert applied(view, delta(view, news)) == news


def test_queue_lengths_come_from_workers_until_the_broker_reports_lag() -> None:
    found = history()
    slots = (SlotState("read", 3, 7, 2), SlotState("read", 4, 7, 0))
    found.see([report(100.0, slots=slots)], now=100.0)
    found.reach(101.0)
    found.waiting = {("read", 3): 0, ("read", 4): 9}
    found.reach(102.0)
    assert list(found.queues) == [[101.0, {"read:3": 2}], [102.0, {"read:4": 9}]]


def test_records_are_put_in_the_order_of_their_times() -> None:
    plan, first, last = a_plan(epoch=1, issued_s=5.0), report(3.0), report(9.0)
    assert in_turn([last, plan, None, first]) == [first, plan, last]


def test_records_of_other_pipelines_are_not_kept() -> None:
    found = history()
    found.see([a_plan(epoch=1, pipeline="other"), report(100.0)], now=100.0)
    assert list(found.plans) == []
