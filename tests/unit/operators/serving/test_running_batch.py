"""The running batch of a worker and the slots of its lease, which follow their state tables."""

import pytest
from msgspec import structs

from control.state_machine import ImpossibleTransition
from operators.offset_tracker import Progress
from operators.serving.deadline_queue import MOST_CRASHES, Ticket, crashing
from operators.serving.leased_slots import TRANSITIONS as SLOTS
from operators.serving.leased_slots import LeasedSlots, Reading, ReadingChange
from operators.serving.running_batch import BatchState, NextBatch, RunningBatch
from schemas.effects import Assign, Send
from schemas.records import FAILED, Completion, Item, Lease, Origin, Work
from tests.builders import a_lease, a_pipeline


def ticket(deadline_s: float = 1.0) -> Ticket:
    item = Item(branch=(0,), credit=1.0, path=(), value=b"x")
    work = Work(
        query_id="q", origin=Origin(0, 7), task="t", created_s=0.0, deadline_s=deadline_s,
        epoch=1, items=(item,),
    )  # fmt: skip
    return Ticket(item, work, 0, 3, Progress(), 0.0)


def a_batch() -> NextBatch:
    return NextBatch([ticket()], [], "t/a", 1, 1.0, "full")


def running() -> RunningBatch:
    batch = RunningBatch("w0", a_pipeline())
    batch.start(a_batch(), 0.5)
    return batch


def test_a_second_batch_cannot_start_while_one_runs() -> None:
    batch = running()
    with pytest.raises(ImpossibleTransition, match="the batch of w0 is running"):
        batch.start(a_batch(), 0.6)


def test_a_batch_hangs_once_and_frees_the_device_when_it_ends() -> None:
    batch = running()
    assert not batch.hangs(grace_s=1.0, now=1.0)
    assert batch.hangs(grace_s=1.0, now=1.8)
    assert batch.state is BatchState.HANGING
    assert "for 1.3 s on w0" in batch.error
    assert not batch.hangs(grace_s=1.0, now=9.0)
    batch.end()
    assert (batch.state, batch.error) == (BatchState.IDLE, "")


def test_a_batch_hangs_as_egress_is_about_to_close_its_last_query() -> None:
    batch = RunningBatch("w0", a_pipeline())
    batch.start(NextBatch([ticket(1.0), ticket(3.0), ticket(2.0)], [], "t/a", 3, 1.0, "full"), 0.5)
    assert not batch.hangs(grace_s=2.0, now=4.69)
    assert batch.hangs(grace_s=2.0, now=4.71)  # 300 ms before 5 s


def test_a_completion_names_the_variant_of_the_batch_else_that_of_the_lease() -> None:
    lease, named = structs.replace(a_lease(variant="w"), type="fast"), []
    for batch in (RunningBatch("w0", a_pipeline()), running()):
        (send,) = batch.completions(lease, [ticket()], FAILED, 0.5, 0.1)
        assert isinstance(send, Send)
        assert isinstance(send.record, Completion)
        named.append(send.record.setting)
    assert named == ["read/w", "t/a"]


def test_every_state_of_reading_is_reached_and_left() -> None:
    assert set(SLOTS.values()) == set(Reading)
    assert {state for state, _ in SLOTS} == set(Reading)
    assert {change for _, change in SLOTS} == set(ReadingChange)


def test_items_of_several_crashes_fail_and_of_one_crash_run_alone() -> None:
    first, second = ticket(), ticket()
    assert crashing([first], {first.key: MOST_CRASHES}) == [first]
    assert crashing([second], {second.key: 1}) == []
    assert second.alone


def lease(task: str, slots: tuple[int, ...]) -> Lease:
    return Lease(worker="w0", task=task, variant="a", batch=1, slots=slots, open_slot=slots[0])


def test_paused_slots_stay_paused_for_the_task_and_not_for_another() -> None:
    slots = LeasedSlots("w0")
    assert slots.change(lease("t", (0,))) == [Assign("work.t", (0,), ())]
    assert slots.pause() == Assign("work.t", paused=(0,))
    assert slots.change(lease("t", (0, 1))) == [Assign("work.t", (0, 1), (0, 1))]
    assert slots.change(lease("u", (4,))) == [Assign("work.t", ()), Assign("work.u", (4,), ())]
    assert slots.reading.state is not Reading.PAUSED


def test_a_lost_slot_forgets_its_items_and_begins_anew() -> None:
    slots = LeasedSlots("w0")
    slots.change(lease("t", (0,)))
    before = slots.begin(0, 5, 1)
    assert before is not None
    assert slots.begin(0, 5, 1) is None
    slots.change(None)
    assert slots.states() == ()
    slots.change(lease("t", (0,)))
    assert slots.begin(0, 5, 1) not in (None, before)
