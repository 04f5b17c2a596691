"""Clients of the servers under load: HTTP/1.1 with keep-alive, gRPC, and Kafka."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from benchmarks.peers.open_loop import LATE, SERVED
from headrace.client.client import Client
from headrace.errors import NoAnswer
from schemas.records import ANSWERED

Call = Callable[[bytes, float], Any]  # a coroutine: the ending and the body of a response


class _Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self) -> None:
        self._seen = b""
        self._response: asyncio.Future[tuple[int, bytes]] | None = None
        self.open = True

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    async def request(self, data: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body. Raises ``ConnectionError``."""
        self._seen = b""
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return await self._response

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, end, body = self._seen.partition(b"\r\n\r\n")
        if not end or self._response is None or self._response.done():
            return
        if is_whole(head, body):
            self.open = b"connection: close" not in head.lower()
            self._response.set_result((int(head[9:12]), body))

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionResetError("the server closed the connection"))

    def abort(self) -> None:
        """Leave without waiting for the response."""
        self.open = False
        self._transport.abort()


def is_whole(head: bytes, body: bytes) -> bool:
    """Return whether all of a response's body has come; a chunked one stays in its chunks."""
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return len(body) >= int(length) if length else body.endswith(b"0\r\n\r\n")


class HttpPool:
    """Connections to one server: the most recently used idle one is taken, or a new one made."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str]) -> None:
        named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._port = port
        self._head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{named}".encode()
        self._idle: list[_Connection] = []

    async def __call__(self, body: bytes, headers: bytes = b"") -> tuple[int, bytes]:
        """Send a request with further header lines; return status and body."""
        connection = self._taken() or await self._connect()
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        try:
            response = await connection.request(self._head + headers + length + body)
        except BaseException:  # cancelled at the deadline, or reset
            connection.abort()
            raise
        if connection.open:
            self._idle.append(connection)
        return response

    def _taken(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._port)
        return connection

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.abort()


@asynccontextmanager
async def http(
    port: int, path: str, headers: Mapping[str, str], timeout: str
) -> AsyncIterator[Call]:
    """Yield a call over HTTP; ``timeout`` is the header line for the ms or s left, or empty."""
    pool = HttpPool(port, path, headers)

    async def call(body: bytes, left_s: float) -> tuple[str, bytes]:
        line = timeout.format(s=left_s, ms=left_s * 1e3).encode()
        try:
            status, response = await pool(body, line)
        except ConnectionError:
            return "connection lost", b""
        return (SERVED if status == 200 else f"status {status}"), response

    yield call
    pool.close()


@asynccontextmanager
async def rpc(port: int, method: str, request: Any, response: Any) -> AsyncIterator[Call]:
    """Yield a call over gRPC: ``request`` makes a message of a body, ``response`` a body of the
    bytes of a message."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        unary = channel.unary_unary(method, request_serializer=request)

        async def call(body: bytes, left_s: float) -> tuple[str, bytes]:
            try:
                return SERVED, response(await unary(body, timeout=left_s))
            except grpc.aio.AioRpcError as error:
                late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                return LATE if late else f"code {error.code().name}", b""

        yield call


@asynccontextmanager
async def kafka(bootstrap: str, pipeline: str) -> AsyncIterator[Call]:
    """Yield a call over Kafka with Headrace's client."""
    client = await asyncio.to_thread(Client, bootstrap, pipeline)

    async def call(body: bytes, left_s: float) -> tuple[str, bytes]:
        try:
            answer = await client.ask_async(body, deadline=left_s)
        except NoAnswer:
            return LATE, b""
        shown = answer.result if isinstance(answer.result, bytes) else str(answer.result).encode()
        return (SERVED if answer.outcome == ANSWERED else answer.outcome), shown

    try:
        yield call
    finally:
        await asyncio.to_thread(client.close)
