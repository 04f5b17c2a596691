"""The control app: Faust brings reports, commands and ticks to the controller, one line each.

Faust's consumer group decides which of several control apps is in charge: the one that is given
the control topics. It then reads back what earlier lives left there and starts a fresh
controller; when it loses the topics, it drops it. Everything the controller is told comes through
one inbox, and its effects are performed before the next event: a plan is on the broker, confirmed,
before the answer to the command that asked for it.
"""

import asyncio
import contextlib
import logging
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import faust
from aiokafka.errors import KafkaConnectionError, KafkaError

from control.controller.controller import TICK_S, Controller
from control.estimation.demand import counted
from schemas.codec.single_object import encode
from schemas.effects import (
    COMMANDS,
    PLANS,
    REPORTS,
    Arrived,
    Effect,
    Event,
    Forget,
    Send,
    Solve,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.codecs.wire import Fetched
from streams.control_app.control_records import arrived, history
from streams.control_app.hearing import DEAF_S, Hearing
from streams.control_app.solver_pool import Planners
from streams.kafka.connectivity import Hushed, Presence
from streams.kafka.faust_security import to_faust
from streams.kafka.input_offsets import InputTopic
from streams.kafka.kafka_client import BrokerError, KafkaConfig, reach
from streams.kafka.preflight import prepare
from streams.live.dilation import REAL, Dilation
from streams.live.live_driver import Clock, Observer
from streams.observers.journal import tell
from streams.topics import MAX_RECORD_BYTES, physical

log = logging.getLogger("headrace.control")

SESSION_TIMEOUT_S = 6.0  # an app that dies is replaced after it; brokers allow no less by default
HEARTBEAT_S = 1.5
INPUT_S = 0.25  # between two looks at the input topic: a jump of demand should not wait for one
BLIND_S = 30.0  # and after one that failed: ingress tells, too, how many queries come
STALL_S = 3.0  # after it another app may have been in charge in the meantime
PUBLISH_S = 5.0  # what the broker has not taken by then is not sent any more
AGAIN_S = 1.0  # between two tries to start while the broker is away
NODE = "control"  # as observers know the controller
LEVELS = {
    "control.ready": logging.INFO,
    "control.began": logging.INFO,
    "control.ended": logging.WARNING,
    "control.stalled": logging.WARNING,
    "control.blind": logging.WARNING,
    "control.unpublished": logging.WARNING,
}
READ = (REPORTS, COMMANDS, PLANS)

# topic, value, partition (None: by key), key -> once the broker has it
Write = Callable[[str, bytes | None, int | None, bytes | None], Awaitable[Any]]


class Steward:
    """Tells the controller what happens and performs what it asks for, one event at a time."""

    def __init__(
        self,
        pipeline: Pipeline,
        fresh: Callable[[], Controller],
        kafka: KafkaConfig,
        observers: Sequence[Observer] = (),
        dilation: Dilation = REAL,
        clock: Clock = time.time,
    ) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._dilation = dilation
        self.tick_s = TICK_S * dilation.factor
        self._fresh = fresh
        self._observers = observers
        self._presence = Presence(kafka)
        self._kafka = kafka
        self._controller: Controller | None = None  # None: another app is in charge
        self._planners = Planners()
        self._inbox: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._ticking = False
        self._awake_s = time.monotonic()
        self._stalled = False
        self._solving: set[asyncio.Task[None]] = set()
        self._input = InputTopic(kafka, pipeline)
        self._looking: asyncio.Task[None] | None = None
        self._look_s = 0.0  # at the input topic again
        self._hearing = Hearing()
        self._reports_from = 0  # what was reported before says nothing about now

    # ------------------------------------------------------------------ from Faust

    def arrived(self, logical: str, message: Any) -> None:
        """A record on a control topic."""
        if (message.timestamp or 0.0) > self._presence.since_s:
            self._presence.heard(self._clock())
        if logical == REPORTS:
            self._hearing.hear()
            if message.offset < self._reports_from:
                return
        fetched = Fetched(
            message.topic, message.partition, message.offset,
            self._dilation.inner(message.timestamp or 0.0), message.key, message.value, None,
        )  # fmt: skip
        event = arrived(self._pipeline.name, logical, fetched)
        if event is not None:
            self._inbox.put_nowait(partial(self._tell, event))

    def tick(self) -> None:
        """Time has passed. Ticks do not pile up while the controller is busy."""
        self._look_at_the_clock()
        self._presence.look(self._clock())
        if self._looking is None and time.monotonic() >= self._look_s:
            self._looking = asyncio.create_task(self._look_at_the_input())
        if not self._ticking:
            self._ticking = True
            self._inbox.put_nowait(self._tock)

    def assigned(self, topics: Iterable[str]) -> None:
        """These topics are this app's to read: all of them, or another app is in charge."""
        wanted = {physical(self._pipeline.name, logical) for logical in READ}
        in_charge = wanted <= set(topics)
        self._inbox.put_nowait(self._begin if in_charge else self._end)

    # ------------------------------------------------------------------ one at a time

    async def run(self, write: Write) -> None:
        """Serve until cancelled."""
        self._write = write
        try:
            while True:
                told = await self._inbox.get()
                self._look_at_the_clock()
                if self._stalled:
                    await self._catch_up()
                await told()
        finally:
            for task in (*self._solving, *((self._looking,) if self._looking else ())):
                task.cancel()

    def hushed(self) -> logging.Filter:
        """For log handlers: the libraries' lines on an absent broker become one of ours."""
        return Hushed(self._presence)

    def close(self) -> None:
        """End the planners' process."""
        self._planners.close()

    def _look_at_the_clock(self) -> None:
        # Ticks come also while the controller waits for the broker: without them for so long,
        # the process itself stood still.
        now = time.monotonic()
        self._stalled = self._stalled or now - self._awake_s > STALL_S * self._dilation.factor
        self._awake_s = now

    async def _look_at_the_input(self) -> None:
        """Tell the controller how many queries have come, whether or not ingress keeps up."""
        loop = asyncio.get_running_loop()
        wait_s = INPUT_S
        try:
            if self._controller is not None:
                ends = await loop.run_in_executor(None, self._input.ends)
                now = self._now()
                done = await loop.run_in_executor(None, self._input.done)
                self._inbox.put_nowait(partial(self._tell, counted(now, ends, done)))
                self._listen(await loop.run_in_executor(None, self._input.reports), now)
        except BrokerError as error:
            wait_s = BLIND_S
            self._say("control.blind", f"{error}; demand is what ingress tells until then")
        finally:
            self._look_s = time.monotonic() + wait_s * self._dilation.factor
            self._looking = None

    def _listen(self, end: int, now: float) -> None:
        self._reports_from = min(self._reports_from, end)  # the topic may have been made anew
        if self._hearing.deaf(end, now):
            self._inbox.put_nowait(self._give_up)

    async def _give_up(self) -> None:
        raise BrokerError(
            f"reports were written for {DEAF_S:g} s and none of them was heard here; "
            "start the control app anew"
        )

    async def _catch_up(self) -> None:
        """Read back what another app did while this one stood still, before it adds to that."""
        self._stalled = False
        if self._controller is not None:
            self._say("control.stalled", "reads back what another control app may have done")
            await self._begin()

    async def _begin(self) -> None:
        past, self._reports_from = await self._past()
        self._controller = self._fresh()
        # Of the past only the plan in force is news to whoever watches this process.
        plans = [event for event in past if self._is_plan(event)]
        for event in past:
            await self._tell(event, watched=event in plans[-1:])
        await self._tell(Woke())
        text = f"in charge of pipeline {self._pipeline.name} after {len(past)} records"
        self._say("control.began", text, records=len(past))

    async def _past(self) -> tuple[list[Arrived], int]:
        """What earlier lives left on the control topics, and the end of the reports topic. Waits
        for a broker that is away."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                past = await loop.run_in_executor(None, history, self._kafka, self._pipeline)
                return past, await loop.run_in_executor(None, self._input.reports)
            except BrokerError:
                if await asyncio.to_thread(_reachable, self._kafka):
                    raise
                await asyncio.sleep(AGAIN_S)

    async def _end(self) -> None:
        if self._controller is not None:
            text = f"another control app is in charge of pipeline {self._pipeline.name}"
            self._say("control.ended", text)
        self._controller = None

    async def _tock(self) -> None:
        self._ticking = False
        await self._tell(Woke())

    def _is_plan(self, event: Event) -> bool:
        record = event.record if isinstance(event, Arrived) else None
        return isinstance(record, Plan) and record.pipeline == self._pipeline.name

    async def _tell(self, event: Event, *, watched: bool = True) -> None:
        if self._controller is None:
            return
        now = self._now()
        effects = self._controller.handle(event, now)
        for observer in self._observers if watched else ():
            observer.saw(NODE, event, effects, now)
        try:
            for effect in effects:
                await self._perform(effect)
        except (KafkaError, TimeoutError) as error:
            self._unpublished(error)

    def _unpublished(self, error: KafkaError | TimeoutError) -> None:
        """What was decided is not on the broker, or nobody knows: forget it, read back what is.
        A plan that waited for the broker while the world moved on must not come out late."""
        if isinstance(error, KafkaError) and not error.retriable:
            raise error
        self._say("control.unpublished", f"the broker did not take it within {PUBLISH_S:g} s")
        self._stalled = True

    def _now(self) -> float:
        return self._dilation.inner(self._clock())

    def _say(self, event: str, text: str, **fields: Any) -> None:
        tell(log, LEVELS[event], event, text, pipeline=self._pipeline.name, **fields)

    async def _perform(self, effect: Effect) -> None:
        # Assign and Wake need nothing: Faust reads the topics, and ticks come anyway.
        if isinstance(effect, Send):
            await self._send(effect)
        elif isinstance(effect, Forget):
            topic = physical(self._pipeline.name, effect.topic)
            await self._write(topic, None, 0, effect.key.encode())
        elif isinstance(effect, Solve):
            task = asyncio.create_task(self._solve(effect, self._controller))
            self._solving.add(task)
            task.add_done_callback(self._solving.discard)

    async def _send(self, effect: Send) -> None:
        topic = physical(self._pipeline.name, effect.topic)
        slot = effect.slot if effect.slot >= 0 else None
        await self._write(topic, encode(effect.record), slot, effect.key.encode() or None)

    async def _solve(self, effect: Solve, controller: Controller | None) -> None:
        future = asyncio.wrap_future(self._planners.start(effect))
        await asyncio.wait([future])
        error = future.exception()
        event = self._planners.outcome(effect, error, None if error else future.result())
        # A controller that was dropped in the meantime counted its jobs apart.
        if controller is self._controller:
            self._inbox.put_nowait(partial(self._tell, event))


def make_app(pipeline: Pipeline, kafka: KafkaConfig, steward: Steward, folder: str) -> faust.App:
    """The Faust app. Every topic it reads must exist: Faust ignores a missing one silently."""
    app = faust.App(f"{pipeline.name}.control", datadir=folder, **_settings(kafka))

    def follow(logical: str) -> None:
        name = physical(pipeline.name, logical)
        topic = app.topic(name, partitions=1, key_serializer="raw", value_serializer="raw")

        async def agent(stream: Any) -> None:
            async for event in stream.events():
                steward.arrived(logical, event.message)

        app.agent(topic, name=f"{pipeline.name}.{logical}", concurrency=1)(agent)

    for logical in READ:
        follow(logical)

    async def tick() -> None:
        steward.tick()

    async def assigned(_app: faust.App, partitions: Iterable[Any], **_: Any) -> None:
        steward.assigned(partition.topic for partition in partitions)

    app.timer(steward.tick_s)(tick)
    app.on_partitions_assigned.connect(assigned)
    return app


def _settings(kafka: KafkaConfig) -> dict[str, Any]:
    """The same for every control app: it makes no topic, keeps no table and serves no page."""
    return {
        "broker": [f"kafka://{server.strip()}" for server in kafka.bootstrap.split(",")],
        "broker_credentials": to_faust(kafka),
        "broker_session_timeout": SESSION_TIMEOUT_S,
        "broker_heartbeat_interval": HEARTBEAT_S,
        "consumer_auto_offset_reset": "earliest",
        "consumer_max_fetch_size": MAX_RECORD_BYTES,
        "producer_max_request_size": MAX_RECORD_BYTES,
        "producer_request_timeout": PUBLISH_S,
        "stream_wait_empty": False,
        "store": "memory://",
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "web_enabled": False,
        "worker_redirect_stdouts": False,
    }


def run(
    pipeline: Pipeline,
    fresh: Callable[[], Controller],
    kafka: KafkaConfig,
    observers: Sequence[Observer] = (),
    dilation: Dilation = REAL,
    clock: Clock = time.time,
) -> None:
    """Control a pipeline until SIGTERM or SIGINT, with a fresh controller whenever this app comes
    to be in charge.

    Raises ``BrokerError`` where the broker cannot be used.
    """
    prepare(kafka, pipeline, "control")
    steward = Steward(pipeline, fresh, kafka, observers, dilation, clock)
    for handler in logging.getLogger().handlers:
        handler.addFilter(steward.hushed())
    with tempfile.TemporaryDirectory(prefix="headrace-control-") as folder:
        asyncio.run(_serve(pipeline, kafka, steward, folder))


async def _serve(pipeline: Pipeline, kafka: KafkaConfig, steward: Steward, folder: str) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    make = partial(make_app, pipeline, kafka, steward, folder)
    app = await started(make, partial(_reachable, kafka), told)
    if app is None:
        steward.close()
        return
    told_of = f"ready to control pipeline {pipeline.name}, as soon as no other app does"
    tell(log, LEVELS["control.ready"], "control.ready", told_of, pipeline=pipeline.name)
    try:
        producer = await app.maybe_start_producer()
        served = asyncio.create_task(steward.run(_writer(producer)))
        ends = [served, *map(asyncio.create_task, (told.wait(), app.wait_until_stopped()))]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in ends:
            task.cancel()
        if served.done() and not told.is_set():
            served.result()
        if app.crash_reason is not None:
            raise app.crash_reason
    finally:
        await app.stop()
        steward.close()


async def started(
    make: Callable[[], faust.App], there: Callable[[], bool], told: asyncio.Event
) -> faust.App | None:
    """A Faust app that has started; None where the role is told to end before.

    Faust's start does not wait for a broker that is away. Whether there is one at all was asked
    before (``prepare``): one that has gone since comes back, and is waited for. An app that did
    not start leaves an event loop behind: the next one is made only once the broker is ``there``.
    """
    while not told.is_set():
        app = make()
        try:
            await app.start()
        except KafkaConnectionError as error:
            log.warning("the broker went away while the control app started; waiting: %s", error)
            await app.stop()
            while not told.is_set() and not await asyncio.to_thread(there):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), AGAIN_S)
        else:
            return app
    return None


def _reachable(kafka: KafkaConfig) -> bool:
    try:
        reach(kafka, AGAIN_S)
    except BrokerError:
        return False
    return True


def _writer(producer: Any) -> Write:
    async def write(topic: str, value: bytes | None, slot: int | None, key: bytes | None) -> None:
        sent = producer.send_and_wait(topic, key, value, slot, None, None)
        # Its own time-out does not cover a broker that takes the request and never answers.
        await asyncio.wait_for(sent, 2 * PUBLISH_S)

    return write
