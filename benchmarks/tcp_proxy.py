"""A TCP proxy in front of a broker's listener: a slow, silent or half-open network.

Bytes of a blocked direction are held, not lost: TCP sends them again once the network is back.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

from benchmarks.hosts import Host

CHUNK_BYTES = 1 << 16
STARTED_WITHIN_S = 5.0


@dataclass
class Network:
    """The state of a proxy's network; its fields may be set from any thread.

    ``to_broker`` and ``to_client``: bytes pass in this direction; ``delay_s``: every byte takes
    this much longer, each way.
    """

    to_broker: bool = True
    to_client: bool = True
    delay_s: float = 0.0

    def cut(self) -> None:
        """Let nothing pass: new connections are accepted by the host, and stay silent."""
        self.to_broker = self.to_client = False

    def heal(self) -> None:
        """Let everything pass without delay."""
        self.to_broker = self.to_client = True
        self.delay_s = 0.0


Address = tuple[str, int]  # of an interface or a host, and a port
LOOPBACK = "127.0.0.1"


class TcpProxy:
    """Forwards connections from ``address`` to ``target``, through ``network``.

    ``enter`` is called on the proxy's thread before it opens a socket.
    """

    def __init__(
        self, address: Address, target: Address, enter: Callable[[], None] = lambda: None
    ) -> None:
        self.network = Network()
        self._address, self._target, self._enter = address, target, enter
        self._loop = asyncio.new_event_loop()
        self._brokers: set[asyncio.StreamWriter] = set()
        self._serving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        if not self._serving.wait(STARTED_WITHIN_S):
            raise OSError(f"no proxy at {address[0]}:{address[1]}: the port is in use")

    def break_half_open(self) -> None:
        """Close every connection to the broker; clients keep theirs, and wait for answers."""
        self._loop.call_soon_threadsafe(self._drop_brokers)

    def close(self) -> None:
        """Close every connection and the port."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # ------------------------------------------------------------------ on its thread

    def _run(self) -> None:
        self._enter()
        asyncio.set_event_loop(self._loop)
        listening = asyncio.start_server(self._accept, *self._address)
        try:
            server = self._loop.run_until_complete(listening)
            self._serving.set()
            self._loop.run_forever()
            server.close()
            every = asyncio.all_tasks(self._loop)
            for task in every:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*every, return_exceptions=True))
        finally:
            self._loop.close()

    def _drop_brokers(self) -> None:
        for writer in self._brokers:
            writer.transport.abort()
        self._brokers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Cancelled by ``close``: asyncio would log a task that ends so.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._forward(reader, writer)
        finally:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not (self.network.to_broker and self.network.to_client):
            await asyncio.sleep(TICK_S)
        answers, broker = await asyncio.open_connection(*self._target)
        self._brokers.add(broker)
        try:
            up = asyncio.create_task(self._pump(reader, broker, "to_broker"))
            down = asyncio.create_task(self._pump(answers, writer, "to_client"))
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if broker not in self._brokers and not up.done():
                await up  # half open: the client detects it by its own timeout
            for each in (up, down):
                each.cancel()
        finally:
            self._brokers.discard(broker)
            broker.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        """Forward one direction until it ends; bytes keep their order and their distance."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        write = asyncio.create_task(self._write(waiting, writer, direction))
        try:
            while data := await reader.read(CHUNK_BYTES):
                waiting.put_nowait((time.monotonic(), data))
        finally:
            write.cancel()

    async def _write(
        self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter,
        direction: str,
    ) -> None:  # fmt: skip
        while True:
            came_s, data = await waiting.get()
            while (left_s := came_s + self.network.delay_s - time.monotonic()) > 0:
                await asyncio.sleep(min(left_s, TICK_S))
            while not getattr(self.network, direction):
                await asyncio.sleep(TICK_S)
            if writer.transport.is_closing():
                continue  # half open: into the void
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()


TICK_S = 0.005  # how soon a change of the network takes effect


class Proxies:
    """A proxy for each of several names, in front of one broker's proxied listeners.

    With ``hosts`` a name's proxy listens at the end of its host's link, and a second one on the
    host leads there.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        listeners: tuple[tuple[int, int], ...],
        hosts: Mapping[str, Host],
    ) -> None:
        self._open = ExitStack()
        self._proxies: dict[str, TcpProxy] = {}
        self.bootstraps: dict[str, str] = {}
        for name, (port, advertised) in zip(names, listeners, strict=True):
            here = LOOPBACK, advertised
            self.bootstraps[name] = f"{LOOPBACK}:{advertised}"
            host = hosts.get(name)
            if host is not None:
                there, here = here, (host.gateway, advertised)
                self._open.enter_context(closing(TcpProxy(there, here, host.enter)))
            self._proxies[name] = TcpProxy(here, (LOOPBACK, port))
            self._open.enter_context(closing(self._proxies[name]))

    def of(self, name: str) -> TcpProxy:
        """Return a role's proxy."""
        return self._proxies[name]

    def close(self) -> None:
        """Close every proxy."""
        self._open.close()
