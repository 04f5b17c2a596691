"""The central queue of RAMSIS: batches with their variant, sent to free workers, and ingress
around it."""

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.policies import POLICIES
from operators.dispatch.dispatch_profile import device_kind
from operators.dispatch.dispatch_queue import Part
from operators.dispatch.table_dispatcher import AHEAD, TableDispatcher
from operators.drop_reasons import dropped, no_worker
from operators.ingress.ingress import NOTICE_S, Ingress
from schemas.effects import (
    OUTPUTS,
    PLANS,
    QUERIES,
    Arrived,
    Assign,
    Effect,
    Send,
    Wake,
    Woke,
    work_topic,
)
from schemas.pipeline import Pipeline, Policy
from schemas.records import (
    ANSWERED,
    DROPPED,
    FAILED,
    Completion,
    End,
    Lease,
    Origin,
    Plan,
    Query,
    Route,
    Selection,
    SelectionTable,
    Settings,
    Work,
)
from tests.builders import a_pipeline, reports

SLO_S = 0.2
SECONDS = {"v": 0.01, "w": 0.04}  # for a query; a batch takes as much for each query
POLICY = "ramsis-central"
# One query with 100 ms of slack left gets w; with less slack or several queries, v.
MADE = Selection(
    pipeline="p", task="read", policy=POLICY, issued_s=0.0, slo_s=SLO_S, workers=2,
    variants=("v", "w"), levels_s=(0.0, 0.1, 0.2),
    tables=(SelectionTable(qps=1e6, rows=((0, 0, 1, 1, 1, 1), (0, 0, 2), (0, 0, 3), (0, 0, 3))),),
)  # fmt: skip


def the_pipeline(**options: object) -> Pipeline:
    policy = POLICIES[POLICY].policy(POLICY, options)
    return a_pipeline(
        policy=POLICY, policies=(policy, Policy(name="static")), slo_s=SLO_S, comm_s=0.0,
        grace_s=0.25,
    )  # fmt: skip


def a_dispatcher(
    part: Part = Part(),  # noqa: B008
    selection: Selection | None = MADE,
    round_trip_s: float = 0.0,
    **options: object,
) -> TableDispatcher:
    def seconds(kind: str, batch: int) -> float:
        return SECONDS[kind[-1]] * batch

    kinds = tuple(device_kind("gpu", variant) for variant in SECONDS)
    found = TableDispatcher(the_pipeline(**options), kinds, seconds, part, round_trip_s)
    if selection is not None:
        found.take(selection)
    return found


def dispatching(*workers: str, **options: Any) -> TableDispatcher:
    """Return a dispatcher under a plan with these workers."""
    dispatcher = a_dispatcher(**options)
    dispatcher.change(a_plan_for(*workers), 0.0)
    return dispatcher


def a_plan_for(*workers: str, policy: str = POLICY, epoch: int = 1) -> Plan:
    leases = [
        Lease(
            worker=name, task="read", variant="v", batch=4, slots=(slot,), open_slot=slot,
            type="gpu",
        )
        for slot, name in enumerate(workers)
    ]  # fmt: skip
    return Plan(
        pipeline="p", epoch=epoch, issued_s=0.0, reason="",
        settings=Settings(policy=policy, slo_s=SLO_S), leases=tuple(leases),
    )  # fmt: skip


def work(offset: int, created_s: float = 0.0, slo_s: float = SLO_S) -> Work:
    return Work(
        query_id=str(offset), origin=Origin(0, offset), task="read", created_s=created_s,
        deadline_s=created_s + slo_s, epoch=1,
    )  # fmt: skip


def completion(
    offset: int, slot: int, run_s: float = 0.01, variant: str = "v", outcome: str = ANSWERED
) -> Completion:
    return Completion(
        query_id=str(offset), origin=Origin(0, offset), slot=slot, worker=str(slot), type="gpu",
        setting=f"read/{variant}", size=1, queued_s=0.0, run_s=run_s, outcome=outcome,
    )  # fmt: skip


