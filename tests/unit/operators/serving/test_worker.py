"""The worker: queue, drop, batch, infer, forward."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from control.per_query.batching import HELD_BATCHES
from operators.reporter import INTERVAL_S
from operators.serving.worker import Worker
from schemas.effects import (
    COMMANDS,
    REPORTS,
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    Load,
    Send,
    Wake,
    Woke,
)
from schemas.enumerations import NodeState
from schemas.pipeline import ClassShare, Policy
from schemas.pipeline_fingerprint import fingerprint
from schemas.records import (
    ANSWERED,
    DROPPED,
    FAILED,
    Command,
    DeadLetter,
    Garbled,
    Item,
    Lease,
    Report,
    Route,
    Settings,
    SlotState,
    Work,
)
from tests.builders import (
    DECLARED,
    SLO_S,
    a_hop,
    a_lease,
    a_pipeline,
    a_plan,
    a_work,
    an_end,
    an_item,
    arrived,
    inferred,
    inferring,
    loaded,
    quiet,
    reports,
    sent,
    told,
)

TWO_STAGES = {"locate": ["read"], "read": []}


def a_worker(**changes: Any) -> Worker:
    """Return a worker without a plan."""
    children = changes.pop("children", {"read": []})
    return Worker("w", a_pipeline(children), "cpu", incarnation=0.0, **changes)


def serving(lease: Lease | None = None, **changes: Any) -> Worker:
    """Return a worker with its lease, its variant on the device, and a fresh report."""
    worker, lease = a_worker(**changes), lease or a_lease()
    worker.handle(Woke(), 0.0)
    worker.handle(arrived(a_plan([lease, a_lease("r", slots=(5,))])), 0.0)
    worker.handle(loaded(f"{lease.task}/{lease.variant}"), 0.0)
    return worker


def batch_of(worker: Worker, *events: Event, now: float = 0.1) -> list[Effect]:
    """Pass the events to the worker, then let it start a batch of them."""
    for event in events:
        worker.handle(event, now)
    return quiet(worker.handle(Woke(), now))


def answered(value: Any, path_of: Callable[..., Any] = a_hop, **hop: Any) -> Item:
    return Item(value=value, path=(path_of(**hop),), end=an_end(ANSWERED, "read"))


def ended(outcome: str, reason: str, **changes: Any) -> Item:
    return Item(end=an_end(outcome, "read", reason), **changes)


def to_egress(offset: int, *items: Item) -> Send:
    return Send("outputs", a_work(offset, *items, task=""), 0)


def done(slot: int, offset: int) -> Assign:
    return Assign("work.read", done=(Done(slot, offset),))


# ---------------------------------------------------------------------- start, lease, load


def test_at_first_it_reads_plans_and_gives_a_sign_of_life() -> None:
    worker = a_worker()
    report = Report(
        node="w", role="worker", pipeline="p", epoch=0, incarnation=0.0, sent_s=5.0, state="idle",
        device="cpu", counts=DECLARED, file=fingerprint(a_pipeline()),
    )  # fmt: skip
    assert worker.handle(Woke(), 5.0) == [
        Assign("plans", (0,)), Send("reports", report, 0), Wake(5.2),
    ]  # fmt: skip


def test_a_plan_leases_it_slots_and_a_variant() -> None:
    plan = a_plan([a_lease(slots=(0, 3))])
    assert told(a_worker(), (Woke(), 0.0), (arrived(plan), 0.0)) == [
        Assign("work.read", (0, 3), ()), Load("read/v"),
    ]  # fmt: skip


def test_a_plan_without_it_leaves_it_idle() -> None:
    assert told(a_worker(), (Woke(), 0.0), (arrived(a_plan()), 0.0)) == []


@pytest.mark.parametrize("changes", [{"epoch": 1}, {"epoch": 0}, {"epoch": 9, "pipeline": "other"}])
def test_a_stale_plan_and_another_pipelines_are_rejected(changes: dict[str, Any]) -> None:
    worker = serving()
    assert worker.handle(arrived(a_plan([], **changes)), 0.1) == []
    assert batch_of(worker, arrived(a_work(0))) == [Infer(1, "read/v", (b"x",))]


def test_a_worker_follows_its_own_lease_wherever_the_plan_lists_it() -> None:
    leases = [a_lease("a", variant="w", slots=(4,)), a_lease(slots=(0, 3)), a_lease("x")]
    assert told(a_worker(), (Woke(), 0.0), (arrived(a_plan(leases)), 0.0)) == [
        Assign("work.read", (0, 3), ()), Load("read/v"),
    ]  # fmt: skip


def test_a_worker_reports_loading_until_its_variant_serves() -> None:
    def state(now: float) -> str:
        (report,) = reports(worker.handle(Woke(), now))
        return report.state

    worker = a_worker()
    found = [state(0.0)]
    worker.handle(arrived(a_plan([a_lease()])), 0.1)
    found.append(state(1.0))
    worker.handle(Failed("read/v", "no such file"), 1.1)
    found.append(state(1.5))
    worker.handle(arrived(a_plan([a_lease()], epoch=2)), 1.6)
    found.append(state(2.0))
    worker.handle(loaded(), 2.1)
    found.append(state(3.0))
    assert found == ["idle", "loading", "failed", "loading", "ready"]


def test_a_worker_reports_at_once_that_a_variant_serves_and_as_usual_afterwards() -> None:
    worker = a_worker()
    worker.handle(Woke(), 0.0)
    worker.handle(arrived(a_plan([a_lease()])), 0.05)
    (report,) = reports(worker.handle(loaded(), 0.06))
    assert (report.state, report.variant, report.sent_s) == (NodeState.READY, "v", 0.06)
    (report,) = reports(worker.handle(Woke(), INTERVAL_S))
    assert report.sent_s == INTERVAL_S


def test_work_waits_for_its_variant_to_load() -> None:
    worker = a_worker()
    events = [Woke(), arrived(a_plan([a_lease()])), arrived(a_work(0)), arrived(a_work(1), 1)]
    assert told(worker, *[(event, 0.0) for event in events]) == []
    assert told(worker, (loaded(), 0.2)) == [Wake(0.2)]
    assert told(worker, (Woke(), 0.2)) == [Infer(1, "read/v", (b"x", b"x"))]


def test_a_load_that_fails_is_reported_and_tried_again_with_the_next_plan() -> None:
    worker = a_worker()
    plan = a_plan([a_lease()])
    told(worker, (Woke(), 0.0), (arrived(plan), 0.0))
    assert worker.handle(Failed("read/v", "no such file"), 0.1) == []
    (report,) = reports(worker.handle(Woke(), 0.3))
    assert (report.state, report.error) == (NodeState.FAILED, "no such file")
    assert report.counts == DECLARED  # no failed reload
    assert Load("read/v") in worker.handle(arrived(a_plan([a_lease()], epoch=2)), 0.4)


def test_a_worker_that_leaves_says_so_whatever_becomes_of_its_loads() -> None:
    worker = serving()
    worker.handle(arrived(a_plan([a_lease(variant="w")], epoch=2)), 0.1)
    drain = Command(id="", pipeline="p", action="drain", arguments={"target": "w"})
    worker.handle(Arrived(drain, "commands", 0, -1, 0.2), 0.2)
    worker.handle(Failed("read/w", "no such file"), 0.3)
    (report,) = reports(worker.handle(Woke(), 1.0))
    assert report.state == NodeState.LEAVING


def test_a_failed_load_does_not_take_the_variant_that_serves() -> None:
    worker = serving()
    worker.handle(arrived(a_plan([a_lease(variant="w")], epoch=2)), 0.1)
    worker.handle(Failed("read/w", "no such file"), 0.2)
    assert batch_of(worker, arrived(a_work(0))) == [Infer(1, "read/v", (b"x",))]


def test_the_old_variant_serves_until_the_new_one_is_loaded_and_the_batch_has_ended() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)))
    swap = arrived(a_plan([a_lease(variant="w")], epoch=2))
    assert told(worker, (swap, 0.1)) == [Assign("work.read", (0,), ()), Load("read/w")]
    assert told(worker, (loaded("read/w"), 0.15)) == []
    assert told(worker, (arrived(a_work(1), 1), 0.15)) == []
    effects = told(worker, (inferred(1, "seven"), 0.2))
    path = (a_hop(epoch=2, variant="v"),)
    assert effects == [
        Send("outputs", a_work(0, Item(value="seven", path=path, end=an_end(ANSWERED, "read")),
                               task="", epoch=2), 0),
        done(0, 1),
        Infer(2, "read/w", (b"x",)),
    ]  # fmt: skip


# ---------------------------------------------------------------------- batches


def test_a_burst_makes_one_batch_and_the_rest_waits() -> None:
    worker = serving(a_lease(batch=2))
    assert told(worker, (arrived(a_work(0)), 0.1)) == [Wake(0.1)]
    assert told(worker, (arrived(a_work(1), 1), 0.1), (arrived(a_work(2), 2), 0.1)) == []
    assert told(worker, (Woke(), 0.1)) == [Infer(1, "read/v", (b"x", b"x"))]
    assert told(worker, (inferred(1, "a", "b"), 0.2)) == [
        to_egress(0, answered("a", batch=2, released="full")),
        to_egress(1, answered("b", batch=2, released="full")),
        done(0, 2),
        Infer(2, "read/v", (b"x",)),
    ]
    assert told(worker, (inferred(2, "c"), 0.2))[0] == to_egress(2, answered("c", released="idle"))


def test_items_of_one_record_run_in_two_batches_and_are_committed_with_the_last() -> None:
    worker = serving(a_lease(batch=2))
    items = [an_item(i, branch=(0, i)) for i in range(3)]
    assert batch_of(worker, arrived(a_work(0, *items))) == [Infer(1, "read/v", (0, 1))]
    first = told(worker, (inferred(1, "a", "b"), 0.2))
    assert [type(effect) for effect in first] == [Send, Infer]
    second = told(worker, (inferred(2, "c"), 0.3))
    assert second[1:] == [done(0, 1)]


def test_records_of_several_slots_are_committed_each_in_its_slot() -> None:
    worker = serving(a_lease(slots=(0, 3)))
    batch_of(worker, arrived(a_work(0), 4, 0), arrived(a_work(1), 8, 3), arrived(a_work(2), 5, 0))
    effects = told(worker, (inferred(1, "a", "b", "c"), 0.2))
    assert effects[-1] == Assign("work.read", done=(Done(0, 6), Done(3, 9)))


def test_out_of_order_completion_commits_only_behind_the_first_open_record() -> None:
    worker = serving(a_lease(batch=2))
    urgent = a_work(1, deadline_s=0.15)
    events = [arrived(a_work(0)), arrived(urgent, 1), arrived(a_work(2), 2), arrived(a_work(3), 3)]
    late = ended(DROPPED, "read/v would finish 50 ms after the deadline")
    assert batch_of(worker, *events, now=0.2) == [
        Send("outputs", a_work(1, late, task="", deadline_s=0.15), 0),
        Infer(1, "read/v", (b"x", b"x")),
    ]
    assert told(worker, (inferred(1, "a", "b"), 0.3))[2:] == [
        done(0, 3), Infer(2, "read/v", (b"x",)),
    ]  # fmt: skip


def test_a_result_of_a_job_that_is_not_running_is_of_no_interest() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)))
    assert worker.handle(inferred(7, "a"), 0.2) == []
    told(worker, (inferred(1, "a"), 0.2))
    assert worker.handle(inferred(1, "a"), 0.2) == []


@pytest.mark.parametrize("again", [inferred(2, "a"), Failed(2, "no")])
def test_the_end_of_a_batch_that_comes_twice_ends_its_items_once(again: Event) -> None:
    worker = serving(a_lease(batch=1))
    batch_of(worker, arrived(a_work(0)), arrived(a_work(1), 1))
    told(worker, (inferred(1, "a"), 0.2), (inferred(2, "b"), 0.3))
    assert worker.handle(again, 0.3) == []


def test_a_failed_batch_tries_no_item_again_whose_slot_is_lost() -> None:
    worker = serving(a_lease(slots=(0, 3)))
    batch_of(worker, arrived(a_work(0), 0, 0), arrived(a_work(1), 0, 3))
    worker.handle(arrived(a_plan([a_lease(slots=(3,))], epoch=2)), 0.1)
    effects = told(worker, (Failed(1, "no"), 0.2))
    assert [batch.job for batch in inferring(effects)] == [2]
    assert inferring(told(worker, (inferred(2, "b"), 0.3))) == []


def test_a_record_that_comes_again_is_ignored() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)))
    assert worker.handle(arrived(a_work(0)), 0.1) == []


# ---------------------------------------------------------------------- dropping


def test_items_that_cannot_be_in_time_are_dropped_and_the_batch_is_refilled() -> None:
    worker = serving(a_lease(batch=2), latency=lambda variant, batch: 0.05 * batch)
    late = a_work(0, an_item(path=(a_hop(),)), deadline_s=0.15)
    events = [arrived(late), arrived(a_work(1), 1), arrived(a_work(2), 2)]
    reason = "read/v would finish 50 ms after the deadline"
    dropped = a_work(0, ended(DROPPED, reason, path=(a_hop(),)), task="", deadline_s=0.15)
    assert batch_of(worker, *events) == [
        Send("outputs", dropped, 0),
        done(0, 1),
        Infer(1, "read/v", (b"x", b"x")),
    ]


@pytest.mark.parametrize(("classes", "runs"), [({"gold": 0.2}, 1), ({}, 2)])
def test_with_classes_an_urgent_item_runs_without_those_that_would_make_it_late(
    classes: dict[str, float], runs: int
) -> None:
    pipeline = a_pipeline(slo_classes=classes)
    worker = Worker("w", pipeline, "cpu", incarnation=0.0, latency=lambda _, size: 0.06 * size)
    worker.handle(Woke(), 0.0)
    worker.handle(arrived(a_plan([a_lease(batch=3), a_lease("r", slots=(5,))])), 0.0)
    worker.handle(loaded("read/v"), 0.0)
    # The SLO of a query counts from its creation: the urgent one came last.
    urgent = structs.replace(a_work(0, deadline_s=0.2), created_s=0.0)
    slack = [structs.replace(a_work(each, deadline_s=0.3), created_s=-1.7) for each in (1, 2)]
    events = [arrived(work, offset) for offset, work in enumerate((urgent, *slack))]
    (batch,) = [each for each in batch_of(worker, *events) if isinstance(each, Infer)]
    assert len(batch.values) == runs


@pytest.mark.parametrize(("floor", "runs"), [(0.99, b"gold"), (0.5, b"bulk"), (0.0, b"bulk")])
def test_a_class_below_its_floor_goes_ahead_of_items_with_an_earlier_deadline(
    floor: float, runs: bytes
) -> None:
    def work(offset: int, name: str, created_s: float, deadline_s: float) -> Event:
        made = a_work(offset, an_item(value=name.encode()), deadline_s=deadline_s)
        return arrived(structs.replace(made, slo_class=name, created_s=created_s), offset)

    shares = {"gold": ClassShare(3.0, floor), "bulk": ClassShare(1.0)}
    pipeline = a_pipeline(slo_classes={"gold": 0.2, "bulk": 1.0}, class_shares=shares)
    worker = Worker("w", pipeline, "cpu", incarnation=0.0, latency=lambda _, size: 0.1)
    worker.handle(Woke(), 0.0)
    worker.handle(arrived(a_plan([a_lease(batch=1), a_lease("r", slots=(5,))])), 0.0)
    worker.handle(loaded("read/v"), 0.0)
    for each in range(4):
        batch_of(worker, work(each, "gold", 0.1, 0.3))
        worker.handle(inferred(each + 1, "gold", finished_s=0.1), 0.1)
    batch_of(worker, work(4, "gold", -0.15, 0.05))  # dropped: one of five
    waiting = [work(5, "bulk", -0.75, 0.25), work(6, "gold", 0.1, 0.3)]
    (batch,) = [each for each in batch_of(worker, *waiting) if isinstance(each, Infer)]
    assert batch.values == (runs,)


def test_a_deadline_that_is_just_met_is_met() -> None:
    worker = serving(latency=lambda variant, batch: 0.25)
    assert inferring(batch_of(worker, arrived(a_work(0)), now=0.25))


def test_when_everything_is_late_nothing_runs() -> None:
    worker = serving()
    effects = batch_of(worker, arrived(a_work(0)), arrived(a_work(1), 1), now=0.6)
    late = ended(DROPPED, "read/v would finish 100 ms after the deadline")
    assert effects == [to_egress(0, late), to_egress(1, late), done(0, 2)]


@pytest.mark.parametrize(("took_s", "runs"), [(0.2, False), (0.1, True), (0.4, False)])
def test_a_device_that_is_faster_than_its_profile_does_not_drop_what_it_can_finish(
    took_s: float, runs: bool
) -> None:
    worker, now = serving(latency=lambda variant, batch: 0.2), 0.0
    for number in range(12):  # the first of which may have loaded libraries
        begun = batch_of(worker, arrived(a_work(number, deadline_s=now + 1.0), number), now=now)
        assert inferring(begun)
        ended_s = now + took_s
        ran = inferred(number + 1, "a", started_s=now, finished_s=ended_s)
        worker.handle(ran, ended_s)
        now += 1.0
    late = a_work(12, deadline_s=now + 0.15)
    assert bool(inferring(batch_of(worker, arrived(late, 12), now=now))) is runs


# ---------------------------------------------------------------------- outputs


def test_children_of_one_item_travel_in_one_record_to_one_slot() -> None:
    worker = serving(a_lease(task="locate"), children=TWO_STAGES)
    batch_of(worker, arrived(a_work(0, task="locate")))
    send, commit = told(worker, (inferred(1, list(range(20))), 0.2))
    assert isinstance(send, Send)
    assert isinstance(send.record, Work)
    assert (send.topic, send.slot, len(send.record.items)) == ("work.read", 5, 20)
    assert send.record.items[3].path == (a_hop(task="locate"),)
    assert commit == Assign("work.locate", done=(Done(0, 1),))


def test_routes_of_its_own_variant_come_before_those_for_all() -> None:
    worker = serving(a_lease(task="locate"), children=TWO_STAGES)
    routes = (Route("read", 5, 1.0), Route("read", 6, 1.0, "locate/v"))
    plan = a_plan([a_lease(task="locate")], epoch=2, routes=routes)
    batch_of(worker, arrived(plan), arrived(a_work(0, task="locate")))
    (send, _) = told(worker, (inferred(1, [1]), 0.2))
    assert isinstance(send, Send)
    assert send.slot == 6


def test_a_new_plan_continues_the_turns_of_the_one_before() -> None:
    leases = [a_lease(task="locate"), a_lease("r"), a_lease("s", slots=(1,))]
    worker, slots = a_worker(children=TWO_STAGES), []
    events = [Woke(), arrived(a_plan(leases)), loaded("locate/v")]
    told(worker, *[(event, 0.0) for event in events])
    for number in range(4):
        worker.handle(arrived(a_plan(leases, epoch=2 + number)), 0.1)
        batch_of(worker, arrived(a_work(number, task="locate"), number))
        effects = worker.handle(inferred(number + 1, [b"a"]), 0.2)
        slots += [e.slot for e in effects if isinstance(e, Send) and e.topic == "work.read"]
    assert slots == [0, 1, 0, 1]


def test_an_exception_as_one_output_fails_that_item_only() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)), arrived(a_work(1), 1))
    assert told(worker, (inferred(1, ValueError("smudged"), "b"), 0.2)) == [
        to_egress(0, ended(FAILED, "smudged", path=(a_hop(batch=2),))),
        to_egress(1, answered("b", batch=2)),
        done(0, 2),
    ]


def test_an_output_that_cannot_be_sent_fails_that_item_only() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)), arrived(a_work(1), 1))
    first, second, commit = told(worker, (inferred(1, object(), "b"), 0.2))
    assert isinstance(first, Send)
    assert isinstance(first.record, Work)
    (item,) = first.record.items
    assert item.end is not None
    assert (item.end.outcome, item.value) == (FAILED, None)
    assert [second, commit] == [to_egress(1, answered("b", batch=2)), done(0, 2)]


def test_a_wrong_number_of_outputs_has_each_item_run_alone_and_fails_those_that_are_wrong() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)), arrived(a_work(1), 1))
    assert told(worker, (inferred(1, "a"), 0.2)) == [Infer(2, "read/v", (b"x",))]
    reason = "read/v returned 0 outputs for 1 inputs"
    first, committed, infer = told(worker, (inferred(2), 0.2))
    assert (first, committed) == (to_egress(0, ended(FAILED, reason)), done(0, 1))
    assert infer == Infer(3, "read/v", (b"x",))
    assert [type(effect) for effect in told(worker, (inferred(3, "b"), 0.2))] == [Send, Assign]


def test_one_bad_input_does_not_fail_its_neighbours_and_what_comes_later_waits() -> None:
    worker = serving()
    batch_of(worker, *(arrived(a_work(n), n) for n in range(3)))
    worker.handle(arrived(a_work(3), 3), 0.1)
    outcomes = {}
    effects = told(worker, (Failed(1, "ValueError: bad"), 0.2))
    while jobs := [effect for effect in effects if isinstance(effect, Infer)]:
        (job,) = jobs
        bad = job.job == 3  # the second of the three that were tried together
        event = Failed(job.job, "ValueError: bad") if bad else inferred(job.job, "good")
        effects = told(worker, (event, 0.2))
        for work in sent(effects, "outputs"):
            outcomes[work.origin.offset] = work.items[0].end.outcome
    assert outcomes == {0: ANSWERED, 1: FAILED, 2: ANSWERED, 3: ANSWERED}


def test_an_item_that_ran_when_the_process_died_runs_alone_and_fails_after_two() -> None:
    once = serving(strikes={"0-1@0.0/": 1})
    (first,) = batch_of(once, *(arrived(a_work(n), n) for n in range(3)))
    deadline_s = a_work(0).deadline_s
    assert first == Infer(1, "read/v", (b"x",), items=("0-0@0.0/",), deadlines=(deadline_s,))
    (second,) = inferring(told(once, (inferred(1, "a"), 0.2)))
    assert second.items == ("0-1@0.0/",)
    twice = serving(strikes={"0-1@0.0/": 2})
    effects = [e for n in range(3) for e in twice.handle(arrived(a_work(n), n), 0.1)]
    (work,) = sent(effects, "outputs")
    (item,) = work.items
    assert (work.origin.offset, item.end.outcome) == (1, FAILED)
    assert item.end.reason == "read/v crashed the process of w 2 times with it"
    (batch,) = inferring(told(twice, (Woke(), 0.1)))
    assert batch.items == ("0-0@0.0/", "0-2@0.0/")


def test_the_drop_of_an_item_whose_process_died_says_so() -> None:
    late = a_work(0, deadline_s=0.15)
    worker = serving(a_lease(batch=1), strikes={"0-0@0.0/": 1})
    (work,) = sent(batch_of(worker, arrived(late), now=0.2), "outputs")
    assert work.items[0].end.outcome == DROPPED
    assert work.items[0].end.reason == (
        "read/v would finish 50 ms after the deadline; an earlier process of w died while it ran"
    )


def test_an_operator_that_raises_fails_its_batch_and_the_next_one_runs() -> None:
    worker = serving(a_lease(batch=1))
    batch_of(worker, arrived(a_work(0)), arrived(a_work(1), 1))
    reason = "read/v raised ValueError: no"
    assert told(worker, (Failed(1, reason), 0.2)) == [
        to_egress(0, ended(FAILED, reason)), done(0, 1), Infer(2, "read/v", (b"x",)),
    ]  # fmt: skip


def hanging() -> Worker:
    """Return a worker whose only batch began at 0.1 s; its query closes at 2 s."""
    worker = serving(a_lease(batch=1))
    batch_of(worker, arrived(a_work(0)))
    return worker


CLOSES_S = a_work(0).deadline_s + a_pipeline().grace_s


def test_a_batch_that_hangs_fails_its_items_with_the_cause_before_egress_closes_them() -> None:
    worker = hanging()
    assert quiet(worker.handle(Woke(), CLOSES_S - 0.13)) == []
    effects = quiet(worker.handle(Woke(), CLOSES_S - 0.1))
    reason = f"read/v has been running one batch of 1 for {CLOSES_S - 0.2:.1f} s on w"
    assert effects == [to_egress(0, ended(FAILED, reason)), done(0, 1)]
    assert quiet(worker.handle(Woke(), CLOSES_S + 5.0)) == []


def test_a_worker_whose_batch_hangs_does_not_report_ready() -> None:
    worker = hanging()
    worker.handle(Woke(), CLOSES_S)
    (report,) = reports(worker.handle(Woke(), CLOSES_S + 1.0))
    assert report.state == NodeState.STUCK
    assert report.error.startswith("read/v has been running one batch of 1 for")


@pytest.mark.parametrize("end", [inferred(1, b"y"), Failed(1, "no")])
def test_a_worker_whose_hanging_batch_ends_after_all_goes_on(end: Event) -> None:
    worker = hanging()
    worker.handle(Woke(), CLOSES_S)
    effects = quiet(worker.handle(end, CLOSES_S + 1.0))
    assert b"y" not in [
        item.value
        for send in effects
        if isinstance(send, Send)
        for item in getattr(send.record, "items", ())
    ]
    (report,) = reports(worker.handle(Woke(), CLOSES_S + 2.0))
    assert report.state == "ready"


def test_a_failure_of_a_job_that_is_not_running_is_of_no_interest() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)))
    assert worker.handle(Failed(7, "no"), 0.2) == []


# ---------------------------------------------------------------------- slots


def test_waiting_items_of_a_lost_slot_are_forgotten() -> None:
    worker = serving(a_lease(slots=(0, 3), batch=1))
    events = [arrived(a_work(0), 0, 3), arrived(a_work(1), 1, 3), arrived(a_work(2), 7, 0)]
    assert batch_of(worker, *events) == [Infer(1, "read/v", (b"x",))]
    plan = arrived(a_plan([a_lease(slots=(0,), batch=1)], epoch=2))
    assert told(worker, (plan, 0.1)) == [Assign("work.read", (0,), ())]
    # The running batch is sent on and counted once by egress; another worker commits its offset;
    # the next batch is from the slot that the worker kept.
    first = told(worker, (inferred(1, "a"), 0.2))
    assert [type(effect) for effect in first] == [Send, Infer]
    assert told(worker, (inferred(2, "b"), 0.3))[1:] == [done(0, 8)]


def test_work_from_a_slot_that_is_not_its_own_is_ignored() -> None:
    assert serving().handle(arrived(a_work(0), 0, slot=2), 0.1) == []


def test_a_slot_that_comes_back_is_read_again_from_the_committed_offset() -> None:
    worker = serving(a_lease(slots=(0, 3)))
    batch_of(worker, arrived(a_work(0), 4, 3))
    lost, back = a_plan([a_lease(slots=(0,))], 2), a_plan([a_lease(slots=(0, 3))], 3)
    worker.handle(arrived(lost), 0.1)
    worker.handle(arrived(back), 0.1)
    worker.handle(arrived(a_work(0), 4, 3), 0.1)
    # The first run does not finish the record that the second reading started.
    (send, again) = told(worker, (inferred(1, "a"), 0.2))
    assert isinstance(send, Send)
    assert again == Infer(2, "read/v", (b"x",))
    assert told(worker, (inferred(2, "a"), 0.3))[1:] == [done(3, 5)]


def test_a_lease_of_another_task_leaves_the_old_slots_and_loads_its_variant() -> None:
    worker = serving(a_lease(task="locate"), children=TWO_STAGES)
    told(worker, (arrived(a_work(0, task="locate")), 0.1))
    plan = a_plan([a_lease(task="read", slots=(2,))], epoch=2)
    assert told(worker, (arrived(plan), 0.1)) == [
        Assign("work.locate", ()), Assign("work.read", (2,), ()), Load("read/v"),
    ]  # fmt: skip
    assert told(worker, (Woke(), 0.1)) == []


def test_a_batch_that_runs_while_the_lease_goes_is_sent_on_uncommitted() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)))
    assert told(worker, (arrived(a_plan([], 2)), 0.1)) == [Assign("work.read", ())]
    (send,) = told(worker, (inferred(1, "a"), 0.2))
    assert isinstance(send, Send)


def test_a_worker_whose_process_is_to_end_says_so_at_once_and_goes_on_working() -> None:
    worker = serving()
    drain = Command(id="", pipeline="p", action="drain", arguments={"target": "w"})
    (send,) = worker.handle(arrived(drain, topic=COMMANDS), 0.05)
    assert isinstance(send, Send)
    assert isinstance(send.record, Report)
    assert (send.topic, send.record.state) == (REPORTS, "leaving")
    assert batch_of(worker, arrived(a_work(0))) == [Infer(1, "read/v", (b"x",))]


def test_a_draining_worker_finishes_what_its_slots_hold() -> None:
    worker = serving()
    worker.handle(arrived(a_plan([a_lease(open_slot=-1)], epoch=2)), 0.1)
    assert batch_of(worker, arrived(a_work(0))) == [Infer(1, "read/v", (b"x",))]
    (report,) = reports(worker.handle(Woke(), 0.3))
    assert (report.state, report.epoch) == ("draining", 2)
    assert report.slots == (SlotState("read", 0, -1, 1),)
    told(worker, (inferred(1, "a"), 0.4))
    (report,) = reports(worker.handle(Woke(), 0.6))
    assert report.slots == (SlotState("read", 0, 1, 0),)


# ---------------------------------------------------------------------- backpressure


def test_it_stops_reading_when_it_holds_too_much_and_goes_on_at_half_of_it() -> None:
    worker = serving(a_lease(slots=(0, 3), batch=1))
    flood = [arrived(a_work(i), i) for i in range(HELD_BATCHES + 1)]
    assert told(worker, *[(event, 0.1) for event in flood]) == [Assign("work.read", paused=(0, 3))]
    assert told(worker, (Woke(), 0.1)) == [Infer(1, "read/v", (b"x",))]
    for job in range(1, 1 + HELD_BATCHES // 2):
        effects = told(worker, (inferred(job, "a"), 0.1))
    assert effects[-1] == Assign("work.read", paused=())
    assert told(worker, (inferred(job + 1, "a"), 0.1))[-1] == Infer(job + 2, "read/v", (b"x",))


def test_a_slot_that_comes_while_it_is_full_comes_paused() -> None:
    worker = serving(a_lease(batch=1))
    for offset in range(HELD_BATCHES + 1):
        worker.handle(arrived(a_work(offset), offset), 0.1)
    plan = arrived(a_plan([a_lease(slots=(0, 3), batch=1)], epoch=2))
    assert told(worker, (plan, 0.1))[0] == Assign("work.read", (0, 3), (0, 3))


def test_a_full_worker_that_loses_its_queue_with_a_slot_reads_the_others() -> None:
    worker = serving(a_lease(slots=(0, 3), batch=1))
    for offset in range(HELD_BATCHES + 1):
        worker.handle(arrived(a_work(offset), offset), 0.1)
    plan = arrived(a_plan([a_lease(slots=(3,), batch=1)], epoch=2))
    assert told(worker, (plan, 0.1)) == [
        Assign("work.read", (3,), (3,)), Assign("work.read", paused=()),
    ]  # fmt: skip


def test_a_full_worker_drops_what_is_past_saving_and_goes_on_reading() -> None:
    worker = serving(a_lease(batch=1))
    worker.handle(arrived(a_work(0, deadline_s=9.0)), 0.1)
    worker.handle(Woke(), 0.1)  # it is running, so new items wait
    late = [arrived(a_work(i, deadline_s=0.3), i) for i in range(1, 1 + HELD_BATCHES)]
    assert told(worker, *[(event, 0.1) for event in late]) == []
    effects = told(worker, (arrived(a_work(9, deadline_s=9.0), 9), 0.4))
    gone = [e.record.items[0].end.outcome for e in effects if isinstance(e, Send)]
    assert gone == [DROPPED] * HELD_BATCHES
    assert not any(isinstance(e, Assign) and e.paused for e in effects)
    assert told(worker, (inferred(1, "a"), 0.5))[-1] == Infer(2, "read/v", (b"x",))


def test_a_full_worker_whose_items_are_all_past_saving_drops_them_all() -> None:
    worker = serving(a_lease(batch=1))
    worker.handle(arrived(a_work(0, deadline_s=9.0)), 0.1)
    worker.handle(Woke(), 0.1)  # it is running, so new items wait
    late = [arrived(a_work(i, deadline_s=0.3), i) for i in range(1, 2 + HELD_BATCHES)]
    effects = told(worker, *[(event, 0.1) for event in late[:-1]], (late[-1], 0.4))
    assert len(sent(effects, "outputs")) == HELD_BATCHES + 1
    assert told(worker, (inferred(1, "a"), 0.5))[-1] == done(0, HELD_BATCHES + 2)


@pytest.mark.parametrize(("deadline_s", "late"), [(0.37, True), (0.375, False), (0.45, False)])
def test_a_full_worker_drops_items_that_a_batch_of_one_from_now_on_would_end_too_late(
    deadline_s: float, late: bool
) -> None:
    """An item takes 0.25 s on the variant that serves, however slow the next one is."""
    took_s = {"read/v": 0.125, "read/w": 5.0}
    worker = serving(a_lease(batch=1), latency=lambda v, n: took_s[v] * (1 + n))
    worker.handle(arrived(a_plan([a_lease(variant="w", batch=1)], epoch=2)), 0.05)
    worker.handle(arrived(a_work(0, deadline_s=9.0)), 0.05)
    worker.handle(Woke(), 0.05)
    few = [arrived(a_work(each, deadline_s=deadline_s), each) for each in range(1, 10)]
    effects = told(worker, *[(event, 0.125) for event in few])
    assert len(sent(effects, "outputs")) == (9 if late else 0)
    assert any(isinstance(each, Assign) and each.paused for each in effects) is not late


def test_a_worker_that_is_not_full_drops_nothing_before_it_takes_a_batch() -> None:
    worker = serving(a_lease(batch=1))
    worker.handle(arrived(a_work(0, deadline_s=9.0)), 0.1)
    worker.handle(Woke(), 0.1)
    for offset in range(1, 1 + HELD_BATCHES):
        worker.handle(arrived(a_work(offset, deadline_s=0.3), offset), 0.1)
    effects = told(worker, (arrived(a_plan([a_lease(batch=1)], epoch=2)), 0.4))
    assert effects == [Assign("work.read", (0,), ())]


# ---------------------------------------------------------------------- what cannot be understood


def test_a_garbled_record_becomes_a_dead_letter_and_is_done() -> None:
    garbled = Garbled(b"\xff", "not Avro", (("h", b"v"),))
    letter = DeadLetter(
        topic="work.read", partition=0, offset=6, reason="not Avro", value=b"\xff",
        headers=(("h", b"v"),), node="w", at_s=0.1,
    )  # fmt: skip
    event, worker = Arrived(garbled, "work.read", 0, 6, 0.0), serving()
    assert worker.handle(event, 0.1) == [Send("dead-letters", letter, key="w"), done(0, 7)]
    assert worker.handle(event, 0.1) == []  # read again


def test_a_garbled_record_does_not_pass_work_that_is_still_open() -> None:
    worker = serving()
    batch_of(worker, arrived(a_work(0)))
    effects = worker.handle(Arrived(Garbled(b"", "empty"), "work.read", 0, 1, 0.0), 0.1)
    assert [type(effect) for effect in effects] == [Send]
    assert told(worker, (inferred(1, "a"), 0.2))[1:] == [done(0, 2)]


def test_a_garbled_plan_says_nothing_about_the_slots_of_work() -> None:
    worker = serving()
    assert worker.handle(Arrived(Garbled(b"", "empty"), "plans", 0, 900, 0.0), 0.1) == []
    assert batch_of(worker, arrived(a_work(0))) == [Infer(1, "read/v", (b"x",))]


def test_events_and_records_of_others_are_ignored() -> None:
    worker = serving()
    (report,) = reports(serving().handle(Woke(), 0.3))
    assert worker.handle(Arrived(report, "reports", 0, 0, 0.0), 0.1) == []


# ---------------------------------------------------------------------- reports


def test_it_reports_what_it_counted_every_200_ms() -> None:
    worker = serving(a_lease(batch=2), latency=lambda variant, batch: 0.0)
    late = a_work(2, deadline_s=0.05)
    batch_of(worker, arrived(late), arrived(a_work(0), 1), arrived(a_work(1), 2))
    told(worker, (inferred(1, "a", ValueError("no"), started_s=0.1, finished_s=0.15), 0.15))
    assert worker.handle(Woke(), 0.19) == []
    effects = worker.handle(Woke(), 0.2)
    assert reports(effects) == [Report(
        node="w", role="worker", pipeline="p", epoch=1, incarnation=0.0, sent_s=0.2,
        state="ready", device="cpu", task="read", variant="v", slots=(SlotState("read", 0, 3, 0),),
        file=fingerprint(a_pipeline()), counts={
            **DECLARED,
            "load_s/read/v": 1.0, "arrived/read/v": 3, "dropped/read/v": 1, "finished/read/v": 2,
            "batches/read/v": 1, "busy_s/read/v": pytest.approx(0.05), "failed/read/v": 1,
        },
    )]  # fmt: skip
    assert effects[-1] == Wake(0.4)


def test_it_counts_what_its_batches_are_charged() -> None:
    worker = serving()
    for number, charged_s in enumerate((0.02, 0.03)):
        batch_of(worker, arrived(a_work(number), number))
        told(worker, (Inferred(number + 1, ("a",), 0.1, 0.2, charged_s), 0.2))
    (report,) = reports(worker.handle(Woke(), 0.3))
    assert report.counts["charged_s/read/v"] == pytest.approx(0.05)


def test_it_counts_the_children_that_it_made() -> None:
    worker = serving(a_lease(task="locate"), children=TWO_STAGES)
    batch_of(worker, arrived(a_work(0, task="locate")))
    told(worker, (inferred(1, [1, 2, 3]), 0.2))
    (report,) = reports(worker.handle(Woke(), 0.3))
    assert report.counts["children/locate/v/read"] == 3
    assert "failed/locate/v" not in report.counts


# ---------------------------------------------------------------------- patience


def patient(**policy: Any) -> Worker:
    """Return a worker that may wait to fill batches of 4, which take 20 ms: budgets are 42.8 ms."""
    rules = {"batching": "patient", **policy}
    pipeline = a_pipeline(policies=(Policy(name="static", **rules),))
    worker = Worker("w", pipeline, "cpu", incarnation=0.0, latency=lambda v, n: 0.02)
    worker.handle(Woke(), 0.0)
    worker.handle(arrived(a_plan([a_lease()])), 0.0)
    worker.handle(loaded("read/v"), 0.0)
    return worker


def test_a_patient_worker_waits_for_more_until_the_head_can_wait_no_longer() -> None:
    worker = patient()
    assert batch_of(worker, arrived(a_work(0)), now=0.001) == [Wake(pytest.approx(0.0228))]
    assert batch_of(worker, arrived(a_work(1), 1), now=0.01) == [Wake(pytest.approx(0.0228))]
    (infer,) = inferring(worker.handle(Woke(), 0.0229))
    assert len(infer.values) == 2
    done = worker.handle(inferred(1, "a", "b", started_s=0.0229, finished_s=0.0429), 0.0429)
    hops = [hop for e in done if isinstance(e, Send) and isinstance(e.record, Work)
            for item in e.record.items for hop in item.path]  # fmt: skip
    assert {hop.released for hop in hops} == {"due"}


@pytest.mark.parametrize("batching", ["idle", "patient"])
def test_a_batch_waits_no_longer_than_the_policys_delay(batching: str) -> None:
    worker = patient(batching=batching, batch_delay_s=0.005)
    assert batch_of(worker, arrived(a_work(0)), now=0.001) == [Wake(pytest.approx(0.006))]
    assert batch_of(worker, arrived(a_work(1), 1), now=0.004) == [Wake(pytest.approx(0.006))]
    (infer,) = inferring(worker.handle(Woke(), 0.006))
    assert len(infer.values) == 2


def test_a_delay_beyond_the_budget_is_the_budget() -> None:
    worker = patient(batching="idle", batch_delay_s=5.0)
    assert batch_of(worker, arrived(a_work(0)), now=0.001) == [Wake(pytest.approx(0.0228))]


def test_a_full_batch_does_not_wait() -> None:
    worker = patient()
    (infer,) = inferring(batch_of(worker, *(arrived(a_work(n), n) for n in range(4)), now=0.001))
    assert len(infer.values) == 4


def test_a_variant_that_failed_to_load_is_tried_again_ever_later() -> None:
    worker = a_worker()
    told(worker, (Woke(), 0.0), (arrived(a_plan([a_lease()])), 0.0))
    tried_s = [0.0]
    worker.handle(Failed("read/v", "no memory is left"), 0.0)
    for tenth in range(1, 2000):
        if Load("read/v") in worker.handle(Woke(), tenth / 10):
            tried_s.append(tenth / 10)
            worker.handle(Failed("read/v", "no memory is left"), tenth / 10)
    pauses_s = [round(after - before, 1) for before, after in pairwise(tried_s)]
    assert pauses_s == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    worker.handle(Woke(), 300.0)
    worker.handle(loaded("read/v"), 300.1)
    (report,) = reports(worker.handle(Woke(), 301.0))
    assert (report.state, report.error) == (NodeState.READY, "")


# ---------------------------------------------------------------------- reloads


def a_reload(epoch: int, number: int = 1) -> Arrived:
    settings = Settings(policy="static", slo_s=SLO_S, reloads={"read/v": number})
    return arrived(a_plan([a_lease()], epoch, settings=settings))


FRESH = Load("read/v", fresh=True)


def test_a_reload_loads_the_serving_variant_anew_while_it_serves() -> None:
    worker = serving()
    assert FRESH in worker.handle(a_reload(2), 0.1)
    assert batch_of(worker, arrived(a_work(0))) == [Infer(1, "read/v", (b"x",))]
    (report,) = reports(worker.handle(Woke(), 0.4))
    assert report.state == NodeState.READY
    worker.handle(loaded("read/v"), 0.5)
    (report,) = reports(worker.handle(Woke(), 0.7))
    assert report.counts["reloaded/read/v"] == 1


def test_a_reload_happens_once_whatever_plans_follow() -> None:
    worker = serving()
    worker.handle(a_reload(2), 0.1)
    assert FRESH not in worker.handle(a_reload(3), 0.2)
    worker.handle(loaded("read/v"), 0.3)
    assert FRESH not in worker.handle(a_reload(4), 0.4)


def test_a_reload_given_during_one_follows_it() -> None:
    worker = serving()
    worker.handle(a_reload(2), 0.1)
    assert FRESH not in worker.handle(a_reload(3, number=2), 0.2)
    assert FRESH in worker.handle(loaded("read/v"), 0.3)


def test_code_that_cannot_be_loaded_leaves_the_earlier_one_serving_and_is_reported() -> None:
    worker = serving()
    worker.handle(a_reload(2), 0.1)
    worker.handle(Failed("read/v", "read/v cannot be loaded: SyntaxError"), 0.2)
    (report,) = reports(worker.handle(Woke(), 0.4))
    assert report.state == NodeState.READY
    assert report.error == "read/v cannot be loaded: SyntaxError"
    assert report.counts["reload_failed/read/v"] == 1
    assert FRESH in worker.handle(a_reload(3, number=2), 0.5)
    worker.handle(loaded("read/v"), 0.6)
    (report,) = reports(worker.handle(Woke(), 0.8))
    assert report.error == ""


def test_a_reload_during_the_first_load_follows_it() -> None:
    worker = a_worker()
    told(worker, (Woke(), 0.0), (arrived(a_plan([a_lease()])), 0.0))
    assert FRESH not in worker.handle(a_reload(2), 0.1)
    assert FRESH in worker.handle(loaded("read/v"), 0.2)


def test_a_worker_that_starts_after_a_reload_loads_the_code_of_now_once() -> None:
    worker = a_worker()
    assert FRESH in told(worker, (Woke(), 0.0), (a_reload(2), 0.0))
    assert FRESH not in worker.handle(loaded("read/v"), 0.2)


@pytest.mark.parametrize("loads", [True, False])
def test_a_lease_that_asks_for_what_is_being_loaded_anew_is_served_by_that_load(
    *, loads: bool
) -> None:
    worker = serving(children={"locate": ["read"], "read": []})
    worker.handle(a_reload(2), 0.1)
    worker.handle(arrived(a_plan([a_lease(task="locate")], 3)), 0.2)
    assert Load("read/v") in worker.handle(arrived(a_plan([a_lease()], 4)), 0.3)
    ended = loaded("read/v") if loads else Failed("read/v", "no memory")  # one end for both
    worker.handle(ended, 0.4)
    (report,) = reports(worker.handle(Woke(), 0.7))
    assert report.state == (NodeState.READY if loads else NodeState.FAILED)


@pytest.mark.parametrize(("waiting", "ran", "dropped"), [(1, 1, 0), (2, 2, 0), (3, 1, 2)])
def test_observed_time_to_egress_drops_only_items_that_others_can_replace(
    waiting: int, ran: int, dropped: int
) -> None:
    """Batches have two items. All but the third have 0.2 s left; most took 0.5 s to egress."""
    lease = a_lease(batch=2)
    worker = serving(lease)
    plan = a_plan([lease, a_lease("r", slots=(5,))], 9, to_egress_s={"read": 0.5})
    worker.handle(arrived(plan), 0.1)
    works = [arrived(a_work(n, deadline_s=0.3 if n < 2 else 5.0), n) for n in range(waiting)]
    effects = batch_of(worker, *works)
    assert [len(each.values) for each in effects if isinstance(each, Infer)] == [ran]
    assert len([each for each in effects if isinstance(each, Send)]) == dropped
