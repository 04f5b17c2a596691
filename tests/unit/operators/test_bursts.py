"""operators/bursts.py: ingress sends in runs, and a worker waits for the rest of a run."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.per_query.routing import Turns, WeightedRoundRobin
from control.policies.ramsis.burst_lengths import WAIT
from operators.bursts import BurstBuffer
from operators.ingress.ingress import Ingress
from operators.serving.worker import Worker
from schemas.effects import PLANS, Arrived, Effect, Send, Wake, Woke
from schemas.pipeline import ClassShare, Policy
from schemas.records import Plan, Query, Route, Selection, SelectionTable, Settings, Work
from tests.builders import (
    a_lease,
    a_pipeline,
    a_plan,
    a_work,
    arrived,
    inferred,
    inferring,
    loaded,
    told,
)

CALM = SelectionTable(qps=40.0, rows=((0, 0, 1), (0, 0, 2), (0, 0, 3)))
BUSY = SelectionTable(qps=400.0, rows=((0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 4)), run=3)
MADE = Selection(
    pipeline="p", task="read", policy="ramsis", issued_s=0.0, slo_s=0.2, workers=2,
    variants=("v",), levels_s=(0.0, 0.2), tables=(CALM, BUSY),
)  # fmt: skip
PIPELINE = a_pipeline(
    policies=(Policy(name="static"), Policy(name="ramsis", kind="ramsis", dropping="none")),
    comm_s=0.0,
)
SLOTS = (0, 1)


def a_ramsis_plan(epoch: int = 1, policy: str = "ramsis", slots: tuple[int, ...] = SLOTS) -> Plan:
    routes = tuple(Route("read", slot, 1 / len(slots)) for slot in slots)
    settings = Settings(policy=policy, slo_s=0.2)
    return a_plan([a_lease()], epoch, settings=settings, routes=routes)


def tables(selection: Selection = MADE) -> Arrived:
    return Arrived(selection, PLANS, 0, 1, 0.0)


def an_ingress(selection: Selection = MADE, **changes: Any) -> Ingress:
    ingress = Ingress("i", PIPELINE, range(4), incarnation=0.0, **changes)
    told(ingress, (Woke(), 0.0), (arrived(a_ramsis_plan()), 0.0), (tables(selection), 0.0))
    return ingress


def ways(ingress: Ingress, offsets: range, now: float = 0.1, of: str = "") -> list[tuple[int, int]]:
    """Return the slots of queries of a class and the number of queries that follow each there."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        effects = ingress.handle(arrived(Query(payload=b"x", slo_class=of), offset, 0, now), now)
        (send,) = (e for e in effects if isinstance(e, Send))
        assert isinstance(send.record, Work)
        found.append((send.slot, send.record.follow))
    return found


# ---------------------------------------------------------------------- turns


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(1, 4))
def test_runs_are_whole_follow_each_other_in_turn_and_leave_nobody_out(
    lengths: list[int], slots: int
) -> None:
    turns = Turns(WeightedRoundRobin([(slot, 1.0) for slot in range(slots)]))
    for at, length in enumerate(lengths):
        # Another run length given within a run changes nothing.
        picks = [turns.pick(length if n == 0 else 99) for n in range(length)]
        assert picks == [(at % slots, length - 1 - n) for n in range(length)]
        assert not turns.left


def test_worker_that_just_got_a_run_is_not_first_under_another_plan() -> None:
    turns = Turns(WeightedRoundRobin([(0, 0.5), (2, 0.5), (4, 0.5)]))
    assert [turns.pick(1)[0] for _ in range(2)] == [0, 2]
    turns.change(WeightedRoundRobin([(0, 0.5), (2, 0.5), (4, 0.5)]))
    assert turns.pick(1)[0] == 4
    turns.change(WeightedRoundRobin([(1, 0.5), (3, 0.5)]))
    assert [turns.pick(1)[0] for _ in range(2)] == [1, 3]


# ---------------------------------------------------------------------- ingress


def test_until_the_load_is_known_runs_are_those_of_the_highest() -> None:
    assert ways(an_ingress(), range(7)) == [(0, 2), (0, 1), (0, 0), (1, 2), (1, 1), (1, 0), (0, 2)]


