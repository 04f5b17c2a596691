"""Ingress: stamp the deadline, admit or refuse, send to the first stage."""

from typing import Any

import pytest
from msgspec import structs

from control.per_query.shadowing import is_shadow
from control.policies.kairos.size_watch import size_count
from operators.ingress.ingress import NOTICE_S, REFUSAL_S, Ingress
from operators.ingress.query_parts import even_parts
from operators.input_place import GENERATION, InputPlaces, place_of
from operators.record_size import MOST_BYTES
from schemas.effects import (
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Failed,
    Send,
    Wake,
    Woke,
)
from schemas.enumerations import ReasonCode
from schemas.pipeline import Labels, QuerySize
from schemas.pipeline_fingerprint import fingerprint
from schemas.records import (
    DROPPED,
    DeadLetter,
    Garbled,
    Item,
    Notice,
    Noticed,
    Origin,
    Query,
    Report,
    Route,
    SessionPlan,
    Settings,
    Work,
)
from schemas.release import RELEASE
from tests.builders import (
    DECLARED,
    SLO_S,
    a_lease,
    a_notice,
    a_noticed,
    a_pipeline,
    a_plan,
    a_work,
    an_end,
    arrived,
    quiet,
    reports,
    sent,
    told,
)

PLAN = a_plan([a_lease()])


PIPELINE = a_pipeline(slo_classes={"gold": 0.1, "bronze": 2.0})


def an_ingress(plan: Any = PLAN, **changes: Any) -> Ingress:
    """Return an ingress for four partitions that follows a plan, with a fresh report."""
    ingress = Ingress("i", PIPELINE, range(4), incarnation=0.0, **changes)
    ingress.handle(Woke(), 0.0)
    ingress.handle(arrived(plan), 0.0)
    return ingress


def a_query(offset: int = 0, slot: int = 0, at_s: float = 0.0, **changes: Any) -> Arrived:
    """Return a query on the input topic; its id is q and its offset."""
    return arrived(Query(**{"payload": b"x", "id": f"q{offset}", **changes}), offset, slot, at_s)


def to_root(offset: int = 0, slot: int = 0, **changes: Any) -> Send:
    return Send("work.read", a_work(offset, **changes), slot)


def noticing(ingress: Ingress, *events: Event, now: float = 0.0) -> list[Effect]:
    """Return its records to egress for these events."""
    for event in events:
        ingress.handle(event, now)
    return quiet(ingress.handle(Woke(), now + NOTICE_S))


def notified(notice: Notice, slot: int = 0) -> list[Effect]:
    done = (Done(notice.partition, notice.upto),)
    return [Send("outputs", notice, slot), Assign("queries", done=done)]


def refused(ingress: Ingress, event: Event, now: float = 0.0) -> str:
    """Return why a query is not admitted."""
    assert not [e for e in ingress.handle(event, now) if isinstance(e, Send)]
    (send, _) = quiet(ingress.handle(Woke(), now + NOTICE_S))
    assert isinstance(send, Send)
    assert isinstance(send.record, Notice)
    (noticed,) = send.record.queries
    return noticed.refused


# ---------------------------------------------------------------------- admitting


def test_at_first_it_reads_plans_only() -> None:
    ingress = Ingress("i", a_pipeline(), range(4), incarnation=0.0)
    assert quiet(ingress.handle(Woke(), 0.0)) == [Assign("plans", (0,))]


def test_queries_are_read_from_the_first_plan_on() -> None:
    ingress = Ingress("i", a_pipeline(), (1, 3), incarnation=0.0)
    assert told(ingress, (Woke(), 0.0), (arrived(PLAN), 0.0)) == [Assign("queries", (1, 3))]


def test_a_query_goes_to_the_root_at_once_and_to_egress_with_others() -> None:
    ingress = an_ingress()
    assert ingress.handle(a_query(0), 0.0) == [to_root(0), Wake(NOTICE_S)]
    assert ingress.handle(a_query(1), NOTICE_S / 2) == [to_root(1)]
    assert quiet(ingress.handle(Woke(), NOTICE_S / 2)) == []
    assert noticing(ingress) == notified(a_notice(0, 1))
    assert noticing(ingress) == []
    assert ingress.handle(a_query(2), 0.1) == [to_root(2), Wake(0.1 + NOTICE_S)]
    assert noticing(ingress, now=0.1) == notified(a_notice(2))


