"""A process without models fetches on the thread that decides (docs/decisions/0006)."""

import threading
from collections.abc import Sequence
from typing import Any

from operators.egress.egress import COMMIT_S
from operators.ingress.ingress import NOTICE_S, REFUSAL_S, Ingress
from schemas.codec.single_object import decode, encode
from schemas.effects import PLANS, Arrived, Assign, Effect, Event, Wake
from schemas.records import Notice, Query, Work
from streams.codecs.wire import Fetched
from streams.live.inbox import Inbox
from streams.live.live_driver import PENDING_S, Live
from tests.builders import a_lease, a_pipeline, a_plan, a_work
from tests.memory_transport import MemoryTransport, VirtualClock

FETCH_S = 0.05  # a fetch waits no longer, whatever its timeout
END_S = 3.0


class Fetching(MemoryTransport):
    """A transport whose fetches advance time and stop the driver at the end."""

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


class Waiting(Inbox):
    """An inbox whose waits advance time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def drain(self, timeout_s: float) -> list[Any]:
        if self.empty:
            self._clock.now += timeout_s
        return super().drain(0.0)


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
    assert len(transport.turns) < 15  # of about 60 fetches


def test_an_ingress_that_ends_notices_its_last_queries() -> None:
    clock, pipeline = VirtualClock(), a_pipeline()
    transport = Fetching(clock)
    transport.send("headrace.plans", encode(a_plan([a_lease()], epoch=1)), 0, "")
    for offset, at_s in enumerate((0.5, END_S - 0.005)):
        clock.now = at_s - 0.005
        transport.send("p.queries", encode(Query(payload="scan", id=f"q{offset}")), 0, "")
    clock.now = 0.0
    node = Ingress("ingress-0", pipeline, (0,), incarnation=0.0)
    inbox = Waiting(clock)
    transport.live = Live(pipeline, {"ingress-0": node}, transport, clock=clock, inbox=inbox)
    transport.live.run()
    records = [decode(each.value or b"") for each in transport.log("p.outputs")]
    noticed = [q.query_id for n in records if isinstance(n, Notice) for q in n.queries]
    assert noticed == ["q0", "q1"]
    assert transport.committed[("p.queries", 0)][0] == 2


def test_a_role_that_ends_waits_for_the_last_notices_and_commits() -> None:
    assert max(NOTICE_S, REFUSAL_S, COMMIT_S) <= PENDING_S
