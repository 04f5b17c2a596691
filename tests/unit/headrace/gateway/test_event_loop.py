"""How often the gateway's loop looks at its sockets."""

import asyncio
import selectors
import socket

from headrace.gateway.event_loop import LOOK_EVERY_S, BusySelector, gateway_loop


def test_without_a_wait_sockets_are_looked_at_once_in_a_while() -> None:
    """asyncio asks before every turn, of which a request over gRPC takes 15."""
    now = [10.0]
    ours, theirs = socket.socketpair()
    with ours, theirs, BusySelector(lambda: now[0]) as selector:
        selector.register(ours, selectors.EVENT_READ)
        seen = [selector.select(0)]
        theirs.send(b"x")
        seen.append(selector.select(0))  # too early
        now[0] += LOOK_EVERY_S
        seen.append(selector.select(0))
        seen.append(selector.select(0))
        seen += [selector.select(5.0), selector.select()]  # a caller that waits always looks
        assert [len(each) for each in seen] == [0, 0, 1, 0, 1, 1]


def test_a_loop_that_always_has_work_reads_its_sockets() -> None:
    ours, theirs = socket.socketpair()

    async def busy() -> None:
        read: list[bytes] = []
        asyncio.get_running_loop().add_reader(ours, lambda: read.append(ours.recv(1)))
        theirs.send(b"x")
        while not read:
            await asyncio.sleep(0)

    with ours, theirs, asyncio.Runner(loop_factory=gateway_loop) as runner:
        runner.run(busy())
