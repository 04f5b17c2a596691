"""How often the gateway's loop looks at its sockets."""

import asyncio
import selectors
import socket
from contextvars import Context, ContextVar
from functools import partial

import pytest

from headrace.gateway.event_loop import LOOK_EVERY_S, GatewayLoop


class Counting(selectors.DefaultSelector):
    """A selector that counts the looks at its sockets."""

    looks = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.looks += 1
        return super().select(timeout)


def looks_of(callbacks: int, each_s: float) -> tuple[int, list[int]]:
    """Return the looks at sockets while callbacks make each other ready, each of which takes
    ``each_s``, and the callbacks in the order in which they ran."""
    now, ran, selector = [10.0], list[int](), Counting()
    with asyncio.Runner(loop_factory=lambda: GatewayLoop(selector, lambda: now[0])) as runner:
        loop = runner.get_loop()

        def run(left: int) -> None:
            ran.append(left)
            now[0] += each_s
            if left:
                loop.call_soon(run, left - 1)
            else:
                loop.stop()

        loop.call_soon(run, callbacks - 1)
        loop.run_forever()
        return selector.looks, ran


def test_callbacks_that_are_ready_run_without_a_look_at_the_sockets() -> None:
    """asyncio looks before every turn, of which a request over gRPC takes 13."""
    assert looks_of(100, 0.0) == (1, [*range(99, -1, -1)])


def test_the_sockets_are_looked_at_once_in_a_while() -> None:
    looks, ran = looks_of(100, LOOK_EVERY_S / 4)
    assert (looks, ran) == (20, [*range(99, -1, -1)])


def test_cancelled_callbacks_do_not_run_and_the_others_keep_their_order() -> None:
    ran: list[str] = []
    with asyncio.Runner(loop_factory=partial(GatewayLoop, clock=lambda: 0.0)) as runner:
        loop = runner.get_loop()

        async def many() -> None:
            loop.call_soon(lambda: [loop.call_soon(ran.append, each) for each in "bd"])
            loop.call_soon(ran.append, "a")
            gone = loop.call_soon(ran.append, "gone")
            loop.call_soon(gone.cancel)
            loop.call_soon(lambda: loop.call_soon(ran.append, "c").cancel())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        runner.run(many())
    assert ran == ["a", "gone", "b", "d"]


def test_a_closed_loop_takes_no_callback() -> None:
    loop = GatewayLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)


def test_a_callback_runs_in_its_context() -> None:
    name = ContextVar("name", default="none")
    inside = Context()
    inside.run(name.set, "given")
    seen: list[str] = []
    with asyncio.Runner(loop_factory=GatewayLoop) as runner:
        loop = runner.get_loop()
        loop.call_soon(lambda: seen.append(name.get()), context=inside)
        loop.call_soon(lambda: seen.append(name.get()))
        runner.run(asyncio.sleep(0))
    assert seen == ["given", "none"]


def test_a_loop_that_always_has_work_reads_its_sockets() -> None:
    ours, theirs = socket.socketpair()

    async def busy() -> None:
        read: list[bytes] = []
        asyncio.get_running_loop().add_reader(ours, lambda: read.append(ours.recv(1)))
        theirs.send(b"x")
        while not read:
            await asyncio.sleep(0)

    with ours, theirs, asyncio.Runner(loop_factory=GatewayLoop) as runner:
        runner.run(busy())