def wait(dispatcher: TableDispatcher, queries: int) -> None:
    for offset in range(queries):
        dispatcher.add(work(offset))


def sent(dispatcher: TableDispatcher, now: float) -> list[tuple[int, int, str, int]]:
    """Return the offset, slot, variant and followers of each query that is sent now."""
    picks, _ = dispatcher.decide(now)
    return [(x.work.origin.offset, slot, x.work.variant, x.work.follow) for x, slot in picks]


def test_a_free_worker_gets_the_batch_of_the_tables_as_a_run() -> None:
    dispatcher = dispatching("a", "b")
    dispatcher.add(work(0))
    assert sent(dispatcher, 0.0) == [(0, 0, "w", 0)]
    for offset in (1, 2, 3, 4, 5):
        dispatcher.add(work(offset))
    assert sent(dispatcher, 0.0) == [(1, 1, "v", 2), (2, 1, "v", 1), (3, 1, "v", 0)]
    assert dispatcher.waiting == 2


def test_a_worker_is_free_again_when_the_last_query_of_its_batch_has_ended() -> None:
    dispatcher = dispatching("a", lead=0.0)
    wait(dispatcher, 4)
    assert [each[0] for each in sent(dispatcher, 0.0)] == [0, 1, 2]
    dispatcher.completed(completion(0, 0, 0.0, outcome=DROPPED), 0.0)
    dispatcher.completed(completion(1, 0, 0.02), 0.02)
    assert sent(dispatcher, 0.02) == []
    dispatcher.completed(completion(2, 0, 0.02), 0.02)
    assert sent(dispatcher, 0.02) == [(3, 0, "w", 0)]


def test_a_worker_that_is_free_within_the_lead_gets_one_batch_ahead() -> None:
    dispatcher = dispatching("a", lead=0.01)
    wait(dispatcher, 9)
    assert len(sent(dispatcher, 0.0)) == 3
    assert sent(dispatcher, 0.01) == []
    assert dispatcher.next_s(0.01) == pytest.approx(0.02)
    assert len(sent(dispatcher, 0.021)) == 3
    assert sent(dispatcher, 0.025) == []


def test_a_batch_sent_ahead_begins_when_the_worker_is_free_and_the_batch_is_there() -> None:
    dispatcher = dispatching("a", selection=None, round_trip_s=0.004)
    dispatcher.add(work(0))
    assert len(sent(dispatcher, 0.0)) == 1  # one hop, 10 ms
    dispatcher.add(work(1))
    assert len(sent(dispatcher, 0.011)) == 1  # it arrives at 0.013; the worker is free at 0.012
    dispatcher.completed(completion(0, 0), 0.014)
    dispatcher.add(work(2))
    assert sent(dispatcher, 0.014) == []
    assert dispatcher.next_s(0.014) == pytest.approx(0.013 + 0.01 - 0.004)  # less the lead


def test_a_batch_sent_ahead_has_the_time_that_its_hop_takes_beside_the_one_before() -> None:
    dispatcher = dispatching("a", round_trip_s=0.02)
    dispatcher.add(work(0))
    assert sent(dispatcher, 0.0) == [(0, 0, "w", 0)]  # it arrives at 0.01 and ends at 0.05
    # From 0.05, with 10 ms for the hop of its answer, it has 102 ms; its own hop passes before.
    dispatcher.add(work(1, created_s=-0.038))
    assert sent(dispatcher, 0.04) == [(1, 0, "w", 0)]


def test_the_leases_batch_replaces_one_that_would_be_late() -> None:
    choice = SelectionTable(qps=1e6, rows=((0, 1, 1), (0, 1, 5)))  # w for any slack
    dispatcher = a_dispatcher(selection=None)
    dispatcher.take(
        Selection(
            pipeline="p", task="read", policy=POLICY, issued_s=0.0, slo_s=SLO_S, workers=1,
            variants=("v", "w"), levels_s=(0.0,), tables=(choice,),
        )
    )  # fmt: skip
    dispatcher.change(a_plan_for("a"), 0.0)
    wait(dispatcher, 5)
    assert [each[2:] for each in sent(dispatcher, 0.13)] == [("v", 3), ("v", 2), ("v", 1), ("v", 0)]


