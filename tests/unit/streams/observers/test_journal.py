"""The journal: which events are logged, and how often."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    DEAD_LETTERS,
    OUTPUTS,
    PLANS,
    REPORTS,
    RESULTS,
    Arrived,
    Effect,
    Event,
    Failed,
    Infer,
    Load,
    Send,
    Solve,
    Solved,
    Woke,
)
from schemas.records import (
    DROPPED,
    FAILED,
    Answer,
    Command,
    CommandResult,
    DeadLetter,
    Query,
    Report,
    Selection,
    SelectionTable,
)
from streams.observers.journal import MOST, WINDOW_S, Journal
from streams.observers.log_lines import LEVELS
from tests.builders import (
    a_lease,
    a_plan,
    a_refusal,
    a_work,
    an_answer,
    an_ended,
    arrived,
    inferred,
    loaded,
)

Told = tuple[str, str, str]  # level, event, sentence


class Lines(logging.Handler):
    """A handler that keeps written records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def told(self) -> list[Told]:
        found = [(r.levelname.lower(), r.event, r.getMessage()) for r in self.records]
        self.records.clear()
        return found


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, log = Lines(), logging.getLogger("headrace.node")
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.propagate = True
    log.setLevel(logging.NOTSET)


def saw(
    journal: Journal, event: Event, *effects: Effect, node: str = "w", now: float = 1.0
) -> None:
    journal.saw(node, event, effects, now)


def answer_sent(answer: Answer) -> Send:
    return Send(RESULTS, answer, key=answer.id)


def a_report(sent_s: float) -> Send:
    report = Report(
        node="e",
        role="egress",
        pipeline="p",
        epoch=1,
        incarnation=0.0,
        sent_s=sent_s,
        state="ready",
    )
    return Send(REPORTS, report, 0)


LOST = an_answer(
    7, outcome=DROPPED, task="read", reason="read/v would finish 12 ms after the deadline"
)


def test_a_plan_is_reported_once_by_each_node_and_with_the_lease_where_that_is_new(
    lines: Lines,
) -> None:
    journal = Journal("p")
    first = arrived(a_plan([a_lease()]))
    for node in ("w", "ingress-0"):
        saw(journal, first, node=node)
        saw(journal, first, node=node)
    saw(journal, arrived(a_plan([a_lease()], epoch=2)))
    saw(journal, arrived(a_plan(epoch=3)))
    saw(journal, arrived(a_plan([a_lease()], epoch=2)))
    saw(journal, arrived(a_plan(epoch=9, pipeline="another")))
    assert lines.told() == [
        ("info", "lease.changed", "plan 1: read/v, batches of 4, slots 0; test"),
        ("info", "plan.followed", "plan 1: test"),
        ("info", "lease.changed", "plan 3: lease removed; test"),
    ]


def test_a_line_has_the_ids_to_search_for(lines: Lines) -> None:
    journal = Journal("p")
    saw(journal, arrived(a_plan([a_lease(slots=(2, 5))])))
    saw(journal, Woke(), answer_sent(LOST), node="egress-0")
    assert [record.fields for record in lines.records] == [
        {
            "node": "w", "pipeline": "p", "epoch": 1, "reason": "test", "task": "read",
            "variant": "v", "batch": 4, "slots": [2, 5], "open_slot": 2,
        },
        {
            "node": "egress-0", "pipeline": "p", "query": "q7", "origin": "0-7",
            "outcome": "dropped", "late": False, "incomplete": False, "task": "read",
            "reason": LOST.reason, "latency_ms": 200.0, "epoch": 1, "kind": "past_saving",
        },
    ]  # fmt: skip


def test_loads_are_reported_as_they_begin_end_and_fail(lines: Lines) -> None:
    journal = Journal("p")
    saw(journal, Woke(), Load("read/v"))
    saw(journal, loaded("read/v", 0.25))
    saw(journal, Failed("read/w", "read/w cannot be loaded: no such file"))
    assert lines.told() == [
        ("info", "load.began", "loading read/v"),
        ("info", "load.ended", "loaded read/v in 0.250 s"),
        ("error", "load.failed", "read/w cannot be loaded: no such file"),
    ]


