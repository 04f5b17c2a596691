"""The live driver when slots change owners, plans are read back, or the process stood still."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import pytest

from schemas.codec.single_object import encode
from schemas.effects import (
    PLANS,
    Arrived,
    Assign,
    Effect,
    Event,
)
from schemas.records import Command, Plan, Record, Work
from streams.codecs.wire import Fetched
from streams.fencing import StoodStill
from streams.live.inbox import FetchedBatch, Inbox
from streams.live.live_driver import Live
from streams.live.slot_readers import CATCH_UP_S, LogWentBack
from tests.builders import a_pipeline, a_plan, a_work
from tests.memory_transport import MemoryTransport, VirtualClock

WORK = "p.work.read"
PLACE = (WORK, 0)


class Scripted:
    """A node that reads the slots scripted for a plan's epoch and records its work."""

    def __init__(self, script: Mapping[int, tuple[int, ...]]) -> None:
        self._script = script
        self.seen: list[int] = []
        self.epochs: list[int] = []

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if not isinstance(event, Arrived):
            return [Assign(PLANS, (0,))]
        if isinstance(event.record, Work):
            self.seen.append(event.offset)
        if isinstance(event.record, Plan):
            self.epochs.append(event.record.epoch)
        if isinstance(event.record, Plan) and event.record.epoch in self._script:
            return [Assign("work.read", self._script[event.record.epoch])]
        return []


class World:
    """Return a driver with these nodes; the test puts fetches into its inbox."""

    def __init__(self, **nodes: Scripted) -> None:
        self.clock = VirtualClock()
        self.transport = MemoryTransport(a_pipeline(), self.clock, 0.0)
        self._inbox = Inbox()
        live = Live(a_pipeline(), nodes, self.transport, clock=self.clock, inbox=self._inbox)
        self._live = live
        self.leave = live.leave
        live.start()

    @property
    def has_left(self) -> bool:
        return self._live.has_left

    def fetched(self, assigned: int, *records: Fetched) -> None:
        self._inbox.put(FetchedBatch(assigned, list(records)))
        self._live.turn()


def on_work(offset: int) -> Fetched:
    return fetched(WORK, offset, a_work(offset))


def on_plans(epoch: int) -> Fetched:
    return fetched("headrace.plans", epoch, a_plan(epoch=epoch))


def fetched(topic: str, offset: int, record: Record) -> Fetched:
    return Fetched(topic, 0, offset, 0.0, None, encode(record), None)


def test_what_was_read_of_a_slot_before_it_was_lost_and_came_back_is_not_taken_for_news() -> None:
    worker = Scripted({1: (0,), 2: (), 3: (0,)})
    world = World(worker=worker)
    world.fetched(1, on_plans(1))
    world.fetched(2, on_work(5), on_work(6))
    assert worker.seen == [5, 6]
    # One fetch, read under the first lease: the slot leaves and returns; 7 is of the old reading.
    world.fetched(2, on_plans(2), on_plans(3), on_work(7))
    world.fetched(3, on_work(8))
    assert worker.seen == [5, 6]
    world.fetched(4, on_work(5), on_work(6), on_work(7))
    assert worker.seen == [5, 6, 5, 6, 7]


@pytest.mark.parametrize("new_owner_first", [True, False])
def test_a_slot_that_moves_between_nodes_of_one_process_is_read_from_the_committed_offset(
    new_owner_first: bool,
) -> None:
    old, new = Scripted({1: (0,), 2: ()}), Scripted({2: (0,)})
    world = World(**{"a": new, "b": old} if new_owner_first else {"a": old, "b": new})
    world.fetched(1, on_plans(1))
    for offset in range(3):
        world.transport.send(WORK, encode(a_work(offset)), 0, "")
    assert [each.offset for each in world.transport.landed()] == [0, 1, 2]
    world.transport.committed[PLACE] = (1, "")
    world.fetched(1, on_plans(2))
    again = world.transport.landed()
    assert [each.offset for each in again] == [1, 2]
    world.fetched(world.transport.assigned, *again)
    assert (old.seen, new.seen) == ([], [1, 2])


class Leaver(Scripted):
    """It returns its slots with the first plan after the request to leave."""

    asked = False

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Arrived) and isinstance(event.record, Command):
            assert (event.record.action, event.record.arguments) == ("drain", {"target": "worker"})
            self.asked = True
        return super().handle(event, now)


def test_a_process_that_leaves_ends_when_its_slots_are_taken_over() -> None:
    worker = Leaver({1: (0,), 2: ()})
    world = World(worker=worker)
    world.fetched(1, on_plans(1))
    world.leave(5.0)
    world.fetched(2, on_work(0))
    assert (worker.asked, worker.seen, world.has_left) == (True, [0], False)
    world.fetched(2, on_plans(2))
    assert world.has_left