def test_until_there_are_tables_the_leases_batch_is_sent() -> None:
    dispatcher = dispatching("a", selection=None)
    wait(dispatcher, 5)
    assert [each[2] for each in sent(dispatcher, 0.0)] == ["v"] * 4


def test_a_query_that_no_worker_can_finish_in_time_is_given_up() -> None:
    dispatcher = dispatching("a", lead=0.0)
    dispatcher.add(work(0))
    dispatcher.add(work(1, created_s=0.1))
    assert len(sent(dispatcher, 0.1)) == 2  # still in time
    dispatcher.add(work(2, created_s=0.1))
    assert dispatcher.next_s(0.1) == pytest.approx(0.29)
    picks, dropped = dispatcher.decide(0.3)
    assert picks == []
    ((given_up, short_s),) = dropped
    assert (given_up.work.origin.offset, short_s) == (2, pytest.approx(0.01))


def test_a_tighter_deadline_goes_first() -> None:
    dispatcher = dispatching("a")
    for offset, slo_s in enumerate([0.2, 0.2, 0.2, 0.15]):
        dispatcher.add(work(offset, slo_s=slo_s))
    assert [each[0] for each in sent(dispatcher, 0.0)] == [3, 0, 1]


def test_waiting_queries_move_to_a_new_policy() -> None:
    dispatcher = dispatching()
    dispatcher.add(work(0))
    assert sent(dispatcher, 0.0) == []
    assert dispatcher.active
    left = dispatcher.change(a_plan_for("a", policy="static"), 0.0)
    assert [each.origin.offset for each in left] == [0]
    assert not dispatcher.active
    assert dispatcher.next_s(0.0) == inf


def test_two_ingresses_have_their_own_workers() -> None:
    found = []
    for index in (0, 1):
        dispatcher = dispatching("a", "b", "c", part=Part(index, 2))
        wait(dispatcher, 9)
        found.append({each[1] for each in sent(dispatcher, 0.0)})
    assert found[0] | found[1] == {0, 1, 2}
    assert [len(each) for each in found] == [2, 1]


def test_batches_in_flight_move_with_their_slots() -> None:
    dispatcher = dispatching("a", lead=0.0)
    dispatcher.add(work(0))
    assert sent(dispatcher, 0.0) == [(0, 0, "w", 0)]
    dispatcher.change(a_plan_for("b", epoch=2), 0.0)  # it owns the slot now
    dispatcher.add(work(1))
    assert sent(dispatcher, 0.0) == []
    dispatcher.completed(completion(0, 0, 0.04, "w"), 0.05)
    assert sent(dispatcher, 0.05) == [(1, 0, "w", 0)]


def test_a_lost_workers_batch_is_forgotten_after_its_deadline_and_grace() -> None:
    dispatcher = dispatching("a", lead=0.0)
    dispatcher.add(work(0))
    assert len(sent(dispatcher, 0.0)) == 1
    dispatcher.add(work(1, created_s=0.3))
    assert sent(dispatcher, 0.4) == []
    dispatcher.add(work(2, created_s=0.4))
    assert len(sent(dispatcher, 0.46)) >= 1


@pytest.mark.parametrize("workers", [(), ("a",)])
def test_a_query_is_given_up_when_it_is_woken_for_at_its_last_moment(
    workers: tuple[str, ...],
) -> None:
    dispatcher = dispatching("a")
    for offset in range(40):  # more than the worker may hold, and it never answers
        dispatcher.add(work(offset))
    dispatcher.decide(0.0)
    dispatcher.change(a_plan_for(*workers, epoch=2), 0.0)
    now = 0.0
    while dispatcher.waiting:
        now = dispatcher.next_s(now)
        assert now < inf
        dispatcher.decide(now)


