"""The messages of gRPC calls, which must come in time: gRPC waits for them without a limit.

All calls share one timer. ``asyncio.timeout`` set and cancelled one for each, which took 400 of the
9,000 bytecodes of an inference. Messages are read from the call's context: gRPC's iterator is a
generator, which a call leaves unfinished, and for which the loop makes a task to close it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpc.aio import EOF

from headrace.gateway.protocol.statuses import Ending, Unserved


class MessageWaits:
    """The calls whose message has not come yet; each has ``within_s`` for it, seconds. Use it in
    the event loop."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._due_s: dict[asyncio.Task[Any], float] = {}  # by task, the next one first
        self._late: set[asyncio.Task[Any]] = set()  # cancelled here
        self._timer: asyncio.TimerHandle | None = None

    async def only(self, context: Any) -> Any:
        """Return the message of a call that has one; raise ``Unserved`` if it does not come in
        time."""
        message = await self._next(context)
        if message is EOF:
            raise Unserved(Ending.BAD_REQUEST, "the call has no message")
        return message

    async def timely(self, context: Any) -> AsyncIterator[Any]:
        """Yield the messages of a call; raise ``Unserved`` if one does not come in time."""
        while (message := await self._next(context)) is not EOF:
            yield message

    async def _next(self, context: Any) -> Any:
        """Return the next message of a call; ``EOF``: there is none."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._due_s[task] = due_s = loop.time() + self._within_s
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._expire, loop)
        try:
            return await context.read()
        except asyncio.CancelledError:
            if task in self._late and task.uncancel() == 0:  # else the client has left, too
                raise Unserved(
                    Ending.SLOW_CLIENT, f"the message did not arrive within {self._within_s:g} s"
                ) from None
            raise
        finally:
            del self._due_s[task]
            self._late.discard(task)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the calls whose time is over, and wait for the next one."""
        now, self._timer = loop.time(), None
        for task, due_s in self._due_s.items():
            if due_s > now:
                self._timer = loop.call_at(due_s, self._expire, loop)
                return
            if task not in self._late:
                self._late.add(task)
                task.cancel()
