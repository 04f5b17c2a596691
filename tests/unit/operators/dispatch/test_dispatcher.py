"""The dispatcher: waiting, sending and dropping of queries, and ingress around it."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from control.policies import POLICIES
from control.policies.kairos.dispatch_options import DISPATCH
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.spec import PolicySpec
from operators.dispatch.dispatch_profile import dispatch_profile
from operators.dispatch.dispatch_queue import MOST_SENT, Part
from operators.dispatch.dispatcher import Dispatcher
from operators.ingress.ingress import NOTICE_S, Ingress
from schemas.effects import OUTPUTS, QUERIES, Arrived, Assign, Effect, Send, Wake, Woke, work_topic
from schemas.pipeline import Pipeline, Policy, QuerySize
from schemas.records import (
    ANSWERED,
    Completion,
    Lease,
    Notice,
    Origin,
    Plan,
    Query,
    Report,
    Settings,
    Work,
)
from tests.builders import a_pipeline

SLO_S = 0.1
Seconds = Callable[[str, int, str], float]


def _seconds(type_: str, size: int, quantile: str) -> float:
    return size / {"gpu": 1000, "slow": 250}[type_]


def _spread(type_: str, size: int, quantile: str) -> float:
    return _seconds(type_, size, quantile) * (1.2 if quantile == "p95" else 1.0)


def a_sized_pipeline(**changes: object) -> Pipeline:
    usual: dict[str, object] = {
        "slo_s": SLO_S, "size": QuerySize(most=100), "policy": "kairos", "comm_s": 0.0,
        "grace_s": 0.25,
    }  # fmt: skip
    return a_pipeline(**(usual | changes))


def a_dispatcher(
    profiled: tuple[str, ...] = ("gpu", "slow"), seconds: Seconds = _seconds,
    sizes: SizeDistribution | None = None, policies: tuple[Policy, ...] = (), **more: Any,
) -> Dispatcher:  # fmt: skip
    profile = dispatch_profile(profiled, seconds, 100, sizes=sizes)
    return Dispatcher(a_sized_pipeline(policies=policies), profile, **more)


def dispatching(*types: str, policy: str = "kairos", **options: Any) -> Dispatcher:
    """Return a dispatcher under a plan with devices of these types."""
    dispatcher = a_dispatcher(**options)
    dispatcher.change(a_dispatching_plan(*types, policy=policy), 0.0)
    return dispatcher


def a_dispatching_plan(*types: str, policy: str = "kairos", epoch: int = 1) -> Plan:
    leases = [
        Lease(
            worker=f"{type_}-{slot}", task="read", variant="v", batch=1, slots=(slot,),
            open_slot=slot, type=type_,
        )
        for slot, type_ in enumerate(types)
    ]  # fmt: skip
    return Plan(
        pipeline=a_sized_pipeline().name, epoch=epoch, issued_s=0.0, reason="",
        settings=Settings(policy=policy, slo_s=SLO_S), leases=tuple(leases),
    )  # fmt: skip


def work(offset: int, size: int, created_s: float = 0.0, partition: int = 0) -> Work:
    return Work(
        query_id=f"{partition}-{offset}", origin=Origin(partition, offset), task="read",
        created_s=created_s, deadline_s=created_s + SLO_S, epoch=1, size=size,
    )  # fmt: skip


def completion(of: Work, slot: int, run_s: float, worker: str, type_: str = "gpu") -> Completion:
    return Completion(
        query_id=of.query_id, origin=of.origin, slot=slot, worker=worker, type=type_,
        setting="read/v", size=of.size, queued_s=0.0, run_s=run_s, outcome=ANSWERED,
    )  # fmt: skip


def sent(dispatcher: Dispatcher, now: float) -> list[tuple[int, int]]:
    picks, _ = dispatcher.decide(now)
    return sorted((each.work.origin.offset, slot) for each, slot in picks)


def test_a_device_gets_the_next_query_when_it_has_done_the_last() -> None:
    dispatcher = dispatching("gpu")
    first, second = work(0, 20), work(1, 20)
    dispatcher.add(first)
    dispatcher.add(second)
    assert sent(dispatcher, 0.0) == [(0, 0)]
    assert sent(dispatcher, 0.01) == []
    dispatcher.completed(completion(first, 0, 0.02, "gpu-0"), 0.02)
    assert sent(dispatcher, 0.02) == [(1, 0)]
    assert dispatcher.waiting == 0


def test_a_query_that_no_device_can_finish_in_time_is_given_up() -> None:
    dispatcher = dispatching("gpu", "slow")
    dispatcher.add(work(0, 50))
    picks, dropped = dispatcher.decide(0.06)  # 50 ms on the gpu: done at 0.11
    assert picks == []
    assert [(each.work.origin.offset, round(s, 6)) for each, s in dropped] == [(0, 0.01)]


@pytest.mark.parametrize("size", [-1, 0, 10**9])
def test_a_query_whose_size_is_not_profiled_is_served_as_the_nearest_that_is(size: int) -> None:
    # Without a section ``size`` in the pipeline file ingress refuses no query.
    dispatcher = dispatching("gpu")
    for offset in range(10):
        query, at_s = work(offset, size, created_s=0.2 * offset), 0.2 * offset
        dispatcher.add(query)
        assert sent(dispatcher, at_s) == [(offset, 0)]
        dispatcher.completed(completion(query, 0, 0.05, "gpu-0"), at_s + 0.05)


def test_a_query_is_given_up_in_time_for_both_hops() -> None:
    dispatcher = dispatching("gpu", round_trip_s=0.02)
    dispatcher.add(work(0, 50))
    _, dropped = dispatcher.decide(0.04)  # 50 ms on the gpu and 20 ms of hops: it arrives at 0.11
    assert [(each.work.origin.offset, round(s, 6)) for each, s in dropped] == [(0, 0.01)]


@pytest.mark.parametrize("policy", ["kairos", "fcfs", "threshold", "earliest"])
def test_of_two_classes_the_earliest_deadline_goes_first(policy: str) -> None:
    dispatcher = dispatching("gpu", policy=policy)
    dispatcher.add(replace(work(0, 10), deadline_s=1.0))
    dispatcher.add(work(1, 10, created_s=0.01))
    assert sent(dispatcher, 0.01) == [(1, 0)]


def test_of_two_classes_the_matching_prefers_the_one_with_less_time() -> None:
    dispatcher = dispatching("gpu", "slow")
    dispatcher.add(replace(work(0, 10), deadline_s=0.078))
    dispatcher.add(replace(work(1, 10, created_s=0.03), deadline_s=0.075))
    # Both are in time only on the gpu; the first one has waited longer.
    assert sent(dispatcher, 0.04) == [(1, 0)]


@pytest.mark.parametrize("policy", ["fcfs", "threshold", "earliest"])
def test_a_query_that_may_be_late_lets_others_pass(policy: str) -> None:
    dispatcher = dispatching("gpu", policy=policy, seconds=_spread)
    for of in (work(0, 50), work(1, 50, created_s=0.02), work(2, 50, created_s=0.02)):
        dispatcher.add(of)
    # The first ends at 0.095, or at 0.105 where the gpu takes its 95th percentile.
    picks, dropped = dispatcher.decide(0.045)
    assert [each.work.origin.offset for each, _ in picks] == [1]
    assert dropped == []


def test_a_query_that_may_be_late_takes_a_device_that_nobody_else_wants() -> None:
    dispatcher = dispatching("gpu", policy="fcfs", seconds=_spread)
    dispatcher.add(work(0, 50))
    assert sent(dispatcher, 0.045) == [(0, 0)]


def test_a_query_is_kept_back_from_a_device_on_which_it_would_be_late() -> None:
    dispatcher = dispatching("slow", "gpu")
    large, small = work(0, 50), work(1, 10)
    dispatcher.add(large)
    dispatcher.add(small)
    assert sent(dispatcher, 0.0) == [(0, 1), (1, 0)]
    third = work(2, 40)
    dispatcher.add(third)
    # The slow device is free at 0.04, but 40 takes 0.16 s there.
    dispatcher.completed(completion(small, 0, 0.04, "slow-0", "slow"), 0.04)
    assert sent(dispatcher, 0.04) == []
    dispatcher.completed(completion(large, 1, 0.05, "gpu-1"), 0.05)
    assert sent(dispatcher, 0.05) == [(2, 1)]


def test_a_policy_of_ones_own_may_withhold_queries_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = PolicySpec(
        name="mine", summary="", plan=POLICIES["kairos"].plan, options=DISPATCH,
        dispatch=POLICIES["kairos"].dispatch, withholds=True,
    )  # fmt: skip
    monkeypatch.setitem(POLICIES, "mine", mine)
    for policy, expected in (("kairos", []), ("mine", []), ("kairos-paper", [0])):
        dispatcher = dispatching("gpu", "slow", policy=policy)
        dispatcher.add(work(0, 30))
        assert sent(dispatcher, 0.0) == [(0, 0)]
        for offset in (1, 2):  # 160 ms on the slow device
            dispatcher.add(work(offset, 40))
        assert [slot - 1 for _, slot in sent(dispatcher, 0.0)] == expected


def test_a_query_is_in_time_if_it_makes_its_deadline_with_both_hops() -> None:
    sizes = SizeDistribution((10, 90), (0.5, 0.5))
    for round_trip_s, expected in ((0.0, [(0, 1)]), (0.03, [(0, 0)])):
        dispatcher = dispatching("gpu", "slow", sizes=sizes, round_trip_s=round_trip_s)
        dispatcher.add(work(0, 20))  # 80 ms on the slow device, which is the cheaper one
        assert sent(dispatcher, 0.0) == expected


def test_a_dispatcher_that_starts_learns_from_the_completions_that_it_reads_again() -> None:
    dispatcher = a_dispatcher()
    for offset in range(20):  # before its first plan, as ingress reads them: twice the profile's
        dispatcher.completed(completion(work(offset, 20), 0, 0.04, "gpu-0"), 0.0)
    dispatcher.change(a_dispatching_plan("gpu"), 0.0)
    dispatcher.add(work(20, 60))  # 60 ms by the profile, within the SLO of 100 ms
    picks, dropped = dispatcher.decide(0.0)
    assert picks == []
    assert [each.work.origin.offset for each, _ in dropped] == [20]


@pytest.mark.parametrize(("learn", "expected"), [(True, []), (False, [(20, 0)])])
def test_without_learning_the_profile_counts(learn: bool, expected: list[tuple[int, int]]) -> None:
    policy = POLICIES["kairos"].policy("mine", {"learn": learn})
    dispatcher = dispatching("gpu", policy="mine", policies=(policy,))
    for offset in range(20):  # twice the profile's seconds
        dispatcher.completed(completion(work(offset, 20), 0, 0.04, "gpu-0"), 0.0)
    dispatcher.add(work(20, 60))  # 60 ms by the profile, within the SLO of 100 ms
    assert sent(dispatcher, 0.0) == expected


def test_a_device_that_has_become_slower_than_its_type_is_avoided() -> None:
    dispatcher = dispatching("gpu", "gpu")
    first = work(0, 20)
    dispatcher.add(first)
    assert sent(dispatcher, 0.0) == [(0, 0)]
    dispatcher.completed(completion(first, 0, 0.06, "gpu-0"), 0.06)
    dispatcher.add(work(1, 20, created_s=0.06))
    assert sent(dispatcher, 0.06) == [(1, 1)]


def test_the_usual_threshold_is_the_largest_size_that_auxiliary_devices_finish_in_time() -> None:
    dispatcher = dispatching("gpu", "slow", policy="threshold")
    for offset, size in enumerate((25, 26)):  # 100 and 104 ms on the slow device
        dispatcher.add(work(offset, size))
    assert sent(dispatcher, 0.0) == [(0, 1), (1, 0)]


def test_a_device_has_one_query_ahead_where_each_takes_longer_than_the_lead() -> None:
    dispatcher = dispatching("gpu", profiled=("gpu",), round_trip_s=0.004)
    for offset in range(4):
        dispatcher.add(work(offset, 20))
    assert sent(dispatcher, 0.0) == [(0, 0)]
    assert dispatcher.next_s(0.0) < 0.02  # it looks again before the device is free
    assert sent(dispatcher, dispatcher.next_s(0.0)) == [(1, 0)]
    assert sent(dispatcher, 0.0215) == []  # the first is not done: one runs, one is ahead


@pytest.mark.parametrize(("now", "expected"), [(0.059, [(1, 0)]), (0.061, [])])
def test_a_device_that_takes_three_times_its_prediction_gets_nothing_more(
    now: float, expected: list[tuple[int, int]]
) -> None:
    ahead = POLICIES["kairos"].policy("ahead", {"lead": 0.004})
    dispatcher = dispatching("gpu", policy="ahead", policies=(ahead,), profiled=("gpu",))
    dispatcher.add(work(0, 20))
    assert sent(dispatcher, 0.0) == [(0, 0)]
    dispatcher.add(work(1, 20, created_s=now))
    assert sent(dispatcher, now) == expected


def test_a_query_sent_ahead_begins_when_the_device_is_free_and_the_query_is_there() -> None:
    dispatcher = dispatching("gpu", profiled=("gpu",), round_trip_s=0.004)
    queries = [work(offset, 20) for offset in range(3)]
    dispatcher.add(queries[0])
    assert sent(dispatcher, 0.0) == [(0, 0)]
    assert dispatcher.remaining_s(0.0) == pytest.approx({0: 0.022})  # one hop, 20 ms
    dispatcher.add(queries[1])
    assert sent(dispatcher, 0.021) == [(1, 0)]  # it arrives at 0.023; the device is free at 0.022
    assert dispatcher.remaining_s(0.021) == pytest.approx({0: 0.022})
    dispatcher.completed(completion(queries[0], 0, 0.02, "gpu-0"), 0.024)
    assert dispatcher.remaining_s(0.024) == pytest.approx({0: 0.019})  # as before
    dispatcher.completed(completion(queries[1], 0, 0.02, "gpu-0"), 0.045)
    assert dispatcher.remaining_s(0.045) == {}


def test_a_completion_later_than_predicted_puts_off_the_query_sent_ahead() -> None:
    dispatcher = dispatching("gpu", profiled=("gpu",), round_trip_s=0.004)
    queries = [work(offset, 20) for offset in range(2)]
    for query, now in zip(queries, (0.0, 0.021), strict=True):
        dispatcher.add(query)
        assert sent(dispatcher, now) == [(query.origin.offset, 0)]
    done = completion(queries[0], 0, 0.02, "gpu-0")
    dispatcher.completed(replace(done, queued_s=0.006), 0.03)  # it ended at 0.028
    assert dispatcher.remaining_s(0.03) == pytest.approx({0: 0.018})


def test_observed_round_trips_count_for_the_next_query() -> None:
    dispatcher = dispatching("gpu", profiled=("gpu",))
    for offset in range(200):
        query, now = work(offset, 20, created_s=float(offset)), float(offset)
        dispatcher.add(query)
        assert sent(dispatcher, now) == [(offset, 0)]
        dispatcher.completed(completion(query, 0, 0.02, "gpu-0"), now + 0.03)
    dispatcher.add(work(200, 20, created_s=200.0))
    assert sent(dispatcher, 200.0) == [(200, 0)]
    assert dispatcher.remaining_s(200.0) == pytest.approx({0: 0.025}, rel=0.01)  # a hop is 5 ms


@pytest.mark.parametrize(("round_trip_s", "most"), [(0.0, 1), (0.004, 5), (0.02, MOST_SENT)])
def test_a_device_gets_ahead_what_it_serves_within_the_lead(round_trip_s: float, most: int) -> None:
    dispatcher = dispatching(
        "gpu",
        seconds=lambda type_, size, quantile: 0.0005,
        profiled=("gpu",),
        round_trip_s=round_trip_s,
    )
    for offset in range(40):
        dispatcher.add(work(offset, 20))
    assert len(sent(dispatcher, 0.0)) == most
    assert sent(dispatcher, 0.0) == []


@pytest.mark.parametrize("policy", ["kairos", "fcfs", "threshold", "earliest"])
def test_a_type_that_was_slow_for_a_while_is_tried_again(policy: str) -> None:
    dispatcher = dispatching("gpu", policy=policy)
    assert ran(dispatcher, range(100), 0.0, run_s=6 * 0.02)[-1:] != [99]  # it takes 120 ms of 100
    assert ran(dispatcher, range(100, 140), 200.0, run_s=0.02)[-1:] == [139]


def test_a_type_that_was_slow_for_a_while_is_tried_again_beside_others() -> None:
    dispatcher = dispatching("gpu", "slow")
    for number in range(64):  # the slow type takes 6 times the 40 ms of its profile
        dispatcher.completed(completion(work(number, 10), 9, 0.24, "slow-1", "slow"), 0.0)
    slots = []
    for number in range(30):
        for each in (100 + 2 * number, 101 + 2 * number):
            dispatcher.add(work(each, 10, created_s=float(number)))
        for offset, slot in sent(dispatcher, float(number)):
            slots.append((number, slot))
            done = completion(work(offset, 10), slot, 0.01, f"gpu-{slot}")
            if slot == 0:
                dispatcher.completed(done, number + 0.01)
        sent(dispatcher, number + 0.5)  # the rest is dropped
    assert min(number for number, slot in slots if slot == 1) == 11


def test_a_device_that_runs_queries_keeps_its_round_trip_where_nothing_is_learned() -> None:
    """Others are dropped all the time: their lateness is the round trip of 10 ms, so far 0."""
    exact = Policy(name="exact", kind="kairos", options={"learn": False})
    dispatcher = dispatching("gpu", policy="exact", policies=(exact,))
    late_s = []
    for number in range(50):
        now, asked = number / 2, work(2 * number, 20, created_s=number / 2)
        dispatcher.add(asked)
        dispatcher.add(work(2 * number + 1, 100, created_s=now))
        picks, dropped = dispatcher.decide(now)
        assert [each.work for each, _ in picks] == [asked]
        late_s += [late for _, late in dropped]
        dispatcher.completed(completion(asked, 0, 0.02, "gpu-0"), now + 0.03)
    assert len(late_s) == 50
    assert late_s == sorted(late_s)


def ran(dispatcher: Dispatcher, numbers: range, at_s: float, run_s: float) -> list[int]:
    """Let queries of size 20 arrive 0.5 s apart at one device; return those that it ran."""
    found = []
    for number in numbers:
        now = at_s + (number - numbers.start) / 2
        asked = work(number, 20, created_s=now)
        dispatcher.add(asked)
        found += [offset for offset, _ in sent(dispatcher, now)]
        if found[-1:] == [number]:
            dispatcher.completed(completion(asked, 0, run_s, "gpu-0"), now + run_s)
    return found


def test_two_dispatchers_divide_the_devices_of_each_type() -> None:
    slots = []
    for index in (0, 1):
        dispatcher = dispatching("gpu", "gpu", "slow", "slow", part=Part(index, 2))
        for offset in range(4):
            dispatcher.add(work(offset, 10))
        slots.append({slot for _, slot in sent(dispatcher, 0.0)})
    assert slots[0] | slots[1] == {0, 1, 2, 3}
    assert [len(own & {0, 1}) for own in slots] == [1, 1]
    assert [len(own & {2, 3}) for own in slots] == [1, 1]


def test_each_of_two_dispatchers_has_a_device_where_there_is_one_of_each_type() -> None:
    for index in (0, 1):
        dispatcher = dispatching("gpu", "slow", part=Part(index, 2))
        assert dispatcher


@pytest.mark.parametrize("policy", ["kairos", "late"])
def test_without_a_device_queries_are_given_up_at_their_deadline(policy: str) -> None:
    serve = POLICIES["kairos"].policy("late", {"late": "serve"})
    dispatcher = dispatching(policy=policy, policies=(serve,))
    dispatcher.add(work(0, 10))
    assert dispatcher.decide(0.09) == ([], [])
    assert dispatcher.next_s(0.09) == SLO_S
    picks, dropped = dispatcher.decide(0.15)
    assert not picks
    assert [round(late_s, 3) for _, late_s in dropped] == [0.05]


def test_a_query_is_given_up_when_it_is_woken_for_at_its_last_moment() -> None:
    dispatcher = dispatching()
    dispatcher.add(work(0, 20))
    assert dispatcher.decide(0.0) == ([], [])
    woken_s = dispatcher.next_s(0.0)
    assert [each.work.origin.offset for each, _ in dispatcher.decide(woken_s)[1]] == [0]


def test_queries_of_a_lost_device_count_at_the_device_that_adopts_its_slot() -> None:
    dispatcher = dispatching("gpu", "gpu")
    first, second, third = (work(offset, 40) for offset in range(3))
    dispatcher.add(first)
    dispatcher.add(second)
    assert sent(dispatcher, 0.0) == [(0, 0), (1, 1)]
    lease = Lease(
        worker="gpu-1", task="read", variant="v", batch=1, slots=(0, 1), open_slot=1, type="gpu"
    )
    plan = a_dispatching_plan("gpu", epoch=2)
    dispatcher.change(
        Plan(
            pipeline=plan.pipeline, epoch=2, issued_s=0.0, reason="", settings=plan.settings,
            leases=(lease,),
        ),
        0.01,
    )  # fmt: skip
    dispatcher.add(third)
    dispatcher.completed(completion(second, 1, 0.04, "gpu-1"), 0.04)
    assert sent(dispatcher, 0.04) == []  # it still holds the other dispatcher's query
    dispatcher.completed(completion(first, 0, 0.04, "gpu-1"), 0.08)
    assert sent(dispatcher, 0.05) == [(2, 1)]


def test_new_policy_takes_over_the_waiting_queries() -> None:
    dispatcher = dispatching("gpu")
    first, second = work(0, 20), work(1, 20)
    dispatcher.add(first)
    dispatcher.add(second)
    dispatcher.decide(0.0)
    assert dispatcher.change(a_dispatching_plan("gpu", policy="static", epoch=2), 0.0) == [second]
    assert not dispatcher.active


def test_a_mix_that_shrinks_keeps_what_waits_and_what_cannot_run_any_more_is_given_up() -> None:
    dispatcher = dispatching("gpu", "gpu", "slow")
    for offset, size in enumerate((40, 40, 10, 50, 20)):
        dispatcher.add(work(offset, size))
    first = sent(dispatcher, 0.0)
    assert len(first) == 3
    shrunk = a_dispatching_plan("slow", epoch=2)
    lease = replace(shrunk.leases[0], worker="slow-2", slots=(0, 1, 2), open_slot=2)
    assert dispatcher.change(replace(shrunk, leases=(lease,)), 0.001) == []
    assert dispatcher.waiting == 2
    # 50 needs 200 ms on the slow device and has 100 ms; 20 waits its turn.
    picks, dropped = dispatcher.decide(0.001)
    assert (picks, [each.work.origin.offset for each, _ in dropped]) == ([], [3])
    assert dispatcher.oldest(0) == 4
    for offset, _ in first:
        dispatcher.completed(completion(work(offset, 10), 2, 0.01, "slow-2", "slow"), 0.015)
        dispatcher.completed(completion(work(offset, 10), 0, 0.01, "slow-2", "slow"), 0.015)
        dispatcher.completed(completion(work(offset, 10), 1, 0.01, "slow-2", "slow"), 0.015)
    assert sent(dispatcher, 0.015) == [(4, 2)]


# --- ingress -------------------------------------------------------------------------------------


def an_ingress(*types: str) -> Ingress:
    node = Ingress(
        "ingress-0", a_sized_pipeline(), (0,), incarnation=0.0, dispatchers=(a_dispatcher(),)
    )
    node.handle(Woke(), 0.0)
    node.handle(Arrived(a_dispatching_plan(*types), "plans", 0, 0, 0.0), 0.0)
    node.handle(Woke(), 0.0)
    return node


def arrive(node: Ingress, offset: int, size: int, now: float) -> list[Effect]:
    query = Query(payload=b"x", size=size)
    found = list(node.handle(Arrived(query, QUERIES, 0, offset, now), now))
    if Wake(now) in found:
        found += node.handle(Woke(), now)
    return found


def to_workers(effects: list[Effect]) -> list[tuple[int, int, int]]:
    return [
        (e.record.origin.offset, e.record.size, e.slot)
        for e in effects
        if isinstance(e, Send) and e.topic == work_topic("read") and isinstance(e.record, Work)
    ]


def committed(effects: list[Effect]) -> list[int]:
    return [
        done.offset for e in effects if isinstance(e, Assign) and e.topic == QUERIES
        for done in e.done
    ]  # fmt: skip


def test_sent_queries_are_committed_and_waiting_queries_are_not() -> None:
    node = an_ingress("gpu")
    assert to_workers(arrive(node, 0, 20, 0.0)) == [(0, 20, 0)]
    assert to_workers(arrive(node, 1, 20, 0.001)) == []
    flushed = list(node.handle(Woke(), NOTICE_S))
    assert committed(flushed) == [1]  # the second query comes again after a restart
    notices = [e.record for e in flushed if isinstance(e, Send) and e.topic == OUTPUTS]
    assert [n.upto for n in notices if isinstance(n, Notice)] == [2]
    done = completion(work(0, 20), 0, NOTICE_S, "gpu-0")
    node.handle(Arrived(done, "completions", 0, 0, NOTICE_S), NOTICE_S)
    assert to_workers(list(node.handle(Woke(), NOTICE_S))) == [(1, 20, 0)]
    assert committed(list(node.handle(Woke(), 2 * NOTICE_S))) == [2]


def test_queries_that_come_together_are_matched_once() -> None:
    node = an_ingress("gpu", "slow")
    effects = [
        effect
        for offset, size in enumerate((90, 10))
        for effect in node.handle(
            Arrived(Query(payload=b"x", size=size), QUERIES, 0, offset, 0.0), 0.0
        )
    ]
    assert effects.count(Wake(0.0)) == 1
    # One by one, each would get the first device.
    assert sorted(to_workers(list(node.handle(Woke(), 0.0)))) == [(0, 90, 0), (1, 10, 1)]
    reports = [
        each.record for each in node.handle(Woke(), 1.0)
        if isinstance(each, Send) and isinstance(each.record, Report)
    ]  # fmt: skip
    assert reports[-1].counts["decisions"] == 2  # the first one for the plan


def test_a_query_above_the_largest_size_is_refused_with_the_limit() -> None:
    node = an_ingress("gpu")
    effects = arrive(node, 0, 101, 0.0)
    assert to_workers(effects) == []
    notices = [
        e.record for e in node.handle(Woke(), 0.02)
        if isinstance(e, Send) and isinstance(e.record, Notice)
    ]  # fmt: skip
    assert notices[0].queries[0].refused == "size 101 is not from 1 to 100; split the query"


def test_query_given_up_ends_as_dropped() -> None:
    node = an_ingress("gpu")
    arrive(node, 0, 90, 0.0)
    effects = arrive(node, 1, 90, 0.0)  # the gpu needs 90 ms for it and has 100
    assert to_workers(effects) == []
    assert effects[-1] == Wake(pytest.approx(0.01))
    assert node.handle(Woke(), 0.009) == []
    effects = list(node.handle(Woke(), 0.05))
    ended = [
        item.end
        for e in effects
        if isinstance(e, Send) and isinstance(e.record, Work) and e.topic == OUTPUTS
        for item in e.record.items
    ]
    assert [end.outcome for end in ended if end] == ["dropped"]
