"""Limits on the resources of the HTTP port that one client can hold."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from headrace.gateway.certificates import Certificates, Tls
from headrace.gateway.http.listeners import HttpListener, Limits, address
from tests.gateway_world import LIMITS, BrokerInTest, a_gateway, until
from tests.integration.certificates import make_authority
from tests.virtual_loop import VirtualLoop

LARGE = b"a" * 10_000_000  # more than the kernel buffers for a connection
CHUNK = 1 << 16
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
    limits: Limits, served: Certificates | None = None
) -> AsyncIterator[tuple[HttpListener, int]]:
    app = web.Application()
    app.router.add_get("/v2", _large)
    app.router.add_get("/events", _events)
    listener = HttpListener(app, limits)
    try:
        yield listener, await listener.start("127.0.0.1", 0, served, share=False)
    finally:
        await listener.close()


@pytest.mark.parametrize("path", [b"/v2", b"/events"])
async def test_a_client_that_does_not_read_is_cut_off(path: bytes) -> None:
    async with listening(replace(LIMITS, body_s=0.1)) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET.replace(b"/v2", path))
        await until(lambda: listener.open == 1)
        await until(lambda: listener.open == 0)
        with contextlib.suppress(ConnectionResetError):
            assert len(await reader.read()) < len(LARGE)
        writer.close()


async def test_a_client_that_reads_gets_all() -> None:
    async with listening(LIMITS) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(LARGE)) == LARGE
        writer.close()


async def test_a_client_that_reads_slowly_gets_all() -> None:
    limit_s = 0.2
    async with listening(replace(LIMITS, body_s=limit_s)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        loop, got = asyncio.get_running_loop(), 0
        began_s = loop.time()
        while got < len(LARGE):
            chunk = await reader.read(CHUNK)
            assert chunk, f"cut off after {got} bytes"
            got += len(chunk)
            await asyncio.sleep(4 * limit_s * CHUNK / len(LARGE))
        assert loop.time() > began_s + 2 * limit_s
        writer.close()


def test_a_request_without_end_holds_the_shutdown_up_for_its_time_and_no_longer() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def stuck(_: web.Request) -> web.Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def play() -> float:
        app = web.Application()
        app.router.add_get("/v2", stuck)
        listener = HttpListener(app, LIMITS)
        port = await listener.start("127.0.0.1", 0, None, share=False)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await began.wait()
        closing_s = asyncio.get_running_loop().time()
        await listener.close()
        await ended.wait()
        writer.close()
        return asyncio.get_running_loop().time() - closing_s

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(play()) == LIMITS.drain_s


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    return make_authority(folder / "authority.pem").server(folder / "server.pem")


async def test_handshakes_count_as_connections_and_end_after_their_time(pem: Path) -> None:
    served = Certificates(Tls(certificate=pem, key=pem))
    limits = replace(LIMITS, connections=2, idle_s=0.5)
    async with listening(limits, served) as (listener, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: listener.open == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""  # one too many
        writer.close()
        await until(lambda: listener.open == 0)
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()


async def test_requests_are_served_after_the_handshake_and_its_failures_are_not_counted_on(
    pem: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Certificates(Tls(certificate=pem, key=pem))
    async with listening(replace(LIMITS, connections=1), served) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v2 HTTP/1.1\r\n\r\n")  # no TLS
        await reader.read()
        writer.close()
        await until(lambda: listener.open == 0)
        trusted = ssl.create_default_context(cafile=pem.parent / "authority.pem")
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
            assert listener.open == 1
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(LARGE)) == LARGE
            writer.close()
            await until(lambda: listener.open == 0)
    assert not caplog.records


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_served(pem: Path) -> None:
    served = Certificates(Tls(certificate=pem, key=pem))
    trusted = ssl.create_default_context(cafile=pem.parent / "authority.pem")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusted.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    async with listening(LIMITS, served) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def more() -> None:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65536))

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await more()
        tls.write(GET)  # in one piece with the end of the handshake
        said = b""
        while not said:
            await more()
            with contextlib.suppress(ssl.SSLWantReadError):
                said = tls.read(65536)
        assert said.startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_addresses_of_ipv6_have_brackets_as_in_a_url() -> None:
    assert address("::1", 8000) == "[::1]:8000"
    assert address("localhost", 8000) == "localhost:8000"

    async with a_gateway(BrokerInTest(), host="::1") as gateway:  # reads its ports from URLs
        assert min(gateway.http, gateway.grpc) > 0


async def test_connection_beyond_the_limit_gets_a_retry_after() -> None:
    async with listening(replace(LIMITS, connections=1)) as (listener, port):
        _, held = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: listener.open == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n")
        held.close()
        writer.close()


async def test_a_handshake_that_outlasts_the_port_ends_the_connection(
    pem: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Certificates(Tls(certificate=pem, key=pem))
    trusted = ssl.create_default_context(cafile=pem.parent / "authority.pem")
    async with listening(LIMITS, served) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: listener.open == 1)
        await listener.close()
        await writer.start_tls(trusted, server_hostname="127.0.0.1")
        assert await reader.read() == b""
        writer.close()
        assert listener.open == 0
    assert not caplog.records
