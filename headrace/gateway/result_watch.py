"""Waiters for answers to the queries of any process, by id or by prefix of ids."""

import asyncio
import contextlib
from collections.abc import Iterator

from schemas.records import Answer

MOST_BEHIND = 1000  # answers that a stream may lag behind before it ends


class AnswerStream:
    """The answers whose ids begin with ``prefix``, in their order; ``overrun`` ends it."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.answers: asyncio.Queue[Answer] = asyncio.Queue(MOST_BEHIND)
        self.overrun = False

    def put(self, answer: Answer) -> None:
        """Add an answer; a reader that is too slow overruns and ends.

        Of an overrun stream only the next answer is kept: its reader may take long to be cut off.
        """
        if self.overrun:
            return
        if not self.answers.full():
            self.answers.put_nowait(answer)
            return
        self.overrun = True
        following = self.answers.get_nowait()
        while not self.answers.empty():
            self.answers.get_nowait()
        self.answers.put_nowait(following)


class ResultWatch:
    """Passes records of the results topic to their waiters.

    ``wants`` is called from the reading thread; all else in the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ids: dict[bytes, list[asyncio.Future[Answer]]] = {}
        self._streams: tuple[AnswerStream, ...] = ()

    def wants(self, key: bytes) -> bool:
        """Return whether a waiter wants records of that key."""
        return key in self._ids or any(key.startswith(s.prefix) for s in self._streams)

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
    def stream(self, prefix: str) -> Iterator[AnswerStream]:
        """Yield the stream of answers whose ids begin with ``prefix``."""
        stream = AnswerStream(prefix.encode())
        self._streams += (stream,)
        try:
            yield stream
        finally:
            self._streams = tuple(each for each in self._streams if each is not stream)

    def give(self, key: bytes, answer: Answer) -> None:
        """Take the answer in a record of the results topic."""
        for future in self._ids.get(key, ()):
            if not future.done():
                future.set_result(answer)
        for stream in self._streams:
            if key.startswith(stream.prefix):
                stream.put(answer)
