"""headrace/gateway/grpc/queue_wait.py: the wait of calls in gRPC's queue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.gateway.grpc.queue_wait import BUSY, EVERY_S, LATELY_S, PATH, QueueWait

WORKS_S = 0.005  # of a call, by the clock of the test
CALLS = 4 * BUSY  # at once


class Served:
    """A server whose calls take time on a clock of their own, with the queue wait that each saw."""

    def __init__(self, folder: Path) -> None:
        self.place = f"unix:{folder}/calls"
        self.now = 0.0
        self.queue = QueueWait(lambda: self.now)
        self.waits: list[float] = []

    async def work(self, _: bytes, __: Any) -> bytes:
        self.waits.append(self.queue.waited_s())
        self.now += WORKS_S
        return b""


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    found, server = Served(folder), grpc.aio.server()
    handlers = {"Work": grpc.unary_unary_rpc_method_handler(found.work)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("busy", handlers),))
    found.queue.add_to(server, found.place)
    await server.start()
    watching = asyncio.create_task(found.queue.watch(found.place))
    yield found
    watching.cancel()
    await server.stop(None)


async def test_calls_that_come_faster_than_they_are_handled_are_seen_to_wait(
    tmp_path: Path,
) -> None:
    """By the clock of the test, a call waits as long as the calls take that are handled before
    it."""
    async with (
        asyncio.timeout(60.0),
        served(tmp_path) as server,
        grpc.aio.insecure_channel(server.place) as channel,
    ):
        work = channel.unary_unary("/busy/Work")
        while not any(server.waits):
            await asyncio.gather(*(work(b"") for _ in range(CALLS)))
        assert server.waits[:BUSY] == [0.0] * BUSY
        steps = [wait / WORKS_S for wait in server.waits]  # of handled calls
        assert steps == pytest.approx([*map(round, steps)])
        server.now += LATELY_S
        assert server.queue.waited_s() == 0.0


async def test_few_calls_are_not_measured(tmp_path: Path) -> None:
    async with served(tmp_path) as server, grpc.aio.insecure_channel(server.place) as channel:
        work = channel.unary_unary("/busy/Work")
        for _ in range(CALLS):
            await work(b"")
            server.now += EVERY_S / (BUSY - 1)
        assert not server.queue._busy.is_set()
        assert not any(server.waits)


async def test_others_have_no_such_method(tmp_path: Path) -> None:
    async with served(tmp_path) as server, grpc.aio.insecure_channel(server.place) as channel:
        call = channel.stream_unary(PATH)()  # it never sends its message
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        assert server.queue.waited_s() == 0.0
