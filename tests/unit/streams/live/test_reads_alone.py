"""A process without models fetches on the thread that decides (docs/decisions/0006)."""

import threading
from collections.abc import Sequence

from schemas.codec.single_object import encode
from schemas.effects import PLANS, Arrived, Assign, Effect, Event, Wake
from schemas.records import Work
from streams.codecs.wire import Fetched
from streams.live.live_driver import Live
from tests.builders import a_pipeline, a_plan, a_work
from tests.memory_transport import MemoryTransport, VirtualClock

FETCH_S = 0.02  # a fetch waits no longer, whatever it is allowed
END_S = 3.0


class Fetching(MemoryTransport):
    """Fetches pass the time; at the end they stop the driver."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(a_pipeline(), clock, 0.005)
        self._time = clock
        self.live: Live | None = None
        self.turns: list[float] = []
        self.threads: set[str] = set()

    def fetch(self, timeout_s: float) -> list[Fetched]:
        self.threads.add(threading.current_thread().name)
        if not (found := self.landed()):
            until_s = self._time.now + min(timeout_s, FETCH_S)
            self._time.now = min(until_s, max(self.next_s(), self._time.now))
            found = self.landed()
        if self._time.now >= END_S and self.live is not None:
            self.live.stop()
        return found

    def end_turn(self, now: float) -> None:
        self.turns.append(now)


class Node:
    """It reads the slot of its first plan, and wakes once a second."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []
        self.woken: list[float] = []

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if not isinstance(event, Arrived):
            self.woken.append(round(now, 6))
            return [Assign(PLANS, (0,)), Wake(now + 1.0)]
        if isinstance(event.record, Work):
            self.seen.append((round(now, 6), event.offset))
            return []
        return [Assign("work.read", (0,))]


def test_records_and_timers_are_handled_when_they_come_and_an_empty_fetch_is_no_turn() -> None:
    clock, node = VirtualClock(), Node()
    transport = Fetching(clock)
    transport.send("headrace.plans", encode(a_plan(epoch=1)), 0, "")
    for at_s, offset in ((0.5, 0), (0.5, 1), (1.25, 2)):
        clock.now = at_s
        transport.send("p.work.read", encode(a_work(offset)), 0, "")
    clock.now = 0.0
    transport.live = Live(a_pipeline(), {"node": node}, transport, clock=clock)
    transport.live.run()
    assert node.seen == [(0.505, 0), (0.505, 1), (1.255, 2)]
    assert node.woken == [0.0, 1.0, 2.0, 3.0]
    assert transport.threads == {threading.current_thread().name}
    assert len(transport.turns) < 15  # of some 150 fetches