def test_without_tables_queries_go_one_by_one() -> None:
    ingress = Ingress("i", PIPELINE, range(4), incarnation=0.0)
    told(ingress, (Woke(), 0.0), (arrived(a_ramsis_plan()), 0.0))
    assert ways(ingress, range(3)) == [(0, 0), (1, 0), (0, 0)]
    told(ingress, (tables(), 0.1))
    assert ways(ingress, range(3, 6)) == [(1, 2), (1, 1), (1, 0)]
    told(ingress, (tables(replace(MADE, tables=(), reason="none")), 0.2))
    assert ways(ingress, range(6, 8)) == [(0, 0), (1, 0)]


def test_a_class_with_a_floor_has_turns_of_its_own() -> None:
    """By common turns all its queries went to one of two workers if every second query was one."""
    classes = {"gold": 0.1, "bulk": 1.0}
    floors = {"gold": ClassShare(3.0, floor=0.9), "bulk": ClassShare(1.0)}
    pipeline = dataclasses.replace(PIPELINE, slo_classes=classes, class_shares=floors)
    ingress = Ingress("i", pipeline, range(4), incarnation=0.0)
    told(ingress, (Woke(), 0.0), (arrived(a_ramsis_plan()), 0.0))
    found = [
        ways(ingress, range(offset, offset + 1), of=name)[0][0]
        for offset, name in enumerate(("gold", "bulk") * 4)
    ]
    assert found == [0, 0, 1, 1, 0, 0, 1, 1]


def test_runs_of_several_ingress_processes_would_meet_so_there_are_none() -> None:
    assert ways(an_ingress(share=0.5), range(3)) == [(0, 0), (1, 0), (0, 0)]


def test_tables_of_another_policy_or_pipeline_or_that_say_nothing_are_not_followed() -> None:
    for wrong in (
        replace(MADE, policy="other"),
        replace(MADE, pipeline="other"),
        replace(MADE, tables=(replace(BUSY, run=0),)),
        replace(MADE, variants=("gone",)),
    ):
        assert ways(an_ingress(wrong), range(3)) == [(0, 0), (1, 0), (0, 0)]


def test_the_runs_are_those_of_the_load() -> None:
    ingress = an_ingress()
    for n in range(40):
        now = 1.0 + n / 20  # 20 a second
        found = ways(ingress, range(n, n + 1), now)
    assert found[0][1] == 0
    for n in range(400):
        now = 3.0 + n / 200  # 200 a second
        found = ways(ingress, range(40 + n, 41 + n), now)
    # The runs of length one were over, so this run started whole.
    tail = ways(ingress, range(440, 446), 5.0)
    assert sorted({follow for _, follow in tail}) == [0, 1, 2]


def test_the_load_is_unknown_from_the_first_tables_on_and_newer_ones_keep_it() -> None:
    ingress = Ingress("i", PIPELINE, range(4), incarnation=0.0)
    told(ingress, (Woke(), 0.0), (arrived(a_ramsis_plan()), 0.0), (tables(), 100.0))
    assert ways(ingress, range(3), 100.1) == [(0, 2), (0, 1), (0, 0)]
    for n in range(40):
        ways(ingress, range(3 + n, 4 + n), 101.0 + n / 20)  # 20 a second
    told(ingress, (tables(replace(MADE, issued_s=1.0)), 103.0))
    assert [follow for _, follow in ways(ingress, range(43, 45), 103.0)] == [0, 0]


def test_a_plan_cuts_a_run_short_and_the_next_begins_with_whose_turn_it_is() -> None:
    ingress = an_ingress()
    assert ways(ingress, range(2)) == [(0, 2), (0, 1)]
    told(ingress, (arrived(a_ramsis_plan(2)), 0.1))
    assert ways(ingress, range(2, 4)) == [(1, 2), (1, 1)]
    told(ingress, (arrived(a_ramsis_plan(3, slots=(0,))), 0.1))
    assert ways(ingress, range(4, 6)) == [(0, 2), (0, 1)]
    told(ingress, (arrived(a_ramsis_plan(4, "static")), 0.1))
    assert ways(ingress, range(6, 9)) == [(1, 0), (0, 0), (1, 0)]