def test_workers_that_were_slow_for_a_while_are_tried_again() -> None:
    dispatcher = dispatching("a")
    ran = []
    for number in range(200):
        now = number / 2.0
        dispatcher.add(work(number, created_s=now))
        for offset, _, variant, _ in sent(dispatcher, now):
            run_s = SECONDS[variant] * (100 if 40 <= number < 80 else 1)
            dispatcher.completed(completion(offset, 0, run_s, variant), now + run_s)
            ran.append(number)
    assert not {*range(65, 80)}.issubset(ran)  # too slow for any query
    assert {*range(100, 200)}.issubset(ran)


def test_a_slow_worker_gets_less_at_a_time() -> None:
    dispatcher = dispatching("a", lead=0.0)
    for offset in range(40):
        now = float(offset)
        dispatcher.add(work(offset, created_s=now))
        ((_, slot, variant, _),) = sent(dispatcher, now)
        dispatcher.completed(completion(offset, slot, 3 * SECONDS[variant], variant), now + 0.1)
    dispatcher.add(work(40, created_s=50.0))
    assert sent(dispatcher, 50.0) == [(40, 0, "v", 0)]  # 200 ms are some 67 of its own


def test_a_batch_whose_last_query_fails_teaches_no_latency() -> None:
    """It took as long as it took to fail; the worker then counted as too slow for any query."""
    dispatcher = dispatching("a", lead=0.0)
    for number in range(40):
        now, first = float(number), 2 * number
        for offset in (first, first + 1):
            dispatcher.add(work(offset, created_s=now))
        assert [each[0] for each in sent(dispatcher, now)] == [first, first + 1]
        dispatcher.completed(completion(first, 0, 0.02), now + 0.1)
        dispatcher.completed(completion(first + 1, 0, 9.0, outcome=FAILED), now + 0.1)


class Workers:
    """Workers that take 20 ms a batch, with the queries sent to them."""

    def __init__(self, count: int) -> None:
        self.batches: list[list[tuple[float, list[int], str]]] = [[] for _ in range(count)]

    def ended(self, dispatcher: TableDispatcher, now: float) -> None:
        for slot, batches in enumerate(self.batches):
            while batches and batches[0][0] <= now:
                _, offsets, variant = batches.pop(0)
                for offset in offsets:
                    dispatcher.completed(completion(offset, slot, 0.01, variant), now)

    def take(self, picks: list[tuple[int, int, str, int]], now: float) -> None:
        """Take runs; check that they are whole and that no worker holds more than it may."""
        run: list[int] = []
        for offset, slot, variant, follow in picks:
            run.append(offset)
            if follow == 0:
                begun_s = max([now, *[ends_s for ends_s, _, _ in self.batches[slot]]])
                self.batches[slot].append((begun_s + 0.02, run, variant))
                run = []
        assert run == []
        assert all(len(batches) <= AHEAD for batches in self.batches)


@given(
    gaps=st.lists(st.floats(0.0, 0.05), min_size=1, max_size=60),
    count=st.integers(1, 4),
    trip_s=st.floats(0.0, 0.02),
)
def test_every_query_is_sent_or_given_up_once_and_no_worker_holds_too_much(
    gaps: list[float], count: int, trip_s: float
) -> None:
    dispatcher, workers = a_dispatcher(round_trip_s=trip_s), Workers(count)
    dispatcher.change(a_plan_for(*"abcd"[:count]), 0.0)
    now, seen = 0.0, list[int]()
    for offset, gap in enumerate([*gaps, *[0.01] * 100]):
        now += gap
        if offset < len(gaps):
            dispatcher.add(work(offset, created_s=now))
        workers.ended(dispatcher, now)
        picks, dropped = dispatcher.decide(now)
        sent_now = [(x.work.origin.offset, at, x.work.variant, x.work.follow) for x, at in picks]
        workers.take(sent_now, now)
        seen += [each[0] for each in sent_now] + [x.work.origin.offset for x, _ in dropped]
    assert sorted(seen) == list(range(len(gaps)))


# --- ingress -------------------------------------------------------------------------------------


