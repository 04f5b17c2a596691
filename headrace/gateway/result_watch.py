"""Waiters for answers that other processes may have asked for: by id, or by prefix of it."""

import asyncio
import contextlib
from collections.abc import Iterator

from headrace.client.formats import Read
from schemas.codec.single_object import CodecError
from schemas.records import Answer

MOST_BEHIND = 1000  # answers that a stream may be behind before it ends


class Stream:
    """The answers whose ids begin with ``prefix``, in their order; ``overrun`` ends it."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.answers: asyncio.Queue[Answer] = asyncio.Queue(MOST_BEHIND)
        self.overrun = False

    def put(self, answer: Answer) -> None:
        """Add an answer; a reader that is too slow is overrun, not waited for."""
        try:
            self.answers.put_nowait(answer)
        except asyncio.QueueFull:
            self.overrun = True


class ResultWatch:
    """Gives records of the results topic to those who watch for them.

    ``seen`` is called from the reading thread; all else in the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Read) -> None:
        self._loop = loop
        self._read = read
        self._ids: dict[bytes, list[asyncio.Future[Answer]]] = {}
        self._streams: tuple[Stream, ...] = ()

    def seen(self, key: bytes, value: bytes) -> None:
        """Take a record; decode it if somebody watches for its key."""
        if key in self._ids or any(key.startswith(s.prefix) for s in self._streams):
            self._loop.call_soon_threadsafe(self._give, key, value)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator["asyncio.Future[Answer]"]:
        """Yield a future for the answer of that id."""
        key = name.encode()
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._ids.setdefault(key, []).append(future)
        try:
            yield future
        finally:
            waiting = self._ids[key]
            waiting.remove(future)
            if not waiting:
                del self._ids[key]

    @contextlib.contextmanager
    def stream(self, prefix: str) -> Iterator[Stream]:
        """Yield the stream of answers whose ids begin with ``prefix``."""
        stream = Stream(prefix.encode())
        self._streams += (stream,)
        try:
            yield stream
        finally:
            self._streams = tuple(each for each in self._streams if each is not stream)

    def _give(self, key: bytes, value: bytes) -> None:
        try:
            answer = self._read(value)
        except CodecError:
            return  # a foreign record
        for future in self._ids.get(key, ()):
            if not future.done():
                future.set_result(answer)
        for stream in self._streams:
            if key.startswith(stream.prefix):
                stream.put(answer)
