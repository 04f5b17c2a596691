"""What one client can hold of the HTTP port."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from headrace.gateway.listeners import HttpListener, Limits
from tests.gateway_world import LIMITS, until

LARGE = b"a" * 20_000_000  # more than the kernel holds for a connection
GET = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


async def _large(_: web.Request) -> web.Response:
    return web.Response(body=LARGE)


async def _events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(LARGE)


@asynccontextmanager
async def listening(
    limits: Limits, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[HttpListener, int]]:
    app = web.Application()
    app.router.add_get("/v2", _large)
    app.router.add_get("/events", _events)
    listener = HttpListener(app, limits)
    try:
        yield listener, await listener.start("127.0.0.1", 0, context, share=False)
    finally:
        await listener.close()


@pytest.mark.parametrize("path", [b"/v2", b"/events"])
def test_a_client_that_does_not_read_is_cut_off(path: bytes) -> None:
    async def play() -> None:
        async with listening(replace(LIMITS, body_s=0.1)) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET.replace(b"/v2", path))
            await until(lambda: listener.open == 1)
            await until(lambda: listener.open == 0)
            with contextlib.suppress(ConnectionResetError):
                assert len(await reader.read()) < len(LARGE)
            writer.close()

    asyncio.run(play())


def test_a_client_that_reads_gets_all() -> None:
    async def play() -> None:
        async with listening(LIMITS) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(LARGE)) == LARGE
            writer.close()

    asyncio.run(play())