def test_a_query_that_is_refused_leaves_a_run_as_it_is() -> None:
    ingress = an_ingress()
    assert ways(ingress, range(1)) == [(0, 2)]
    paused = a_ramsis_plan(2)
    told(ingress, (arrived(replace(paused, settings=replace(paused.settings, paused=True))), 0.1))
    effects = ingress.handle(arrived(Query(payload=b"x"), 1, 0, 0.1), 0.1)
    assert not [e for e in effects if isinstance(e, Send)]
    told(ingress, (arrived(a_ramsis_plan(3)), 0.2))
    assert ways(ingress, range(2, 5), 0.2) == [(1, 2), (1, 1), (1, 0)]


def test_a_worker_without_time_for_another_run_gets_none_and_the_turn_stays_its_own() -> None:
    ingress = Ingress("i", PIPELINE, range(4), incarnation=0.0)
    leases = [a_lease("a", slots=(0,), batch=3), a_lease("b", slots=(1,), batch=3)]
    # Two workers serve 3 queries in 120 ms each; 80 ms are left, less the gathering of a run.
    plan = replace(a_ramsis_plan(), leases=tuple(leases), capacity_qps=50.0)
    told(ingress, (Woke(), 0.0), (arrived(plan), 0.0), (tables(), 0.0))
    assert [slot for slot, _ in ways(ingress, range(6))] == [0, 0, 0, 1, 1, 1]
    refused = ingress.handle(arrived(Query(payload=b"x"), 6, 0, 0.11), 0.11)
    assert not [e for e in refused if isinstance(e, Send)]
    assert ways(ingress, range(7, 9), 0.21) == [(0, 2), (0, 1)]


@pytest.mark.parametrize(
    ("selection", "changes"),
    [(replace(MADE, tables=(CALM,)), {}), (MADE, {"slo_classes": {"gold": 0.1}})],
)
def test_only_runs_without_classes_are_refused_for_want_of_time(
    selection: Selection, changes: dict[str, Any]
) -> None:
    ingress = Ingress("i", dataclasses.replace(PIPELINE, **changes), range(4), incarnation=0.0)
    leases = (a_lease("a", slots=(0,), batch=3), a_lease("b", slots=(1,), batch=3))
    plan = replace(a_ramsis_plan(), leases=leases, capacity_qps=50.0)
    told(ingress, (Woke(), 0.0), (arrived(plan), 0.0), (tables(selection), 0.0))
    assert len(ways(ingress, range(7))) == 7  # the seventh waits behind six


# ---------------------------------------------------------------------- gathering


def test_the_length_of_a_run_is_known_from_its_first_query_on() -> None:
    gathering, lengths = a_gathering(), []
    for follow in (2, 1, 1, 0):  # the second run begins as the first was cut short
        gathering.came(1, follow, 1.0)
        lengths.append(gathering.run)
    assert lengths == [3, 3, 2, 2]


def a_gathering(wait_s: float = 0.02) -> BurstBuffer:
    gathering = BurstBuffer(0.0)
    gathering.wait_s = wait_s
    return gathering


def test_partial_run_waits_for_its_rest_and_other_queries_do_not_wait() -> None:
    gathering = a_gathering()
    gathering.came(1, 2, 1.0)
    assert gathering.ready(1, 1.0) == 0
    assert gathering.ready(4, 1.0) == 3
    gathering.came(1, 1, 1.001)
    gathering.came(1, 0, 1.002)
    assert gathering.ready(3, 1.002) == 3


def test_nobody_waits_for_longer_than_the_bound() -> None:
    gathering = a_gathering()
    gathering.came(1, 2, 1.0)
    gathering.came(1, 1, 1.015)
    assert gathering.ready(2, 1.019) == 0
    assert gathering.ready(2, gathering.until_s) == 2
    assert gathering.until_s == pytest.approx(1.02)


