"""The controller's effects, performed by its driver under Faust.

A record is written before the next effect. Solves and counts are jobs, whose results are events.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol

from msgspec.structs import replace

from schemas.effects import (
    COMMANDS,
    PLANS,
    PROFILE_RESULTS,
    QUERIES,
    REPORTS,
    Assign,
    Count,
    Effect,
    Event,
    Failed,
    Forget,
    Reject,
    Scale,
    Send,
    Solve,
    Wake,
    Woke,
)
from schemas.records import CommandResult, Plan
from streams.control_app.control_writer import ControlWriter
from streams.control_app.host import ControlHost
from streams.control_app.input_count import InputCount
from streams.control_app.solver_pool import Solvers, solve_event
from streams.control_app.topic_ends import unread_text
from streams.kafka.kafka_errors import BrokerError
from streams.live.dilation import Dilation
from streams.live.steady_clock import Clock

STREAMED = (REPORTS, PROFILE_RESULTS)  # assigned by the reader of reports instead
READ = (*STREAMED, COMMANDS, PLANS)


class ControlInbox(Protocol):
    """The driver's interface for jobs."""

    def post(self, host: ControlHost, event: Event, *, watched: bool = True) -> None: ...
    def failed(self, error: BaseException) -> None: ...
    def say(self, event: str, text: str, **fields: Any) -> None: ...


class ControlEffects:
    """Performs the effects of a host; jobs post their results to ``inbox``, for the same host."""

    def __init__(
        self, inbox: ControlInbox, writer: ControlWriter, planners: Solvers, counting: InputCount,
        now: Clock, dilation: Dilation,
    ) -> None:  # fmt: skip
        self._inbox, self._writer, self._planners = inbox, writer, planners
        self._counting = counting
        self._now, self._dilation = now, dilation
        self._jobs: set[asyncio.Task[None]] = set()  # solves and counts in flight

    async def perform(self, effect: Effect, host: ControlHost | None) -> None:
        """Perform an effect of the host in charge; raise the writer's errors."""
        performed = _PERFORMED.get(type(effect))
        if performed is None or host is None:
            raise TypeError(f"the controller asked for {effect!r}, which its driver cannot perform")
        await performed(self, effect, host)

    async def cancel(self) -> None:
        """Cancel the jobs, and wait until they end."""
        for task in self._jobs:
            task.cancel()
        # A loop that closes earlier complains of pending tasks.
        await asyncio.gather(*self._jobs, return_exceptions=True)

    # ------------------------------------------------------------------ at once

    async def _assign(self, effect: Assign, host: ControlHost) -> None:
        """Only check the topic: an app in charge reads every control topic."""
        if effect.topic not in READ:
            raise TypeError(f"the controller is to read {effect.topic!r}; it reads {READ}")

    async def _wake(self, effect: Wake, host: ControlHost) -> None:
        self._wake_later(effect.at_s, host)

    def _wake_later(self, at_s: float, host: ControlHost) -> None:
        """Wake once the driver's clock shows ``at_s``; the loop's timers use another clock."""
        left_s = (at_s - self._now()) * self._dilation.factor
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._wake_later, at_s, host)
        else:
            self._inbox.post(host, Woke())

    async def _reject(self, effect: Reject, host: ControlHost) -> None:
        """Do nothing: ``Reject`` is for observers."""

    async def _scale(self, effect: Scale, host: ControlHost) -> None:
        """Do nothing: `up`, or a scaler such as KEDA, follows the plan's mix or its metric."""

    async def _forget(self, effect: Forget, host: ControlHost) -> None:
        await self._writer.forget(effect)

    async def _send(self, effect: Send, host: ControlHost) -> None:
        await self._writer.send(effect)

    # ------------------------------------------------------------------ jobs

    async def _begin_solve(self, effect: Solve, host: ControlHost) -> None:
        self._begin_job(self._solve(effect, host))

    async def _begin_count(self, effect: Count, host: ControlHost) -> None:
        self._begin_job(self._count(host))

    def _begin_job(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._job_ended)

    def _job_ended(self, task: asyncio.Task[None]) -> None:
        self._jobs.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._inbox.failed(error)

    async def _solve(self, effect: Solve, host: ControlHost) -> None:
        event = await solve_event(self._planners, effect)
        if event is not None:
            self._inbox.post(host, event)

    async def _count(self, host: ControlHost) -> None:
        """Read the input topic's offsets; check that reports arrive at this app."""
        loop, counting = asyncio.get_running_loop(), self._counting
        try:
            event, unread = await loop.run_in_executor(None, counting.counted)
            self._inbox.post(host, event)
            if unread:
                waiting = {"partitions": sorted(unread), "queries": sum(unread.values())}
                self._inbox.say("input.unread", unread_text(unread), **waiting)
            if not counting.listens(event.at_s):
                return
            shared = await loop.run_in_executor(None, counting.shared_ends)
        except BrokerError as error:
            if counting.blind(self._now()):
                text = f"{error}; using the demand that ingress reports until then"
                self._inbox.say("control.blind", text)
            self._inbox.post(host, Failed(QUERIES, str(error)), watched=False)
        else:
            counting.listen(shared, event.at_s)


def failed_results(unsent: Effect, others: Iterable[Effect], why: str) -> list[Effect]:
    """Return the results among an event's other effects, as they are if a record of it was not
    published: no command of it is done."""
    record = unsent.record if isinstance(unsent, Send) else None
    text = f"its {type(record).__name__.lower()} was not published: {why}"
    left: list[Effect] = []
    for effect in others:
        if isinstance(effect, Send) and isinstance(result := effect.record, CommandResult):
            if result.ok:
                result = replace(result, ok=False, message=text)
            if isinstance(record, Plan):
                result = replace(result, epoch=min(result.epoch, record.epoch - 1))
            left.append(replace(effect, record=result))
    return left


_PERFORMED: dict[type, Callable[[ControlEffects, Any, ControlHost], Awaitable[None]]] = {
    Assign: ControlEffects._assign,
    Count: ControlEffects._begin_count,
    Forget: ControlEffects._forget,
    Reject: ControlEffects._reject,
    Scale: ControlEffects._scale,
    Send: ControlEffects._send,
    Solve: ControlEffects._begin_solve,
    Wake: ControlEffects._wake,
}
