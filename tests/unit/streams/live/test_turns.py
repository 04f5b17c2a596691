"""When the live driver ends a turn with its transport."""

from collections.abc import Sequence
from typing import Any

import pytest

from schemas.effects import (
    Assign,
    Deliver,
    Done,
    Effect,
    Event,
    Infer,
    Inferred,
    Load,
    Loaded,
    Unload,
    Woke,
)
from streams.live.inbox import Inbox
from streams.live.live_driver import Live
from tests.builders import a_pipeline
from tests.memory_transport import MemoryTransport, VirtualClock

BEGINS = Infer(1, "read/a", (1,))
DONE = Assign("work.read", done=(Done(0, 5),))


class Node:
    """A node that requests the effects carried by an event, and records the events."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        self.seen.append(event)
        return event.outputs if isinstance(event, Inferred) else ()


class Counting(MemoryTransport):
    """A transport that counts the ended turns."""

    ended = 0

    def end_turn(self, now: float) -> None:
        self.ended += 1


class Batches:
    """An executor whose batches do not end."""

    def __init__(self) -> None:
        self.begun: list[Infer] = []

    def infer(self, effect: Infer) -> None:
        self.begun.append(effect)

    def load(self, effect: Load) -> None: ...
    def unload(self, effect: Unload) -> None: ...
    def look(self, now: float) -> None: ...
    def close(self) -> None: ...


def ended(*turns: Sequence[Any]) -> list[int]:
    """Return the number of ended turns after each of ``turns``, which have these effects."""
    clock, inbox, batches, counts = VirtualClock(), Inbox(), Batches(), []
    transport = Counting(a_pipeline(), clock, 0.0)
    live = Live(a_pipeline(), {"w": Node()}, transport, clock=clock, inbox=inbox)
    live.attach("w", batches)
    for effects in turns:
        inbox.put(("w", Inferred(1, tuple(effects), 0.0, 0.0)))
        live.turn()
        counts.append(transport.ended)
    assert len(batches.begun) == sum(effects.count(BEGINS) for effects in turns)
    return counts


def test_a_turn_that_only_began_a_batch_is_ended_with_the_next_one() -> None:
    assert ended([BEGINS], []) == [0, 1]


def test_a_turn_that_also_told_the_transport_something_is_ended_at_once() -> None:
    assert ended([BEGINS, DONE], [DONE], [DONE, BEGINS]) == [1, 2, 3]


def test_effects_of_an_earlier_turn_do_not_end_a_later_one() -> None:
    assert ended([DONE], [BEGINS], [BEGINS], [DONE]) == [1, 1, 1, 2]


def test_events_of_one_time_are_delivered_in_the_order_of_their_effects() -> None:
    clock, inbox, node = VirtualClock(), Inbox(), Node()
    live = Live(
        a_pipeline(), {"w": node}, MemoryTransport(a_pipeline(), clock, 0.0), clock=clock,
        inbox=inbox,
    )  # fmt: skip
    events = [Woke(), Loaded("read/v", 1.0), Woke(), Loaded("read/a", 1.0)]
    inbox.put(("w", Inferred(1, tuple(Deliver("w", event) for event in events), 0.0, 0.0)))
    live.turn()
    assert node.seen[1:] == events


def test_a_node_that_pauses_its_slots_resumes_none_of_another_node() -> None:
    clock, inbox = VirtualClock(), Inbox()
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    nodes = {"a": Node(), "b": Node()}
    live = Live(a_pipeline(), nodes, transport, clock=clock, inbox=inbox)
    for slot, name in enumerate(nodes):
        reads = Assign("work.read", (slot, slot + 2))
        inbox.put((name, Inferred(1, (reads,), 0.0, 0.0)))
    for slot, name in enumerate(nodes):
        inbox.put((name, Inferred(1, (Assign("work.read", paused=(slot,)),), 0.0, 0.0)))
    live.turn()
    for slot in range(4):
        transport.send("p.work.read", b"", slot, "")
    assert [fetched.slot for fetched in transport.landed()] == [2, 3]


class Watching:
    """An observer that records, for each event, how many turns had ended."""

    def __init__(self, transport: Counting) -> None:
        self._transport = transport
        self.saw_after: list[int] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.saw_after.append(self._transport.ended)


class Failing:
    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        raise ValueError("no such variant")


def test_observers_see_a_turn_once_its_effects_have_left() -> None:
    clock, inbox = VirtualClock(), Inbox()
    transport = Counting(a_pipeline(), clock, 0.0)
    watching = Watching(transport)
    nodes = {"w": Node()}
    live = Live(a_pipeline(), nodes, transport, clock=clock, inbox=inbox, observers=[watching])
    for _ in range(2):
        inbox.put(("w", Inferred(1, (DONE,), 0.0, 0.0)))
    live.turn()
    live.turn(wait_s=0.0)
    assert watching.saw_after == [1, 1]


def test_observers_see_what_was_handled_before_the_error_that_ends_the_process() -> None:
    clock = VirtualClock()
    transport = Counting(a_pipeline(), clock, 0.0)
    watching = Watching(transport)
    nodes = {"first": Node(), "second": Failing()}
    live = Live(a_pipeline(), nodes, transport, clock=clock, observers=[watching])
    with pytest.raises(ValueError, match="no such variant"):
        live.run()
    assert watching.saw_after == [0]