def test_every_partition_has_a_notice_of_its_own_at_its_egress_slot() -> None:
    ingress = an_ingress()
    effects = noticing(ingress, a_query(5, slot=3), a_query(2, slot=0))
    odd = Notice(partition=3, upto=6, queries=(a_noticed(5),))
    assert effects == [
        Send("outputs", odd, 1),
        Send("outputs", a_notice(2), 0),
        Assign("queries", done=(Done(3, 6), Done(0, 3))),
    ]


def test_a_query_without_an_id_is_named_after_its_place() -> None:
    (send, _) = an_ingress().handle(a_query(7, slot=2, id=""), 0.0)
    assert send == Send("work.read", a_work(7, query_id="2-7", origin=Origin(2, 7)), 0)


@pytest.mark.parametrize("size", [-1, 0, 10**9])
def test_without_sizes_in_the_pipeline_file_every_query_is_of_size_1(size: int) -> None:
    (send, _) = an_ingress().handle(a_query(7, size=size), 0.0)
    assert send == to_root(7)


def test_roots_slots_get_their_shares() -> None:
    routes = (Route("read", 3, 0.5), Route("read", 4, 0.5))
    ingress = an_ingress(a_plan(routes=routes))
    sends = [ingress.handle(a_query(offset), 0.0)[0] for offset in range(4)]
    assert [s.slot for s in sends if isinstance(s, Send)] == [3, 4, 3, 4]


def test_offsets_that_go_back_are_other_queries_and_are_served() -> None:
    ingress = an_ingress()
    noticing(ingress, a_query(4))
    effects = ingress.handle(a_query(0), 0.1)
    assert effects == [to_root(GENERATION, query_id="q0"), Wake(0.1 + NOTICE_S)]
    assert quiet(ingress.handle(Woke(), 0.1 + NOTICE_S)) == [
        Send("outputs", Notice(partition=0, upto=GENERATION + 1, queries=(
            a_noticed(GENERATION, query_id="q0"),
        )), 0),
        Assign("queries", done=(Done(0, 1, "1"),)),
    ]  # fmt: skip
    (report,) = reports(ingress.handle(Woke(), 1.0))
    assert (report.counts["regressed"], report.counts["missing"]) == (1, 0)


def test_offsets_that_are_passed_over_are_counted() -> None:
    ingress = an_ingress(places=InputPlaces({0: 10}))
    noticing(ingress, a_query(13), a_query(2, slot=1), a_query(14))
    (report,) = reports(ingress.handle(Woke(), 1.0))
    assert (report.counts["regressed"], report.counts["missing"]) == (0, 3)


def test_a_restarted_ingress_goes_on_in_the_generation_that_it_committed() -> None:
    ingress = an_ingress(places=InputPlaces({0: place_of(7, "2")}))
    ingress.handle(a_query(7), 0.0)
    (notice, committed) = quiet(ingress.handle(Woke(), NOTICE_S))
    assert committed == Assign("queries", done=(Done(0, 8, "2"),))
    assert notice == Send("outputs", Notice(partition=0, upto=2 * GENERATION + 8, queries=(
        a_noticed(2 * GENERATION + 7, query_id="q7"),
    )), 0)  # fmt: skip


def test_an_unreadable_record_keeps_its_own_offset_as_a_dead_letter() -> None:
    ingress = an_ingress(places=InputPlaces({0: place_of(7, "1")}))
    garbled = Arrived(Garbled(b"", "empty"), "queries", 0, 7, 0.0)
    letters = [e.record for e in ingress.handle(garbled, 0.0) if isinstance(e, Send)]
    assert [each.offset for each in letters if isinstance(each, DeadLetter)] == [7]


