"""Hand each new view to all viewers: serialised once, whole for a new viewer, then as deltas."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from headrace.dashboard.view_delta import delta

BEHIND = 20  # events that a viewer may lag behind before it is cut off and starts over
MOST_VIEWERS = 100

_encode = msgspec.json.Encoder().encode


class TooManyViewers(Exception):
    """There are ``MOST_VIEWERS`` viewers."""


class Viewers:
    """The viewers of a view, each with a queue of its unsent events.

    An event is bytes for the stream (None: the stream ends). For one event loop.
    """

    def __init__(self, view: Mapping[str, Any]) -> None:
        self._view = view
        self._whole: bytes | None = None
        self._number = 0
        self._queues: set[asyncio.Queue[bytes | None]] = set()

    def __len__(self) -> int:
        return len(self._queues)

    def whole(self) -> bytes:
        """Return the view as JSON."""
        if self._whole is None:
            self._whole = _encode(self._view)
        return self._whole

    def show(self, view: Mapping[str, Any]) -> None:
        """Take the newest view and queue its delta for every viewer."""
        before, self._view, self._whole = self._view, view, None
        self._number += 1
        if self._queues:
            text = server_sent_event("delta", self._number, _encode(delta(before, view)))
            for queue in [*self._queues]:
                self._put(queue, text)

    def _put(self, queue: asyncio.Queue[bytes | None], text: bytes) -> None:
        if queue.qsize() < BEHIND:
            queue.put_nowait(text)
            return
        self._queues.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    @contextmanager
    def joined(self) -> Iterator["asyncio.Queue[bytes | None]"]:
        """Yield the queue of a new viewer, which begins with the whole view.

        Raises ``TooManyViewers``.
        """
        if len(self._queues) >= MOST_VIEWERS:
            raise TooManyViewers
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        queue.put_nowait(server_sent_event("view", self._number, self.whole()))
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)

    def end(self) -> None:
        """End every stream."""
        for queue in self._queues:
            queue.put_nowait(None)


def server_sent_event(kind: str, number: int, data: bytes) -> bytes:
    """Return a server-sent event; ``data`` is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)