def test_queries_that_were_not_answered_in_time_are_reported_and_the_others_are_not(
    lines: Lines,
) -> None:
    journal = Journal("p")
    late = an_answer(1, late=True, answered_s=0.6)
    part = an_answer(2, incomplete=True, reason=LOST.reason, task="read")
    wrong = an_answer(3, outcome=FAILED, task="read", reason="read/v raised ValueError: smudged")
    refused = a_refusal(4, "over capacity", 0.01)
    for answer in (an_answer(0), late, part, wrong, refused, LOST):
        saw(journal, Woke(), answer_sent(answer))
    assert lines.told() == [
        (
            "info", "query.late",
            "query q1 answered late after 600.0 ms: 100.0 ms after its deadline",
        ),
        (
            "info", "query.dropped",
            "query q2 dropped at read, answered with a part missing after 200.0 ms: "
            "read/v would finish 12 ms after the deadline",
        ),
        (
            "warning", "query.failed",
            "query q3 failed at read after 200.0 ms: read/v raised ValueError: smudged",
        ),
        ("info", "query.refused", "query q4 refused at ingress after 10.0 ms: over capacity"),
        (
            "info", "query.dropped",
            "query q7 dropped at read after 200.0 ms: read/v would finish 12 ms after the deadline",
        ),
    ]  # fmt: skip


def test_many_equal_events_are_logged_by_first_lines_and_then_a_count(lines: Lines) -> None:
    journal = Journal("p")
    for offset in range(3 * MOST):
        saw(journal, Woke(), answer_sent(a_refusal(offset, "over capacity", 0.01)), node="e")
    saw(journal, Woke(), answer_sent(a_refusal(99, "no worker serves task 'read'", 0.01)), node="e")
    assert [event for _, event, _ in lines.told()] == ["query.refused"] * (MOST + 1)
    saw(journal, Woke(), a_report(WINDOW_S), node="e", now=WINDOW_S)
    assert lines.told() == []
    saw(journal, Woke(), a_report(1.0 + WINDOW_S), node="e", now=1.0 + WINDOW_S)
    assert lines.told() == [
        ("info", "more", f"query.refused (over_capacity): {2 * MOST} more within 10 s")
    ]
    saw(journal, Woke(), answer_sent(a_refusal(100, "over capacity", 0.01)), node="e", now=12.0)
    assert len(lines.told()) == 1


def test_windows_also_end_at_the_control_app_which_sends_no_reports(lines: Lines) -> None:
    journal = Journal("p")
    failed = Failed(1, "the planner took too much memory")
    for _ in range(MOST + 2):
        saw(journal, failed, node="control")
    assert [event for _, event, _ in lines.told()] == ["job.failed"] * MOST
    heard = arrived(a_report(1.0 + WINDOW_S).record, topic=REPORTS)
    saw(journal, heard, node="control", now=1.0 + WINDOW_S)
    saw(journal, failed, node="control", now=2.0 + WINDOW_S)
    assert lines.told() == [
        ("info", "more", "job.failed: 2 more within 10 s"),
        ("warning", "job.failed", failed.error),
    ]


def test_dead_letters_and_failed_jobs_are_warnings(lines: Lines) -> None:
    letter = DeadLetter(
        topic="p.queries", partition=3, offset=41, reason="it is empty", value=b"", at_s=1.0
    )
    journal = Journal("p")
    saw(journal, Woke(), Send(DEAD_LETTERS, letter))
    saw(journal, Failed(3, "read/v raised ValueError: x"))
    assert lines.told() == [
        ("warning", "dead-letter", "record p.queries 3-41 cannot be read: it is empty"),
        ("warning", "job.failed", "read/v raised ValueError: x"),
    ]


