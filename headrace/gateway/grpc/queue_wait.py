"""How long a call waits in gRPC's queue before its handler runs, measured by calls to itself.

The library reads calls as they arrive and hands one at a time to the event loop. While the loop is
busy, calls wait in the library's queue in order, and gRPC does not report how long. So under load
the gateway calls itself every ``EVERY_S`` over its own socket: a call that is handled now has
waited about as long as the last of these. Without load it sets no timer.
"""

import asyncio
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc

EVERY_S = 0.05
BUSY = 5  # calls within ``EVERY_S`` from which on the gateway measures
MOST = 200  # of its own calls in flight
LATELY_S = 1.0  # an older measurement is ignored
PATH = "/headrace.Gateway/Wait"
KEY = "headrace-own-call"
NAME_BYTES = 8

Clock = Callable[[], float]


class _Own(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The method of own calls. Others do not have it: their messages might never come."""

    def __init__(self, key: str, handler: Any) -> None:
        self._key = key
        self._handler = handler

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of an own call, None for any other."""
        if handler_call_details.method != PATH:
            return None
        own = (KEY, self._key) in tuple(handler_call_details.invocation_metadata or ())
        return self._handler if own else None


class QueueWait:
    """The wait in a ``grpc.aio`` server's queue, seconds of ``clock``. Use it in the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_hex()  # of own calls
        self._sent_s: dict[bytes, float] = {}  # own calls in flight, by name
        self._waited_s, self._seen_s = 0.0, float("-inf")
        self._calls, self._until_s = 0, 0.0  # in the interval that ends then
        self._busy = asyncio.Event()  # many calls arrive, so that the wait is to be measured

    def add_to(self, server: Any, place: str) -> None:
        """Let the server answer own calls, at an address like ``unix:/folder/socket``."""
        handler = grpc.unary_unary_rpc_method_handler(self._handled)
        server.add_generic_rpc_handlers((_Own(self._key, handler),))
        server.add_insecure_port(place)

    def waited_s(self) -> float:
        """Count a call whose handler starts now; return its wait as measured, 0 if unknown."""
        now = self._clock()
        if now >= self._until_s:
            self._calls, self._until_s = 0, now + EVERY_S
        self._calls += 1
        if self._calls == BUSY:
            self._busy.set()
        return self._waited_s if now < self._seen_s + LATELY_S else 0.0

    async def watch(self, place: str) -> None:
        """Measure while many calls arrive, until cancelled."""
        async with grpc.aio.insecure_channel(place) as channel:
            call = channel.unary_unary(PATH)
            asked: set[asyncio.Task[None]] = set()
            while await self._busy.wait():
                self._busy.clear()
                if len(asked) < MOST:
                    asked.add(task := asyncio.create_task(self._ask(call)))
                    task.add_done_callback(asked.discard)
                await asyncio.sleep(EVERY_S)
                if self._waited_s > EVERY_S:
                    self._busy.set()

    async def _ask(self, call: Any) -> None:
        name = os.urandom(NAME_BYTES)
        self._sent_s[name] = self._clock()
        try:
            with suppress(grpc.aio.AioRpcError):  # the server has closed
                await call(name, metadata=((KEY, self._key),))
        finally:
            self._sent_s.pop(name, None)

    async def _handled(self, name: bytes, _: Any) -> bytes:
        """End an own call."""
        sent_s = self._sent_s.pop(name, None)
        if sent_s is not None:
            self._seen_s = self._clock()
            self._waited_s = self._seen_s - sent_s
        return b""