@pytest.mark.parametrize(
    ("asked_s", "at_s", "due_s"),
    [
        (7_258_118_000.0, 0.0, 10 * SLO_S),  # the year 2200
        (10 * SLO_S, 0.0, 10 * SLO_S),
        (7_258_118_000.0, 7_258_118_000.0, 10 * SLO_S),  # also made in the year 2200
        (0.2, 0.0, 0.2),
    ],
)
def test_a_deadline_is_capped(asked_s: float, at_s: float, due_s: float) -> None:
    ingress = an_ingress()
    (send, _) = ingress.handle(a_query(at_s=at_s, deadline_s=asked_s), 0.0)
    assert isinstance(send, Send)
    assert send.record.deadline_s == pytest.approx(due_s)  # type: ignore[union-attr]


def test_the_cap_of_deadlines_is_no_shorter_than_the_slo_of_the_plan_or_of_a_session() -> None:
    plan = a_plan([a_lease()], settings=Settings(policy="static", slo_s=30.0))
    slow = SessionPlan(session="a", number=1, slo_s=40.0, stages=())
    for each, due_s in ((plan, 30.0), (structs.replace(plan, sessions=(slow,)), 40.0)):
        (send, _) = an_ingress(each).handle(a_query(deadline_s=50.0), 0.0)
        assert isinstance(send, Send)
        assert send.record.deadline_s == due_s  # type: ignore[union-attr]


def test_a_stale_plan_changes_nothing() -> None:
    ingress = an_ingress(a_plan([a_lease()], epoch=5))
    assert ingress.handle(arrived(a_plan([], epoch=4)), 0.0) == []
    assert ingress.handle(arrived(a_plan([], epoch=6, pipeline="other")), 0.0) == []
    assert ingress.handle(a_query(), 0.0) == [to_root(epoch=5), Wake(NOTICE_S)]


# ---------------------------------------------------------------------- deadlines


@pytest.mark.parametrize(
    ("changes", "deadline_s"),
    [
        ({}, 10 + SLO_S),
        ({"slo_class": "gold"}, 10.1),
        ({"slo_class": "bronze"}, 12.0),
        ({"deadline_s": 10.7}, 10.7),
        ({"deadline_s": 10.7, "slo_class": "gold"}, 10.7),
        ({"deadline_s": 10.7, "slo_class": "unknown"}, 10.7),
    ],
)
def test_the_records_deadline_wins_over_its_class_and_that_over_the_pipelines(
    changes: dict[str, Any], deadline_s: float
) -> None:
    (send, _) = an_ingress().handle(a_query(at_s=10.0, **changes), 10.0)
    known = changes.get("slo_class", "").replace("unknown", "")
    assert send == to_root(created_s=10.0, deadline_s=deadline_s, slo_class=known)


def test_notices_bear_the_class_of_their_queries() -> None:
    effects = noticing(an_ingress(), a_query(slo_class="gold"))
    (notice,) = sent(effects, "outputs")
    assert isinstance(notice, Notice)
    assert [noticed.slo_class for noticed in notice.queries] == ["gold"]


def test_a_plan_may_have_another_slo_than_the_pipeline_file() -> None:
    plan = a_plan([a_lease()], settings=Settings(policy="static", slo_s=3.0))
    assert an_ingress(plan).handle(a_query(), 0.0)[0] == to_root(deadline_s=3.0)


def test_a_query_that_is_read_behind_its_deadline_is_dropped_at_egress() -> None:
    ingress = an_ingress()
    ended = Item(end=an_end(DROPPED, "ingress", "read 100 ms after its deadline"))
    assert ingress.handle(a_query(slot=1), 0.6) == [
        Send("outputs", a_work(0, ended, origin=Origin(1, 0), task=""), 1), Wake(0.6 + NOTICE_S),
    ]  # fmt: skip
    notice = Notice(partition=1, upto=1, queries=(a_noticed(),))
    assert noticing(ingress, now=0.6) == [
        Send("outputs", notice, 1), Assign("queries", done=(Done(1, 1),)),
    ]  # fmt: skip