def test_commands_and_plans_of_the_control_app_are_reported(lines: Lines) -> None:
    def result(ok: bool) -> CommandResult:
        return CommandResult(
            id="c-1", pipeline="p", action="set-slo", ok=ok, message="said", epoch=4, finished_s=1.0
        )

    asked = Command(id="c-1", pipeline="p", action="set-slo", arguments={"slo": "250ms"})
    other = Command(id="c-2", pipeline="another", action="pause")
    journal = Journal("p")
    for command in (asked, other):
        saw(journal, Arrived(command, COMMANDS, 0, 0, 0.0))
    saw(journal, Woke(), Send(PLANS, a_plan([a_lease()], epoch=4)))
    saw(journal, Woke(), Send(PLANS, a_plan(epoch=5, feasible=False, binding="too few devices")))
    saw(journal, Woke(), *(Send(COMMAND_RESULTS, result(ok)) for ok in (True, False)))
    assert lines.told() == [
        ("info", "command.given", "command c-1: set-slo slo=250ms"),
        ("info", "plan.made", "plan 4: test"),
        ("info", "plan.made", "plan 5: test; not feasible: too few devices"),
        ("info", "command.done", "command c-1 (set-slo) done: said"),
        ("warning", "command.refused", "command c-1 (set-slo) refused: said"),
    ]


def test_tables_are_logged_or_else_the_reason_why_there_are_none(lines: Lines) -> None:
    made = Selection(
        pipeline="p", task="read", policy="ramsis", issued_s=1.0, slo_s=0.2, workers=4,
        variants=("v",), levels_s=(0.0,), complete=False,
        tables=(SelectionTable(qps=120.0, rows=((0, 0, 1),)),),
    )  # fmt: skip
    none = replace(made, tables=(), reason="raise the SLO")
    saw(Journal("p"), Woke(), *(Send(PLANS, each, 0) for each in (made, none)))
    assert lines.told() == [
        ("info", "selection.made",
         "1 tables for read, 4 workers, up to 120 items/s; refining"),
        ("warning", "selection.none", "read: raise the SLO"),
    ]  # fmt: skip


EVERY_STEP = (
    (Arrived(Query(payload=b"", id="q0"), "queries", 1, 5, 0.0), ()),
    (Woke(), (Send("work.read", a_work(0), 2), Infer(1, "read/v", (b"x",)))),
    (inferred(1, "a"), (Send(OUTPUTS, a_work(0, an_ended("a"), task=""), 0),)),
    (Woke(), (answer_sent(an_answer(0)), Solve(1, "static", None))),
    (Solved(1, None), ()),
)


def test_at_debug_level_a_query_can_be_followed_by_its_id(lines: Lines) -> None:
    logging.getLogger("headrace.node").setLevel(logging.DEBUG)
    journal = Journal("p")
    for event, effects in EVERY_STEP:
        saw(journal, event, *effects)
    assert lines.told() == [
        ("debug", "query.read", "query q0 read"),
        ("debug", "work.sent", "query q0: 1 item to read, slot 2"),
        ("debug", "batch.began", "batch 1 of read/v: 1 item"),
        ("debug", "batch.ended", "batch 1 ran for 100.0 ms"),
        ("debug", "work.sent", "query q0: 1 item to egress"),
        ("debug", "query.answered", "query q0 answered after 200.0 ms"),
        ("debug", "solve.began", "planner static started"),
        ("debug", "solve.ended", "planner finished"),
    ]


def test_at_the_usual_level_nothing_is_said_of_what_goes_well(lines: Lines) -> None:
    journal = Journal("p")
    for event, effects in EVERY_STEP:
        saw(journal, event, *effects)
    assert lines.told() == []


def test_at_debug_level_nothing_is_left_out(lines: Lines) -> None:
    logging.getLogger("headrace.node").setLevel(logging.DEBUG)
    journal = Journal("p")
    for offset in range(2 * MOST):
        saw(journal, Woke(), answer_sent(a_refusal(offset, "over capacity", 0.01)))
    assert len(lines.told()) == 2 * MOST


def test_every_level_is_one_of_the_four() -> None:
    assert set(LEVELS.values()) == {10, 20, 30, 40}
