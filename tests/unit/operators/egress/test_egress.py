"""Egress: join the branches of a query and emit its one Answer."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from control.problem.tiers import Link
from operators.drop_reasons import dropped, read_late
from operators.egress.egress import COMMIT_S, MOST_CLOSED, Egress, highest, made_s, note_of, upto_of
from operators.egress.latency_histogram import bucket
from operators.input_place import GENERATION
from operators.join import MOST_CRASHES
from operators.serving.transfers import SessionLinks
from schemas.effects import Arrived, Assign, Done, Effect, Event, Send, Wake, Woke
from schemas.pipeline_fingerprint import fingerprint
from schemas.records import (
    ANSWERED,
    DROPPED,
    FAILED,
    FULL_CREDIT,
    Answer,
    DeadLetter,
    Garbled,
    Item,
    Notice,
    Origin,
    Report,
    SessionPlan,
    SessionStage,
    Work,
)
from streams.live.crash_journal import CrashJournal
from tests.builders import (
    DECLARED,
    GRACE_S,
    SLO_S,
    a_hop,
    a_notice,
    a_noticed,
    a_pipeline,
    a_plan,
    a_refusal,
    a_work,
    an_answer,
    an_end,
    an_ended,
    arrived,
    quiet,
    reports,
    told,
)

HALF = FULL_CREDIT // 2
CLOSES_S = SLO_S + GRACE_S
ANSWER = an_end(ANSWERED, "read")
HOP = a_hop()


def an_egress(**changes: Any) -> Egress:
    """Return an egress for both partitions of the outputs topic, with a fresh report."""
    egress = Egress("e", changes.pop("pipeline", a_pipeline()), (0, 1), incarnation=0.0, **changes)
    egress.handle(Woke(), 0.1)
    return egress


def whole(offset: int, value: Any = "seven") -> Work:
    """Return all records of a query, answered."""
    return a_work(offset, an_ended(value), task="")


def part(offset: int, ordinal: int, value: Any = "a", **changes: Any) -> Work:
    """Return half of a query, answered."""
    return a_work(offset, an_ended(value, (0, ordinal), credit=HALF, **changes), task="")


def emitted(answer: Answer) -> Send:
    return Send("results", answer, key=answer.id)


def an_answered(offset: int = 0, value: Any = "seven", **changes: Any) -> Send:
    return emitted(an_answer(offset, result=[value], paths=((HOP,),), ends=(ANSWER,), **changes))


def emitted_ids(effects: list[Effect]) -> list[str]:
    return [
        each.record.id for each in effects if type(each) is Send and type(each.record) is Answer
    ]


def commits(egress: Egress, *events: Event, now: float = 0.2) -> list[Effect]:
    """Return the commits after these events."""
    for event in events:
        egress.handle(event, now)
    return quiet(egress.handle(Woke(), now + COMMIT_S))


def done(offset: int, note: str, slot: int = 0) -> list[Effect]:
    return [Assign("outputs", done=(Done(slot, offset, note),))]


# ---------------------------------------------------------------------- the common course


def refused_in(offset: int, session: str) -> Notice:
    """Return the notice of a refused query of a session."""
    noticed = a_noticed(offset, refused="paused", session=session)
    return Notice(partition=0, upto=offset + 1, queries=(noticed,))


def test_an_answer_costs_the_same_with_many_open_sessions() -> None:
    """Every answer copied the names of all sessions with answers."""
    egress, sessions = an_egress(), 2000
    for number in range(sessions):
        egress.handle(arrived(refused_in(number, f"s{number}"), number), 0.2)
    one_more = arrived(refused_in(sessions, "s7"), sessions)
    tracemalloc.start()
    egress.handle(one_more, 0.2)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20_000


def test_answered_queries_of_a_long_deadline_leave_nothing_behind_open_ones_of_a_short_one() -> (
    None
):
    """Their closing times were kept until the deadline: at an hour and 1000 queries/s, 700 MB."""
    egress = an_egress()
    open_ones = (a_noticed(0, deadline_s=2 * SLO_S), a_noticed(1))
    egress.handle(arrived(Notice(partition=0, upto=2, queries=open_ones)), 0.2)
    for offset in range(2, 5000):
        noticed = a_noticed(offset, deadline_s=3600.0)
        notice = Notice(partition=0, upto=offset + 1, queries=(noticed,))
        egress.handle(arrived(notice, 2 * offset), 0.2)
        egress.handle(arrived(a_work(offset, an_ended(), task=""), 2 * offset + 1), 0.2)
        egress.handle(Woke(), 0.2)
    assert len(egress._due) <= MOST_CLOSED + 4
    times = (CLOSES_S - 0.001, CLOSES_S, CLOSES_S + SLO_S)
    assert [emitted_ids(egress.handle(Woke(), now)) for now in times] == [[], ["q1"], ["q0"]]


def test_at_first_it_reads_plans_and_its_partitions() -> None:
    egress = Egress("e", a_pipeline(), (0, 1), incarnation=0.0)
    effects = egress.handle(Woke(), 0.0)
    assert quiet(effects) == [Assign("plans", (0,)), Assign("outputs", (0, 1))]


def test_a_noticed_query_is_awaited_until_its_deadline_and_grace() -> None:
    assert told(an_egress(), (arrived(a_notice(0)), 0.1)) == [Wake(CLOSES_S)]


def test_a_complete_query_is_answered_and_its_records_are_done() -> None:
    egress = an_egress()
    assert commits(egress, arrived(a_notice(0))) == []
    assert told(egress, (arrived(whole(0), 1), 0.2)) == [an_answered(), Wake(0.2 + COMMIT_S)]
    assert commits(egress) == done(2, "0:1")


def test_branches_may_come_in_any_order_and_number_of_records() -> None:
    egress = an_egress(pipeline=a_pipeline({"locate": ["read"], "read": []}))
    commits(egress, arrived(a_notice(0)))
    assert told(egress, (arrived(part(0, 1, "b"), 1), 0.2)) == []
    answer = an_answer(result=["a", "b"], paths=((HOP,), (HOP,)), ends=(ANSWER, ANSWER))
    assert told(egress, (arrived(part(0, 0, "a"), 2), 0.2))[0] == emitted(answer)


def test_offsets_are_committed_only_behind_closed_queries() -> None:
    egress = an_egress()
    events = [arrived(a_notice(0)), arrived(a_notice(1), 1), arrived(whole(1), 2)]
    assert commits(egress, *events) == []
    assert commits(egress, arrived(whole(0), 3)) == done(4, "0:2")


def test_a_notice_of_several_queries_is_done_with_the_last_of_them() -> None:
    egress = an_egress()
    assert commits(egress, arrived(a_notice(0, 1, 2)), arrived(whole(2), 1)) == []
    assert commits(egress, arrived(whole(0), 2)) == []
    assert commits(egress, arrived(whole(1), 3)) == done(4, "0:3")


def test_one_commit_for_all_that_came_at_once_names_every_input_partition() -> None:
    egress = an_egress(notes={0: {2: 7}, 1: {1: 3}})
    third = Notice(partition=2, upto=9)
    other = Notice(partition=1, upto=4)
    effects = commits(egress, arrived(third, 5), arrived(a_notice(upto=6), 6), arrived(other, 1, 1))
    assert effects == [Assign("outputs", done=(Done(0, 7, "0:6,2:9"), Done(1, 2, "1:4")))]


def test_queries_that_complete_at_once_are_committed_by_one_wake() -> None:
    egress = an_egress()
    commits(egress, arrived(a_notice(0)), arrived(a_notice(1), 1))
    assert told(egress, (arrived(whole(0), 2), 0.2)) == [an_answered(), Wake(0.2 + COMMIT_S)]
    assert told(egress, (arrived(whole(1), 3), 0.2)) == [an_answered(1)]


def test_a_refused_query_is_answered_by_its_notice() -> None:
    egress = an_egress()
    notice = Notice(partition=0, upto=5, queries=(a_noticed(4, refused="over capacity"),))
    assert told(egress, (arrived(notice), 0.2)) == [
        emitted(a_refusal(4, "over capacity", 0.2)), Wake(0.2 + COMMIT_S),
    ]  # fmt: skip
    assert commits(egress) == done(1, "0:5")


# ---------------------------------------------------------------------- time


def test_a_query_whose_work_is_lost_is_dropped_after_its_grace() -> None:
    egress = an_egress()
    commits(egress, arrived(a_notice(0)), now=0.1)
    effects = quiet(egress.handle(Woke(), CLOSES_S))
    lost = an_answer(
        outcome=DROPPED,
        reason="incomplete 750 ms after its creation",
        answered_s=CLOSES_S,
        epoch=0,
    )
    assert effects == [emitted(lost), Wake(CLOSES_S + COMMIT_S)]
    assert commits(egress, now=CLOSES_S) == done(1, "0:1")


def test_record_behind_a_closed_query_is_a_duplicate() -> None:
    egress = an_egress()
    commits(egress, arrived(a_notice(0)))
    egress.handle(Woke(), CLOSES_S)
    assert told(egress, (arrived(whole(0), 1), CLOSES_S)) == []  # the commit is to come already
    assert commits(egress, now=CLOSES_S) == done(2, "0:1")


def test_the_next_query_is_closed_in_its_turn() -> None:
    egress = an_egress()
    first, second = a_noticed(0), a_noticed(1, deadline_s=SLO_S + 1)
    notice = Notice(partition=0, upto=2, queries=(second, first))
    assert told(egress, (arrived(notice), 0.1)) == [Wake(CLOSES_S + 1), Wake(CLOSES_S)]
    (send, wake) = quiet(egress.handle(Woke(), CLOSES_S))
    assert isinstance(send, Send)
    assert isinstance(send.record, Answer)
    assert (send.record.id, wake) == ("q0", Wake(CLOSES_S + 1))
    assert isinstance(egress.handle(Woke(), CLOSES_S + 1)[0], Send)


def test_an_answered_query_is_not_closed_again_at_its_deadline() -> None:
    egress = an_egress()
    commits(egress, arrived(a_notice(0)), arrived(whole(0), 1))
    assert quiet(egress.handle(Woke(), CLOSES_S)) == []


def test_egress_wakes_for_open_queries_only() -> None:
    egress = an_egress()
    due = [a_noticed(each, deadline_s=SLO_S + each) for each in range(3)]
    commits(egress, arrived(Notice(partition=0, upto=3, queries=tuple(due))), arrived(whole(1), 1))
    assert told(egress, (Woke(), CLOSES_S))[1:] == [Wake(CLOSES_S + 2)]  # 1 is answered


# ---------------------------------------------------------------------- counted once


def test_a_query_of_any_input_partition_is_answered_once() -> None:
    egress = an_egress()
    first, again = (replace(whole(7), origin=Origin(5, 7)) for _ in range(2))
    commits(egress, arrived(a_notice(7, partition=5)))
    assert sends(egress, arrived(first, 1), 0.2)
    assert commits(egress) == done(2, "5:8")
    assert sends(egress, arrived(again, 2), 0.2) == []


def test_a_piece_of_work_that_comes_twice_counts_once() -> None:
    egress = an_egress(pipeline=a_pipeline({"locate": ["read"], "read": []}))
    commits(egress, arrived(a_notice(0)))
    assert told(egress, (arrived(part(0, 0), 1), 0.2), (arrived(part(0, 0, "b"), 2), 0.2)) == []
    effects = commits(egress, arrived(part(0, 1), 3))
    assert effects == done(4, "0:1")
    assert commits(egress, arrived(part(0, 1), 4)) == done(5, "0:1")
    (report,) = reports(egress.handle(Woke(), 9.0))
    assert (report.counts["answered"], report.counts["duplicates"]) == (1, 1)


def test_a_record_that_is_read_twice_is_ignored() -> None:
    egress = an_egress()
    commits(egress, arrived(a_notice(0)), arrived(whole(0), 1))
    assert egress.handle(arrived(whole(0), 1), 0.2) == []
    assert egress.handle(arrived(a_notice(0)), 0.2) == []


def test_work_that_is_faster_than_its_notice_opens_the_query() -> None:
    egress = an_egress(pipeline=a_pipeline({"locate": ["read"], "read": []}))
    assert told(egress, (arrived(part(0, 0)), 0.2)) == [Wake(CLOSES_S)]
    assert commits(egress, arrived(a_notice(0), 1)) == []
    assert commits(egress, arrived(part(0, 1), 2)) == done(3, "0:1")


def test_a_query_answered_before_its_notice_is_held_until_it_comes() -> None:
    egress = an_egress()
    assert told(egress, (arrived(whole(0)), 0.2)) == [an_answered()]  # it need not be closed
    # Committed here, a restart could not tell that the notice is of a query with an answer.
    assert commits(egress) == []
    assert commits(egress, arrived(whole(0), 1)) == []
    assert told(egress, (arrived(a_notice(0), 2), 0.2)) == [Wake(0.2 + COMMIT_S)]
    assert commits(egress) == done(3, "0:1")


def test_an_answer_before_its_notice_is_held_whatever_other_notices_have_come() -> None:
    egress = an_egress()
    assert commits(egress, arrived(a_notice(0)), arrived(whole(0), 1)) == done(2, "0:1")
    assert commits(egress, arrived(whole(2), 2)) == []
    assert commits(egress, arrived(a_notice(1, 2), 3), arrived(whole(1), 4)) == done(5, "0:3")


def test_a_refusal_noticed_behind_an_answer_is_not_a_second_answer() -> None:
    egress = an_egress()
    commits(egress, arrived(whole(4)))
    notice = Notice(partition=0, upto=5, queries=(a_noticed(4, refused="over capacity"),))
    assert told(egress, (arrived(notice, 1), 0.2)) == [Wake(0.2 + COMMIT_S)]


def test_the_work_of_a_query_answered_before_its_notice_is_committed_with_the_notice() -> None:
    """A restarted egress that reads the notice again finds the answer by the time of the work.

    If ingress was away, the notice is much younger; the query's own time is set by its producer.
    """
    egress = an_egress()
    egress.handle(arrived(whole(0), offset=0), 0.2)
    assert commits(egress, arrived(a_notice(0, 1), offset=1)) == []  # query 1 is open
    assert commits(egress, arrived(whole(1), offset=2)) == done(3, "0:2")


def test_notices_that_a_restarted_ingress_repeats_are_heard_once() -> None:
    egress = an_egress()
    commits(egress, arrived(a_notice(0, 1)), arrived(whole(0), 1), arrived(whole(1), 2))
    # It restarts at offset 0 and this time takes three queries in two drains.
    assert commits(egress, arrived(a_notice(0), 3), arrived(whole(0), 4)) == done(5, "0:2")
    assert commits(egress, arrived(a_notice(1, 2), 5)) == []
    assert commits(egress, arrived(whole(2), 6)) == done(7, "0:3")
    (report,) = reports(egress.handle(Woke(), 9.0))
    assert report.counts["answered"] == 3


# ---------------------------------------------------------------------- after a restart


def test_restart_learns_closed_queries_from_the_note() -> None:
    egress = an_egress(notes={0: {0: 3}})
    assert commits(egress, arrived(whole(2), 8)) == done(9, "0:3")
    assert commits(egress, arrived(a_notice(2, 3), 9), arrived(whole(3), 10)) == done(11, "0:4")


def test_a_restart_knows_by_the_results_which_open_notices_have_answers() -> None:
    egress = an_egress(notes={0: {0: 3}}, answered={(0, 4)})
    assert commits(egress, arrived(whole(4), 8)) == []
    assert told(egress, (arrived(a_notice(3, 4), 9), 0.2)) == [Wake(CLOSES_S)]
    assert commits(egress) == []
    assert told(egress, (arrived(whole(3), 10), 0.2))[0] == an_answered(3)
    assert commits(egress) == done(11, "0:5")


def test_a_restart_answers_no_query_again_from_the_first_open_one_on() -> None:
    egress = an_egress(notes={0: {1: 3}}, answered={(1, 3), (2, 0)})
    for offset, origin in enumerate((Origin(1, 3), Origin(2, 0))):
        assert sends(egress, arrived(replace(whole(0), origin=origin), offset), 0.2) == []
    assert sends(egress, arrived(replace(whole(0), origin=Origin(1, 4)), 2), 0.2)


def test_notes_are_read_as_they_are_written() -> None:
    assert note_of({3: 40, 1: 2}) == "1:2,3:40"
    assert upto_of("1:2,3:40") == {1: 2, 3: 40}
    assert upto_of("") == {}
    assert note_of({}) == ""


# ---------------------------------------------------------------------- the rest


def test_an_answer_has_the_accuracy_that_its_path_is_known_for() -> None:
    (answer,) = sends(an_egress(accuracies={"read/v": 0.9}), arrived(whole(0)), 0.2)
    assert answer.expected_accuracy == 0.9


def test_a_pipeline_may_say_how_outputs_are_combined() -> None:
    egress = an_egress(combine=lambda values, tasks: "".join(map(str, values)))
    commits(egress, arrived(a_notice(0)))
    assert told(egress, (arrived(whole(0), 1), 0.2))[0] == emitted(
        an_answer(result="seven", paths=((HOP,),), ends=(ANSWER,))
    )


def test_an_overdue_query_whose_combine_ends_the_process_fails_after_two_lives(
    tmp_path: Path,
) -> None:
    def combine(values: list[Any], tasks: list[str]) -> Any:
        if None in values:
            raise KeyboardInterrupt  # ends the process as a kill does
        return values

    def a_life() -> Egress:
        journal = CrashJournal(tmp_path / "egress-0.running.json")
        egress = an_egress(pipeline=pipeline, combine=combine, journal=journal)
        dropped = an_ended(None, (0, 1), outcome=DROPPED, credit=HALF // 2)  # a third one is lost
        for number, record in enumerate((a_notice(0), part(0, 0), a_work(0, dropped, task=""))):
            egress.handle(arrived(record, offset=number), 0.2)
        return egress

    pipeline = a_pipeline(combine="postcode:join")
    for _ in range(MOST_CRASHES):
        with pytest.raises(KeyboardInterrupt):
            a_life().handle(Woke(), CLOSES_S)
    sent = [each for each in a_life().handle(Woke(), CLOSES_S) if type(each) is Send]
    answers = [each.record for each in sent if isinstance(each.record, Answer)]
    assert [(each.outcome, each.task) for each in answers] == [(FAILED, "egress")]


def test_a_combine_function_that_raises_fails_its_query_only() -> None:
    egress = an_egress(combine=lambda values, tasks: values[0].upper())  # type: ignore[union-attr]
    commits(egress, arrived(a_notice(0, 1)))
    (first,) = told(egress, (arrived(whole(0, 7), 1), 0.2))
    assert isinstance(first, Send)
    assert isinstance(first.record, Answer)
    assert (first.record.outcome, first.record.task) == ("failed", "egress")
    (second, _) = told(egress, (arrived(whole(1), 2), 0.2))  # with it the notice may be committed
    assert isinstance(second, Send)
    assert isinstance(second.record, Answer)
    assert second.record.result == "SEVEN"


def test_a_garbled_record_becomes_a_dead_letter_and_is_done() -> None:
    egress = an_egress()
    letter = DeadLetter(
        topic="outputs", partition=0, offset=4, reason="not Avro", value=b"\xff", node="e",
        at_s=0.2,
    )  # fmt: skip
    garbled = Garbled(b"\xff", "not Avro")
    assert told(egress, (Arrived(garbled, "outputs", 0, 4, 0.0), 0.2)) == [
        Send("dead-letters", letter, key="e"), Wake(0.2 + COMMIT_S),
    ]  # fmt: skip
    assert commits(egress) == done(5, "")
    assert egress.handle(Arrived(garbled, "plans", 0, 5, 0.0), 0.2) == []


def test_it_counts_every_query_under_one_outcome() -> None:
    egress = an_egress()
    refused = a_noticed(4, refused="over capacity")
    notice = Notice(partition=0, upto=5, queries=(*a_notice(0, 1, 2, 3).queries, refused))
    events: list[tuple[Event, float]] = [
        (arrived(a_plan([], 3)), 0.2),
        (arrived(a_plan([], 2), 1), 0.2),
        (arrived(notice), 0.2),
        (arrived(whole(0), 1), 0.25),
        (arrived(a_work(1, Item(end=an_end("failed", "read", "no")), task=""), 2), 0.25),
        (arrived(whole(2), 3), 0.6),
    ]
    for event, now in events:
        egress.handle(event, now)
    assert reports(egress.handle(Woke(), CLOSES_S)) == [Report(
        node="e", role="egress", pipeline="p", epoch=3, incarnation=0.0, sent_s=CLOSES_S,
        state="ready", file=fingerprint(a_pipeline()), counts={
            **DECLARED,
            "answered": 1, "late": 1, "incomplete": 0, "dropped": 1, "failed": 1, "refused": 1,
            "duplicates": 0, "unpromised": 0, "tight": 0, bucket(0.25): 1, bucket(0.6): 1,
                "to_egress/read": 2, "to_egress_s/read": pytest.approx(0.65),
                "to_egress_s2/read": pytest.approx(0.2725),
            "dropped/unfinished": 1, "failed/operator": 1, "refused/over_capacity": 1,
        },
    )]  # fmt: skip


def test_it_counts_the_misses_that_no_plan_promised_to_avoid() -> None:
    """One is read after its deadline, one had less time than the SLO; the third had the SLO."""
    egress = an_egress()
    egress.handle(arrived(a_plan([])), 0.2)
    late = (a_noticed(0), a_noticed(1, deadline_s=SLO_S / 2), a_noticed(2))
    egress.handle(arrived(Notice(partition=0, upto=3, queries=late)), 0.2)
    egress.handle(arrived(a_work(0, Item(end=dropped("ingress", read_late(0.1))), task=""), 1), 0.6)
    egress.handle(arrived(whole(2), 2), 0.6)
    (report,) = reports(egress.handle(Woke(), CLOSES_S))
    counts = report.counts
    assert (counts["dropped"], counts["late"], counts["unpromised"]) == (2, 1, 2)


def test_a_refused_or_failed_query_is_no_miss_of_a_promise() -> None:
    egress = an_egress()
    egress.handle(arrived(a_plan([])), 0.2)
    hasty = (a_noticed(0, deadline_s=0.1, refused="over capacity"), a_noticed(1, deadline_s=0.1))
    egress.handle(arrived(Notice(partition=0, upto=2, queries=hasty)), 0.2)
    egress.handle(arrived(a_work(1, Item(end=an_end(FAILED, "read", "no")), task=""), 1), 0.2)
    (report,) = reports(egress.handle(Woke(), 9.0))
    counts = report.counts
    assert (counts["refused"], counts["failed"], counts["unpromised"]) == (1, 1, 0)


def test_it_counts_by_class_and_by_session_while_the_session_is_open() -> None:
    def after(egress: Egress, epoch: int, *sessions: str) -> dict[str, float]:
        plans = [SessionPlan(session=x, number=1, slo_s=SLO_S, stages=()) for x in sessions]
        egress.handle(arrived(a_plan([], epoch, sessions=tuple(plans)), epoch), 100.4)
        (report,) = reports(egress.handle(Woke(), 100.0 + epoch))
        return {name: count for name, count in report.counts.items() if count}

    egress = an_egress(pipeline=a_pipeline(slo_classes={"gold": SLO_S}))
    times = {"created_s": 100.0, "deadline_s": 100.0 + SLO_S}
    noticed = a_noticed(0, slo_class="gold", session="a", **times)
    egress.handle(arrived(Notice(partition=0, upto=1, queries=(noticed,))), 100.1)
    egress.handle(arrived(replace(whole(0), **times), 1), 100.4)
    counts = {
        "answered": 1, "tight": 1, "class/gold/answered": 1, "tight/gold": 1, bucket(0.4): 1,
    }  # fmt: skip
    both = after(egress, 1, "a", "b")
    assert both.items() >= {**counts, "session/a/answered": 1}.items()
    closed = after(egress, 2, "b")
    assert closed.items() >= counts.items()
    assert "session/a/answered" not in closed


def test_an_incomplete_answer_is_dropped_and_says_why() -> None:
    egress = an_egress(pipeline=a_pipeline({"locate": ["read"], "read": []}))
    commits(egress, arrived(a_notice(0)), arrived(part(0, 0), 1))
    bad = a_work(0, an_ended(None, (0, 1), credit=HALF, outcome=DROPPED), task="")
    egress.handle(arrived(bad, 2), 0.2)
    (report,) = reports(egress.handle(Woke(), 9.0))
    counts = report.counts
    assert (counts["answered"], counts["dropped"], counts["incomplete"]) == (0, 1, 1)
    assert counts["dropped/other"] == 1


def test_records_that_have_no_business_there_are_ignored() -> None:
    assert an_egress().handle(arrived(an_answer()), 0.2) == []


def test_an_early_answer_whose_notice_was_lost_holds_up_no_commit_for_ever() -> None:
    egress = an_egress()
    assert commits(egress, arrived(whole(1), 0)) == []
    effects = commits(egress, arrived(a_notice(2, upto=3), 1), arrived(whole(2), 2))
    assert effects == done(3, "0:3")


def test_an_early_answer_whose_notice_may_still_come_is_held() -> None:
    egress = an_egress(answered={(0, 3), (1, 0)})
    other = replace(whole(0), origin=Origin(1, 0))
    assert commits(egress, arrived(other), arrived(whole(3), 1)) == []
    assert commits(egress, arrived(a_notice(2, upto=3), 2), arrived(whole(2), 3)) == []
    assert commits(egress, arrived(a_notice(0, partition=1), 4)) == done(1, "")
    assert commits(egress, arrived(a_notice(3), 5)) == done(6, "0:4,1:1")


def test_a_query_whose_records_lie_in_two_slots_is_closed_and_both_are_committed() -> None:
    egress = an_egress()
    egress.handle(arrived(a_notice(0), 0, 1), 0.1)
    effects = egress.handle(arrived(whole(0), 0, 0), 0.1)
    assert [e.record.outcome for e in effects if isinstance(e, Send)] == [ANSWERED]  # type: ignore[union-attr]
    assert commits(egress, now=0.1) == [Assign("outputs", done=(Done(1, 1, "0:1"), Done(0, 1, "")))]


def test_notes_of_two_slots_on_one_partition_say_the_higher_place() -> None:
    assert highest([{0: 7, 1: 3}, {}, {0: 5, 2: 0}]) == {0: 7, 1: 3, 2: 0}


def test_the_age_of_a_record_is_that_of_its_queries() -> None:
    notice = Notice(partition=0, upto=2, queries=(a_noticed(0, created_s=3.0), a_noticed(1)))
    assert [made_s(each) for each in (notice, replace(whole(0), created_s=7.0), an_answer())] == [
        [3.0, 0.0], [7.0], [],
    ]  # fmt: skip


def test_queries_of_a_topic_that_was_made_anew_are_no_duplicates() -> None:
    egress = an_egress(notes={0: {0: 1000}})
    again = GENERATION
    egress.handle(arrived(a_notice(again, upto=again + 1), 0), 0.1)
    effects = egress.handle(arrived(whole(again), 1), 0.1)
    assert [e.record.origin.offset for e in effects if isinstance(e, Send)] == [again]  # type: ignore[union-attr]


@pytest.mark.parametrize("noticed_first", [True, False])
@pytest.mark.parametrize(("delay_s", "outcome"), [(0.3, "answered"), (9.0, DROPPED)])
def test_a_result_is_back_at_its_sessions_tier_after_its_link(
    delay_s: float, outcome: str, noticed_first: bool
) -> None:
    stage = SessionStage(
        task="read", setting="read/v", tier="cloud", device="cloud-0", slot=0, quarters=4
    )
    session = SessionPlan(session="a", number=1, slo_s=SLO_S, stages=(stage,), admits=True)
    links = SessionLinks("handheld", {("cloud", "handheld"): Link(float("inf"), delay_s)})
    egress = an_egress(links=links)
    records = [a_notice(0), replace(whole(0), session=session)]
    for offset, record in enumerate(records if noticed_first else reversed(records)):
        assert sends(egress, arrived(record, offset), 0.2) == []
    assert commits(egress) == []  # read again after a restart
    assert sends(egress, Woke(), 0.2) == []
    ends_s = min(0.2 + delay_s, CLOSES_S)
    (answer,) = sends(egress, Woke(), ends_s)
    assert (answer.outcome, answer.answered_s) == (outcome, ends_s)
    assert quiet(egress.handle(Woke(), 20.0)) == done(2, "0:1")
    egress.handle(arrived(a_plan([])), 20.0)  # the session has closed
    (report,) = reports(egress.handle(Woke(), 30.0))
    assert not any(name.startswith("hop/") for name in report.counts)


def test_a_sessions_result_without_emulated_links_is_an_answer_at_once() -> None:
    session = SessionPlan(session="a", number=1, slo_s=SLO_S, stages=(), admits=True)
    for links in (None, SessionLinks("handheld", {})):
        record = arrived(replace(whole(0), session=session))
        (answer,) = sends(an_egress(links=links), record, 0.2)
        assert (answer.session, answer.answered_s) == ("a", 0.2)


def sends(egress: Egress, event: Event, now: float) -> list[Answer]:
    """Return the answers caused by an event."""
    records = [e.record for e in egress.handle(event, now) if isinstance(e, Send)]
    return [each for each in records if isinstance(each, Answer)]