def test_a_query_that_is_read_at_its_deadline_still_has_its_chance() -> None:
    assert an_ingress().handle(a_query(), SLO_S) == [to_root(), Wake(SLO_S + NOTICE_S)]


# ---------------------------------------------------------------------- refusing


def test_an_unknown_slo_class_is_refused_with_the_known_ones() -> None:
    ingress = an_ingress()
    reason = "SLO class 'silver' is unknown; the pipeline file has: bronze, gold"
    assert ingress.handle(a_query(slo_class="silver"), 0.0) == [Wake(REFUSAL_S)]
    notice = Notice(partition=0, upto=1, queries=(a_noticed(refused=reason),))
    assert noticing(ingress) == notified(notice)


def test_a_class_is_unknown_to_a_pipeline_without_classes() -> None:
    ingress = Ingress("i", a_pipeline(), range(4), incarnation=0.0)
    told(ingress, (Woke(), 0.0), (arrived(PLAN), 0.0))
    reason = "SLO class 'gold' is unknown; the pipeline file has: none"
    assert refused(ingress, a_query(slo_class="gold")) == reason


def test_a_query_that_fits_no_record_is_refused() -> None:
    found = refused(an_ingress(), a_query(payload=b"x" * (MOST_BYTES + 1)))
    assert found.startswith("a value of 7.0 MiB fits no record (at most 7)")


def test_a_refusal_does_not_wait_as_long_as_the_notices_of_admitted_queries() -> None:
    ingress = an_ingress()
    ingress.handle(a_query(0), 0.0)
    assert ingress.handle(a_query(1, slo_class="silver"), 0.004) == [Wake(0.004 + REFUSAL_S)]
    assert ingress.handle(a_query(2), 0.005) == [to_root(2)]
    (send, _) = quiet(ingress.handle(Woke(), 0.004 + REFUSAL_S))
    assert isinstance(send, Send)
    assert isinstance(send.record, Notice)
    assert [noticed.query_id for noticed in send.record.queries] == ["q0", "q1", "q2"]
    assert quiet(ingress.handle(Woke(), NOTICE_S)) == []


def test_a_paused_pipeline_refuses() -> None:
    settings = Settings(policy="static", slo_s=SLO_S, paused=True)
    ingress = an_ingress(a_plan([a_lease()], settings=settings))
    assert "`headrace resume` lets queries in again" in refused(ingress, a_query())
    ingress.handle(arrived(a_plan([a_lease()], epoch=2)), 0.1)
    assert ingress.handle(a_query(1), 0.1)[0] == to_root(1, epoch=2)


def test_without_a_worker_for_the_root_queries_are_refused() -> None:
    assert refused(an_ingress(a_plan()), a_query()) == "no worker serves task 'read'"


def test_what_is_beyond_the_plans_capacity_is_refused() -> None:
    ingress = an_ingress(a_plan([a_lease()], capacity_qps=8.0))  # bursts of 8 x 0.5 s and one
    admitted = [ingress.handle(a_query(offset), 0.0)[0] for offset in range(5)]
    assert admitted == [to_root(offset) for offset in range(5)]
    noticing(ingress)
    assert refused(ingress, a_query(5)) == "over capacity"
    assert ingress.handle(a_query(6), 0.125)[0] == to_root(6)


def test_an_ingress_admits_its_share_of_the_capacity() -> None:
    ingress = an_ingress(a_plan([a_lease()], capacity_qps=8.0), share=0.5)
    found = [ingress.handle(a_query(offset), 0.0) for offset in range(4)]
    assert [[e for e in effects if isinstance(e, Send)] for effects in found] == [
        [to_root(0)], [to_root(1)], [to_root(2)], [],
    ]  # fmt: skip


