"""An event loop on virtual time: when idle, the clock advances to the next timer."""

import asyncio
import selectors
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any


class _Jumping(selectors.DefaultSelector):
    """A selector that fires the next timer instead of waiting."""

    fire: Callable[[], bool]

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout != 0 and not self.fire():
            return super().select(0.05)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that fires one timer at a time, exactly at its time, in order of time and then
    of creation.

    ``run_in_executor`` runs synchronously, because a thread would take real time.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._number = count()
        selector = _Jumping()
        selector.fire = self._fire
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._due, (when, next(self._number), handle))
        return handle

    def _fire(self) -> bool:
        while self._due:
            when, _, handle = heappop(self._due)
            if not handle.cancelled():
                self.now = max(self.now, when)
                self.call_soon(handle._run)
                return True
        return False

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - passed on to the future
            future.set_exception(error)
        return future
