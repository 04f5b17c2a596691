"""How long a request has waited for the event loop before its handler runs.

The kernel does not report when a request arrived. While the loop is busy, requests wait for its
turn to end and are handled in the next one. So a request that is handled now has waited about as
long as the last turn took.
"""

import asyncio

LATELY_S = 1.0  # an older turn is ignored


class LoopLag:
    """The length of the loop's turns, seconds, measured in turns that handle a request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began_s: float | None = None  # when a request was first handled in this turn
        self._ended_s = self._took_s = 0.0  # of the last turn

    def waited_s(self) -> float:
        """Return how long a request whose handler starts now has waited."""
        now = self._loop.time()
        if self._began_s is None:
            self._began_s = now
            self._loop.call_soon(self._end)
        return self._took_s if now < self._ended_s + LATELY_S else 0.0

    def _end(self) -> None:
        assert self._began_s is not None
        self._ended_s = self._loop.time()
        self._took_s, self._began_s = self._ended_s - self._began_s, None
