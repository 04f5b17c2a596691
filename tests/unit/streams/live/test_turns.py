"""When the live driver ends a turn with its transport."""

from collections.abc import Sequence
from typing import Any

from schemas.effects import Assign, Done, Effect, Event, Infer, Inferred, Load, Unload
from streams.live.inbox import Inbox
from streams.live.live_driver import Live
from tests.builders import a_pipeline
from tests.memory_transport import MemoryTransport, VirtualClock

BEGINS = Infer(1, "read/a", (1,))
DONE = Assign("work.read", done=(Done(0, 5),))


class Node:
    """A node that requests the effects carried by an event."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
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