def test_a_garbled_query_is_a_dead_letter_and_refused() -> None:
    ingress = an_ingress()
    garbled = Garbled(b"\xff", "no Avro", (("id", b"mine"),), "mine")
    letter = DeadLetter(
        topic="queries", partition=0, offset=3, reason="no Avro", value=b"\xff",
        headers=(("id", b"mine"),), node="i", at_s=0.1,
    )  # fmt: skip
    assert ingress.handle(Arrived(garbled, "queries", 0, 3, 0.0), 0.1) == [
        Send("dead-letters", letter, key="mine"), Wake(0.1 + REFUSAL_S),
    ]  # fmt: skip
    noticed = Noticed(
        query_id="mine",
        offset=3,
        created_s=0.0,
        deadline_s=SLO_S,
        refused="no Avro",
        reason_code=ReasonCode.BAD_INPUT,
    )
    effects = noticing(ingress, now=0.1)
    assert effects == notified(Notice(partition=0, upto=4, queries=(noticed,)))


def test_a_garbled_query_without_an_id_is_named_after_its_place() -> None:
    garbled = Arrived(Garbled(b"", "empty"), "queries", 3, 7, 0.0)
    (notice,) = [x for x in sent(noticing(an_ingress(), garbled), "outputs")]
    assert isinstance(notice, Notice)
    assert [each.query_id for each in notice.queries] == ["3-7"]


def test_an_admitted_query_has_a_shadow_unless_it_has_parts_or_one_was_just_refused() -> None:
    labels = Labels(within_s=100.0, shadow_share=1.0)
    pipeline = a_pipeline(labels=labels, size=QuerySize(most=10, split="module:split"))
    accuracies = {"read/v": 0.8, "read/w": 0.9}
    ingress = Ingress(
        "i", pipeline, range(4), incarnation=0.0, accuracies=accuracies,
        split=even_parts,
    )  # fmt: skip
    leases = [a_lease("a"), a_lease("b", variant="w", slots=(1,))]
    plan = a_plan(leases, capacity_qps=10.0, release=RELEASE)
    told(ingress, (Woke(), 0.0), (arrived(plan), 0.0))

    def sessions(offset: int, size: int, now: float) -> list[bool]:
        """Return whether each work that a query causes is a shadow."""
        works = sent(ingress.handle(a_query(offset, at_s=now, size=size), now), "work.read")
        return [is_shadow(each) for each in works if isinstance(each, Work)]

    assert sessions(0, 1, 0.0) == [False, True]
    assert sessions(1, 20, 0.0) == [False, False]
    while sessions(2, 1, 0.0):
        pass
    assert sessions(3, 1, 0.5) == [False]
    assert sessions(4, 1, 100.0) == [False, True]
    (report,) = reports(ingress.handle(Woke(), 100.1))
    assert report.counts[size_count(10)] == 2


def test_a_garbled_plan_and_other_events_are_ignored() -> None:
    ingress = an_ingress()
    assert ingress.handle(Arrived(Garbled(b"", "empty"), "plans", 0, 3, 0.0), 0.1) == []
    assert ingress.handle(Failed(1, "no"), 0.1) == []
    assert ingress.handle(arrived(a_notice(0)), 0.1) == []


# ---------------------------------------------------------------------- reports


def test_it_reports_what_it_took_in() -> None:
    ingress = an_ingress(a_plan([a_lease()], epoch=3, capacity_qps=2.0))
    noticing(ingress, *[a_query(offset) for offset in range(3)], a_query(3, at_s=-1.0))
    assert reports(ingress.handle(Woke(), 0.2)) == [Report(
        node="i", role="ingress", pipeline="p", epoch=3, incarnation=0.0, sent_s=0.2,
        state="ready", file=fingerprint(PIPELINE), counts={
            **DECLARED,
            "arrived": 4, "admitted": 2, "refused": 1, "dropped": 1, "regressed": 0, "missing": 0,
        },
    )]  # fmt: skip


def test_the_sizes_of_earlier_queries_count_again() -> None:
    sized = a_pipeline(size=QuerySize(most=1000))
    ingress = Ingress("i", sized, range(4), incarnation=0.0, recent=(10, 10, 900))
    ingress.handle(Woke(), 0.0)
    (report,) = reports(ingress.handle(Woke(), 0.2))
    sizes = {name: count for name, count in report.counts.items() if name.startswith("size/")}
    assert sizes == {size_count(10): 2, size_count(900): 1}
