"""The gateway's event loop: asyncio's, which looks at its sockets less often while it has work.

asyncio asks the kernel for news of its sockets before each turn, and a request takes 6 turns over
HTTP, 15 over gRPC. Each question is a system call, during which another thread may take the
interpreter's lock. Callbacks that are ready to run need no news.
"""

import asyncio
import selectors
import time
from collections.abc import Callable

LOOK_EVERY_S = 0.0005  # while callbacks are ready


class BusySelector(selectors.DefaultSelector):
    """A selector that is asked at most once in ``LOOK_EVERY_S`` by a caller that would not wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._look_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the sockets that are ready. Without a wait it may miss those that became ready
        within the last ``LOOK_EVERY_S``."""
        if timeout != 0:
            ready = super().select(timeout)
            self._look_s = self._clock() + LOOK_EVERY_S
            return ready
        now = self._clock()
        if now < self._look_s:
            return []
        self._look_s = now + LOOK_EVERY_S
        return super().select(timeout)


def gateway_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop."""
    return asyncio.SelectorEventLoop(BusySelector())
