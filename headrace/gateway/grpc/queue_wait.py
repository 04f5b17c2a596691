"""How long a call waits in gRPC's queue before its handler runs, seen by calls to itself.

The library reads calls as they come and hands one at a time to the event loop; where the loop is
busy they wait in its queue, in their order, and nothing tells how long. So while many calls come
the gateway calls itself every ``EVERY_S`` over a socket of its own: the last of these calls that
was handled waited about as long as a call which is handled now.
"""

import asyncio
import os
from contextlib import suppress
from typing import Any

import grpc

EVERY_S = 0.05
BUSY = 5  # calls within ``EVERY_S`` that make the gateway look
MOST = 200  # of its own calls on their way
LATELY_S = 1.0  # an older one says nothing
SERVICE, METHOD = "headrace.Gateway", "Wait"
NAME_BYTES = 8


class QueueWait:
    """The wait in a ``grpc.aio`` server's queue, seconds. Use it in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sent_s: dict[bytes, float] = {}  # own calls on their way, by name
        self._waited_s, self._seen_s = 0.0, float("-inf")
        self._calls = 0  # since the last look

    def add_to(self, server: Any, place: str) -> None:
        """Let the server answer own calls, at an address like ``unix:/folder/socket``."""
        handler = grpc.unary_unary_rpc_method_handler(self._handled)
        service = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(place)

    def waited_s(self) -> float:
        """Count a call that is handled now; return how long it has waited, 0 where nothing is
        known."""
        self._calls += 1
        return self._waited_s if self._loop.time() < self._seen_s + LATELY_S else 0.0

    async def watch(self, place: str) -> None:
        """Look for as long as many calls come, until cancelled."""
        async with grpc.aio.insecure_channel(place) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
            asked: set[asyncio.Task[None]] = set()
            while True:
                await asyncio.sleep(EVERY_S)
                calls, self._calls = self._calls, 0
                if (calls >= BUSY or self._waited_s > EVERY_S) and len(asked) < MOST:
                    asked.add(task := self._loop.create_task(self._ask(call)))
                    task.add_done_callback(asked.discard)

    async def _ask(self, call: Any) -> None:
        name = os.urandom(NAME_BYTES)
        self._sent_s[name] = self._loop.time()
        try:
            with suppress(grpc.aio.AioRpcError):  # the server has closed
                await call(name)
        finally:
            self._sent_s.pop(name, None)

    async def _handled(self, name: bytes, _: Any) -> bytes:
        """End an own call; those of others say nothing."""
        sent_s = self._sent_s.pop(name, None)
        if sent_s is not None:
            self._seen_s = self._loop.time()
            self._waited_s = self._seen_s - sent_s
        return b""
