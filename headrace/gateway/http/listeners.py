"""The gateway's HTTP port, with limits on connections; what both ports share."""

import asyncio
import resource
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from headrace.errors import GatewayError, PortTaken
from headrace.gateway.certificates import Certificates
from headrace.gateway.http.http_connection import HttpConnection
from headrace.gateway.http.tls_handshake import TlsHandshake

SPARE_FILES = 512  # for Kafka's clients, the log, and connections beyond the limit
MOST_GRPC = 1000  # gRPC connections, each of which carries many calls
AIOHTTP_WAITS = 2  # one after the other, at shutdown: for the handler, then for its task
# The response to a connection beyond the limit; over TLS none, since it would need a handshake.
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the gateway. ``body_bytes``: of a request, decompressed. ``held_bytes``: of all
    bodies whose requests are in flight. ``connections``: at once over HTTP, and as many over gRPC
    up to ``MOST_GRPC``. ``requests``: in flight for one pipeline. ``idle_s``: the longest wait for
    a complete request head, for a handshake, or for the answer to a ping. ``body_s``: the longest
    time for a body to arrive, or for a client to read written data. ``drain_s``: the longest time
    of requests in flight at shutdown.
    """

    body_bytes: int
    held_bytes: int
    connections: int
    requests: int
    idle_s: float
    body_s: float
    drain_s: float

    @property
    def grpc_connections(self) -> int:
        """Connections over gRPC at once."""
        return min(self.connections, MOST_GRPC)


class _Refused(asyncio.Protocol):
    """A connection beyond the limit: it receives a fixed response and is closed."""

    def __init__(self, told: bytes) -> None:
        self._told = told

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._told)
        transport.close()


class HttpListener:
    """The HTTP port."""

    def __init__(self, app: web.Application, limits: Limits) -> None:
        self._limits = limits
        self._runner = web.AppRunner(
            app, handler_cancellation=True, shutdown_timeout=limits.drain_s / AIOHTTP_WAITS
        )
        self._server: asyncio.Server | None = None
        self._closing = False
        self.open = 0  # connections

    async def start(self, host: str, port: int, served: Certificates | None, *, share: bool) -> int:
        """Listen; return the port. Raises ``PortTaken``."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                partial(self._accepted, served),
                host, port, reuse_port=share or None, backlog=1024,
            )  # fmt: skip
        except OSError as error:
            raise taken("HTTP", host, port, error) from error
        return int(self._server.sockets[0].getsockname()[1])

    def _accepted(self, served: Certificates | None) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        if self.open >= self._limits.connections:
            return _Refused(_FULL if served is None else b"")
        self.open += 1
        if served is None:
            return self._http()
        return TlsHandshake(served.context, self._limits.idle_s, self._http, self._closed)

    def _http(self) -> asyncio.Protocol:
        server = self._runner.server
        if self._closing or server is None:  # a handshake outlasted the port
            self._closed()
            return _Refused(b"")
        return HttpConnection(
            server,
            read_within_s=self._limits.body_s,
            idle_s=self._limits.idle_s,
            closed=self._closed,
        )

    def _closed(self) -> None:
        self.open -= 1

    async def close(self) -> None:
        """Accept no more connections, wait for the requests in flight, ``drain_s`` at most, and
        close all connections."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()


def address(host: str, port: int) -> str:
    """Return a host and a port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def taken(what: str, host: str, port: int, error: Exception) -> PortTaken:
    """Return the error for a port that cannot be listened on."""
    why = getattr(error, "strerror", None) or str(error)
    return PortTaken(
        f"{what} cannot be served on {address(host, port)} ({why}); name another port with "
        f"--{what.lower()}-port, or another address with --host"
    )


def open_file_limit(connections: int, grpc: int, soft: int, hard: int) -> int:
    """Return the soft limit on open files for these numbers of connections over HTTP and over gRPC,
    each of which is a file.

    It is ``soft`` where that suffices, and at most ``hard``: the limits that
    ``resource.getrlimit`` returns.

    Raises ``GatewayError`` if ``hard`` is too low.
    """
    wanted = connections + grpc + SPARE_FILES
    if wanted > hard != resource.RLIM_INFINITY:
        raise GatewayError(
            f"--most-connections {connections} needs {wanted} open files, but this process may "
            f"have {hard}; lower it to {max(hard - SPARE_FILES - grpc, 1)}, or raise the hard "
            "limit (ulimit -Hn)"
        )
    return soft if soft == resource.RLIM_INFINITY else max(soft, wanted)


def raise_open_files(connections: int, grpc: int) -> None:
    """Raise this process's soft limit on open files for these numbers of connections over HTTP and
    over gRPC; raise ``GatewayError``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_file_limit(connections, grpc, soft, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
