"""A TCP proxy in front of a broker's listener: a network that is slow, silent or half dead.

Bytes of a blocked direction are held, not lost: TCP sends them again once the network is back.
"""

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

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


class TcpProxy:
    """Forwards connections from ``port`` to ``target_port`` of 127.0.0.1, through ``network``."""

    def __init__(self, port: int, target_port: int) -> None:
        self.network = Network()
        self._port, self._target_port = port, target_port
        self._loop = asyncio.new_event_loop()
        self._brokers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        if not self._serving.wait(STARTED_WITHIN_S):
            raise OSError(f"no proxy on port {port}: it is in use")

    def break_half_open(self) -> None:
        """Close every connection to the broker; clients keep theirs, and wait for answers."""
        self._loop.call_soon_threadsafe(self._drop_brokers)

    def close(self) -> None:
        """Close every connection and the port."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # ------------------------------------------------------------------ on its thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        listening = asyncio.start_server(self._accept, "127.0.0.1", self._port)
        try:
            server = self._loop.run_until_complete(listening)
            self._serving.set()
            self._loop.run_forever()
            server.close()
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        finally:
            self._loop.close()

    def _drop_brokers(self) -> None:
        for writer in self._brokers:
            writer.transport.abort()
        self._brokers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError):
                await self._forward(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not (self.network.to_broker and self.network.to_client):
            await asyncio.sleep(TICK_S)
        answers, broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._brokers.add(broker)
        try:
            up = asyncio.create_task(self._pump(reader, broker, "to_broker"))
            down = asyncio.create_task(self._pump(answers, writer, "to_client"))
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if broker not in self._brokers and not up.done():
                await up  # half open: the client learns of it when it gives up
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


TICK_S = 0.005  # how soon a change of the network shows


class Proxies:
    """A proxy for each of several names, in front of one broker's proxied listeners."""

    def __init__(self, names: tuple[str, ...], listeners: tuple[tuple[int, int], ...]) -> None:
        self._proxies = {
            name: TcpProxy(advertised, port)
            for name, (port, advertised) in zip(names, listeners, strict=True)
        }
        self.bootstraps = {
            name: f"127.0.0.1:{advertised}"
            for name, (_, advertised) in zip(names, listeners, strict=True)
        }

    def of(self, name: str) -> TcpProxy:
        """Return a role's proxy."""
        return self._proxies[name]

    def close(self) -> None:
        """Close every proxy."""
        for proxy in self._proxies.values():
            proxy.close()
