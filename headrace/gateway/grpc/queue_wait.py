"""How long a call waits in gRPC's queue before its handler runs, measured by calls to itself.

The library reads calls as they arrive and hands one at a time to the event loop. While the loop is
busy, calls wait in the library's queue in order, and gRPC does not report how long. So under load
the gateway calls itself every ``EVERY_S`` over its own socket: a call that is handled now has
waited about as long as the last of these.
"""

import asyncio
import os
from contextlib import suppress
from typing import Any

import grpc

EVERY_S = 0.05
BUSY = 5  # calls within ``EVERY_S`` from which on the gateway measures
MOST = 200  # of its own calls in flight
LATELY_S = 1.0  # an older measurement is ignored
SERVICE, METHOD = "headrace.Gateway", "Wait"
NAME_BYTES = 8


class QueueWait:
    """The wait in a ``grpc.aio`` server's queue, seconds. Use it in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sent_s: dict[bytes, float] = {}  # own calls in flight, by name
        self._waited_s, self._seen_s = 0.0, float("-inf")
        self._calls = 0  # since the last check

    def add_to(self, server: Any, place: str) -> None:
        """Let the server answer own calls, at an address like ``unix:/folder/socket``."""
        handler = grpc.unary_unary_rpc_method_handler(self._handled)
        service = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(place)

    def waited_s(self) -> float:
        """Count a call whose handler starts now; return its wait as measured, 0 if unknown."""
        self._calls += 1
        return self._waited_s if self._loop.time() < self._seen_s + LATELY_S else 0.0

    async def watch(self, place: str) -> None:
        """Measure while many calls arrive, until cancelled."""
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
        """End an own call, and ignore calls of others."""
        sent_s = self._sent_s.pop(name, None)
        if sent_s is not None:
            self._seen_s = self._loop.time()
            self._waited_s = self._seen_s - sent_s
        return b""
