"""headrace/gateway/grpc/queue_wait.py: the wait of calls in gRPC's queue."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from headrace.gateway.grpc.queue_wait import BUSY, EVERY_S, PATH, QueueWait

WORKS_S = 0.005  # a handler that does not yield
BATCHES = 6  # number of calls, 0.1 s each


class Served:
    """A server whose calls block the event loop, with the queue wait that it observed."""

    def __init__(self, folder: Path) -> None:
        self.place = f"unix:{folder}/calls"
        self.queue = QueueWait(asyncio.get_running_loop())
        self.waits: list[float] = []

    async def work(self, _: bytes, __: Any) -> bytes:
        self.waits.append(self.queue.waited_s())
        time.sleep(WORKS_S)
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


def test_calls_that_come_faster_than_they_are_handled_are_seen_to_wait(tmp_path: Path) -> None:
    async def play() -> None:
        async with served(tmp_path) as server, grpc.aio.insecure_channel(server.place) as channel:
            work = channel.unary_unary("/busy/Work")
            calls = []
            for _ in range(BATCHES):
                calls += [asyncio.ensure_future(work(b"")) for _ in range(4 * BUSY)]
                await asyncio.sleep(EVERY_S)
            await asyncio.gather(*calls)
            assert server.waits[0] == 0.0
            assert 2 * EVERY_S < max(server.waits) < BATCHES * 4 * BUSY * WORKS_S + 5.0

    asyncio.run(play())


def test_others_have_no_such_method(tmp_path: Path) -> None:
    async def play() -> None:
        async with served(tmp_path) as server, grpc.aio.insecure_channel(server.place) as channel:
            call = channel.stream_unary(PATH)()  # it never sends its message
            assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
            assert server.queue.waited_s() == 0.0

    asyncio.run(play())