def test_a_run_that_was_cut_short_does_not_count_for_the_next() -> None:
    gathering = a_gathering()
    gathering.came(1, 2, 1.0)
    gathering.came(1, 4, 1.01)
    assert gathering.ready(2, 1.01) == 1
    assert gathering.until_s == pytest.approx(1.03)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 0.03)), min_size=1, max_size=40),
    st.integers(0, 50),
)
def test_only_the_newest_run_waits_and_for_a_bounded_time(
    came: list[tuple[int, float]], queued: int
) -> None:
    gathering, now = a_gathering(), 1.0
    for follow, gap_s in came:
        now += gap_s
        gathering.came(1, follow, now)
    ready = gathering.ready(queued, now)
    assert max(queued - 5, 0) <= ready <= queued
    assert gathering.ready(queued, now + gathering.wait_s) == queued


def test_load_that_arrives_in_runs_is_measured_correctly() -> None:
    gathering = a_gathering()
    for n in range(20):
        for follow in (4, 3, 2, 1, 0):
            gathering.came(1, follow, n / 10)
    # Also just before the next run.
    assert gathering.qps(1.9) == pytest.approx(50.0)
    assert gathering.qps(1.9999) == pytest.approx(50.0, rel=0.001)


# ---------------------------------------------------------------------- worker


def a_worker() -> Worker:
    worker = Worker("w", PIPELINE, "cpu", incarnation=0.0)
    events = [Woke(), arrived(a_ramsis_plan()), loaded("read/v"), tables()]
    told(worker, *[(event, 0.0) for event in events])
    return worker


def one(offset: int, follow: int, now: float) -> Arrived:
    work = a_work(offset, created_s=now, deadline_s=now + 0.2, follow=follow)
    return arrived(work, offset)


def took(effects: list[Effect]) -> list[int]:
    return [len(infer.values) for infer in inferring(effects)]


def test_an_idle_worker_begins_when_the_run_is_whole() -> None:
    worker = a_worker()
    assert worker.handle(one(0, 2, 1.0), 1.0) == [Wake(1.0 + WAIT * 0.2)]
    assert worker.handle(one(1, 1, 1.001), 1.001) == []
    assert worker.handle(one(2, 0, 1.002), 1.002) == [Wake(1.002)]
    assert took(worker.handle(Woke(), 1.002)) == [3]


def test_it_begins_without_the_rest_when_that_is_long_in_coming() -> None:
    worker = a_worker()
    worker.handle(one(0, 2, 1.0), 1.0)
    assert took(worker.handle(Woke(), 1.01)) == []
    assert took(worker.handle(Woke(), 1.0 + WAIT * 0.2)) == [1]


def test_a_wake_for_a_run_that_is_over_does_not_hurry_the_next() -> None:
    worker = a_worker()
    worker.handle(one(0, 1, 1.0), 1.0)
    worker.handle(one(1, 0, 1.001), 1.001)
    assert took(worker.handle(Woke(), 1.001)) == [2]
    worker.handle(inferred(1, "a", "b"), 1.005)
    assert worker.handle(one(2, 1, 1.01), 1.01) == [Wake(1.01 + WAIT * 0.2)]
    assert took(worker.handle(Woke(), 1.02)) == []
    assert took(worker.handle(Woke(), 1.03)) == [1]


def test_a_worker_that_gets_free_takes_the_whole_run_and_leaves_the_one_that_comes() -> None:
    worker = a_worker()
    worker.handle(one(0, 0, 1.0), 1.0)
    assert took(worker.handle(Woke(), 1.0)) == [1]
    for offset, follow in ((1, 1), (2, 0), (3, 1)):
        worker.handle(one(offset, follow, 1.01), 1.01)
    assert took(worker.handle(inferred(1, "a"), 1.02)) == [2]
    assert took(worker.handle(inferred(2, "b", "c"), 1.022)) == []
    worker.handle(one(4, 0, 1.025), 1.025)
    assert took(worker.handle(Woke(), 1.025)) == [2]


def test_without_tables_nobody_waits() -> None:
    worker = Worker("w", PIPELINE, "cpu", incarnation=0.0)
    told(worker, *[(e, 0.0) for e in (Woke(), arrived(a_ramsis_plan()), loaded("read/v"))])
    assert worker.handle(one(0, 2, 1.0), 1.0) == [Wake(1.0)]
    assert took(worker.handle(Woke(), 1.0)) == [1]