def test_a_process_whose_slots_nobody_takes_ends_after_its_patience() -> None:
    world = World(worker=Leaver({1: (0,)}))
    world.fetched(1, on_plans(1))
    world.leave(5.0)
    world.clock.now = 5.0
    assert not world.has_left
    world.clock.now = 5.1
    assert world.has_left


def test_new_reader_gets_only_the_newest_plan_of_a_topic() -> None:
    worker = Scripted({number: (number % 4,) for number in range(1, 31)})
    clock = VirtualClock()
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    for epoch in (*range(1, 20), 25, *range(20, 25)):
        transport.send("headrace.plans", encode(a_plan(epoch=epoch)), 0, "")
        transport.send("headrace.plans", encode(a_plan(epoch=90, pipeline="other")), 0, "")
    inbox = Inbox()
    live = Live(a_pipeline(), {"worker": worker}, transport, clock=clock, inbox=inbox)
    live.start()
    landed = transport.landed()
    for part in (landed[:7], landed[7:]):
        inbox.put(FetchedBatch(transport.assigned, part))
        live.turn()
    assert worker.epochs == [25]
    transport.send("headrace.plans", encode(a_plan(epoch=26)), 0, "")
    inbox.put(FetchedBatch(transport.assigned, transport.landed()))
    live.turn()
    assert worker.epochs == [25, 26]


def test_a_past_whose_last_offsets_hold_no_record_is_delivered_after_a_while() -> None:
    worker = Scripted({})
    clock = VirtualClock()
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    for epoch in (1, 2, 3):
        transport.send("headrace.plans", encode(a_plan(epoch=epoch)), 0, "")
    inbox = Inbox()
    live = Live(a_pipeline(), {"worker": worker}, transport, clock=clock, inbox=inbox)
    live.start()
    inbox.put(FetchedBatch(transport.assigned, transport.landed()[:2]))
    live.turn()
    assert worker.epochs == []
    clock.now = CATCH_UP_S + 0.1
    inbox.put(None)
    live.turn()
    assert worker.epochs == [2]


def test_a_slot_whose_offsets_go_back_ends_the_role_with_a_sentence() -> None:
    worker = Scripted({1: (0,)})
    world = World(worker=worker)
    world.fetched(1, on_plans(1))
    world.fetched(2, on_work(5), on_work(6))
    with pytest.raises(LogWentBack, match=r"slot 0 of topic p\.work\.read went back from offset 7"):
        world.fetched(2, on_work(2))
    assert worker.seen == [5, 6]


def test_plans_may_go_back_since_their_epochs_tell_them_apart() -> None:
    worker = Scripted({1: (0,)})
    world = World(worker=worker)
    world.fetched(1, on_plans(5))
    world.fetched(1, on_plans(2))  # the topic was recreated
    assert worker.epochs == [5, 2]


def test_a_process_that_stood_still_does_nothing_that_another_may_have_done() -> None:
    worker, clock, inbox = Scripted({}), VirtualClock(), Inbox()
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    nodes = {"worker": worker}
    live = Live(a_pipeline(), nodes, transport, clock=clock, inbox=inbox, fence_s=5.0)
    live.start()
    for passed_s in (0.0, 5.0):
        clock.now += passed_s
        inbox.put(None)
        live.turn()
    clock.now += 5.1
    inbox.put(FetchedBatch(1, [on_plans(7)]))
    with pytest.raises(StoodStill, match=r"this process stood still for 5\.1 s; another may have"):
        live.turn()
    assert worker.epochs == []


class Stalls(Scripted):
    """A node whose process is suspended while it handles the plan of an epoch."""

    def __init__(self, clock: VirtualClock, epoch: int, seconds: float) -> None:
        super().__init__({})
        self._clock, self._epoch, self._seconds = clock, epoch, seconds

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects = super().handle(event, now)
        if self.epochs[-1:] == [self._epoch]:
            self._clock.now += self._seconds
        return effects


@pytest.mark.parametrize("seconds", [4.9, 5.1])
def test_a_process_that_stood_still_within_a_turn_ends_too(seconds: float) -> None:
    clock, inbox = VirtualClock(), Inbox()
    worker = Stalls(clock, 7, seconds)
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    nodes = {"worker": worker}
    live = Live(a_pipeline(), nodes, transport, clock=clock, inbox=inbox, fence_s=5.0)
    live.start()
    for records in ([on_plans(7)], [on_plans(8)]):
        inbox.put(FetchedBatch(1, records))
    with pytest.raises(StoodStill) if seconds > 5.0 else nullcontext():
        live.turn()
    assert worker.epochs == ([7] if seconds > 5.0 else [7, 8])