def an_ingress(*workers: str) -> Ingress:
    dispatcher = a_dispatcher(selection=None)
    node = Ingress("ingress-0", the_pipeline(), (0,), incarnation=0.0, dispatchers=(dispatcher,))
    node.handle(Woke(), 0.0)
    node.handle(Arrived(MADE, PLANS, 0, 0, 0.0), 0.0)
    node.handle(Arrived(a_plan_for(*workers), PLANS, 0, 1, 0.0), 0.0)
    node.handle(Woke(), 0.0)
    return node


def arrive(node: Ingress, offset: int, now: float) -> list[Effect]:
    found = list(node.handle(Arrived(Query(payload=b"x"), QUERIES, 0, offset, now), now))
    return found + (node.handle(Woke(), now) if Wake(now) in found else [])


def to_workers(effects: list[Effect]) -> list[tuple[int, int, str]]:
    return [
        (e.record.origin.offset, e.slot, e.record.variant)
        for e in effects
        if isinstance(e, Send) and e.topic == work_topic("read") and isinstance(e.record, Work)
    ]


def to_egress(effects: Sequence[Effect]) -> list[tuple[int, str, End | None]]:
    """Return the offset, task and end of each query that is sent to egress."""
    return [
        (e.record.origin.offset, e.record.task, e.record.items[0].end)
        for e in effects
        if isinstance(e, Send) and e.topic == OUTPUTS and isinstance(e.record, Work)
    ]


def test_ingress_sends_by_the_tables_and_commits_what_it_has_sent() -> None:
    node = an_ingress("a")
    assert to_workers(arrive(node, 0, 0.0)) == [(0, 0, "w")]
    assert to_workers(arrive(node, 1, 0.001)) == []
    flushed = node.handle(Woke(), NOTICE_S)
    done = [
        d.offset for e in flushed if isinstance(e, Assign) and e.topic == QUERIES for d in e.done
    ]
    assert done == [1]  # the second query comes again after a restart
    ended = completion(0, 0, 0.04, "w")
    node.handle(Arrived(ended, "completions", 0, 0, 0.06), 0.06)
    assert to_workers(list(node.handle(Woke(), 0.06))) == [(1, 0, "w")]


def test_what_a_policy_without_workers_takes_over_is_dropped_at_once() -> None:
    node = an_ingress("a")
    assert to_workers(arrive(node, 0, 0.0)) == [(0, 0, "w")]
    assert to_workers(arrive(node, 1, 0.001)) == []
    plan = a_plan_for(policy="static", epoch=2)
    effects = node.handle(Arrived(plan, PLANS, 0, 2, 0.002), 0.002)
    assert to_egress(effects) == [(1, "", dropped("ingress", no_worker("read")))]
    (report,) = reports(node.handle(Woke(), 1.0))
    assert report.counts["dropped"] == 1


def test_what_a_policy_with_workers_takes_over_is_sent_to_them_at_once() -> None:
    node = an_ingress("a")
    for offset in (0, 1):
        arrive(node, offset, offset / 1000)
    plan = replace(a_plan_for("a", policy="static", epoch=2), routes=(Route("read", 0, 1.0),))
    effects = list(node.handle(Arrived(plan, PLANS, 0, 2, 0.002), 0.002))
    assert (to_workers(effects), to_egress(effects)) == ([(1, 0, "")], [])
    late = completion(0, 0, 0.04, "w")  # of a query that was dispatched
    assert node.handle(Arrived(late, "completions", 0, 0, 0.06), 0.06) == []


def test_a_query_that_is_given_up_is_committed_though_none_is_sent() -> None:
    node = an_ingress("a")
    for offset in (0, 1):
        arrive(node, offset, offset / 1000)
    node.handle(Woke(), NOTICE_S)
    given_up = node.handle(Woke(), SLO_S)
    assert [(offset, task) for offset, task, _ in to_egress(given_up)] == [(1, "")]
    assert to_workers(list(given_up)) == []
    effects = node.handle(Woke(), SLO_S + NOTICE_S)
    assert [d.offset for e in effects if isinstance(e, Assign) for d in e.done] == [2]
