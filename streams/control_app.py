"""The control app: Faust brings reports, commands and ticks to the controller, one line each.

Faust's consumer group decides which of several control apps is in charge: the one that is given
the control topics. It then reads back what earlier lives left there and starts a fresh
controller; when it loses the topics, it drops it. Everything the controller is told comes through
one inbox, and its effects are performed before the next event: a plan is on the broker, confirmed,
before the answer to the command that asked for it.
"""

import asyncio
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import faust

from control.controller import TICK_S, Controller
from profiles.table import ProfileTable
from schemas.codec import encode
from schemas.effects import (
    COMMANDS,
    PLANS,
    REPORTS,
    Effect,
    Event,
    Failed,
    Send,
    Solve,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import CommandResult, Plan
from streams.control_records import arrived, history
from streams.credentials import to_faust
from streams.kafka import KafkaConfig
from streams.planners import Planners
from streams.preparing import prepare
from streams.topics import MAX_RECORD_BYTES, physical
from streams.wire import Fetched

log = logging.getLogger("headrace.control")

SESSION_TIMEOUT_S = 6.0  # an app that dies is replaced after it; brokers allow no less by default
HEARTBEAT_S = 1.5
STALL_S = 3.0  # after it another app may have been in charge in the meantime
REPEAT_S = 10.0
READ = (REPORTS, COMMANDS, PLANS)

# topic, value, partition (None: by key), key -> once the broker has it
Write = Callable[[str, bytes, int | None, bytes | None], Awaitable[Any]]


class Steward:
    """Tells the controller what happens and performs what it asks for, one event at a time."""

    def __init__(
        self, pipeline: Pipeline, profile: ProfileTable | None, kafka: KafkaConfig, workers: int
    ) -> None:
        self._pipeline = pipeline
        self._profile = profile
        self._kafka = kafka
        self._expected = workers
        self._controller: Controller | None = None  # None: another app is in charge
        self._planners = Planners()
        self._inbox: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._ticking = False
        self._awake_s = time.monotonic()
        self._stalled = False
        self._solving: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ from Faust

    def arrived(self, logical: str, message: Any) -> None:
        """A record on a control topic."""
        fetched = Fetched(
            message.topic, message.partition, message.offset, message.timestamp or 0.0,
            message.key, message.value, None,
        )  # fmt: skip
        event = arrived(self._pipeline.name, logical, fetched)
        if event is not None:
            self._inbox.put_nowait(partial(self._tell, event))

    def tick(self) -> None:
        """Time has passed. Ticks do not pile up while the controller is busy."""
        self._look_at_the_clock()
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
            for task in self._solving:
                task.cancel()

    def close(self) -> None:
        """End the planners' process."""
        self._planners.close()

    def _look_at_the_clock(self) -> None:
        # Ticks come also while the controller waits for the broker: without them for so long,
        # the process itself stood still.
        now = time.monotonic()
        self._stalled = self._stalled or now - self._awake_s > STALL_S
        self._awake_s = now

    async def _catch_up(self) -> None:
        """Read back what another app did while this one stood still, before it adds to that."""
        self._stalled = False
        if self._controller is not None:
            log.warning("stood still for more than %g s", STALL_S)
            await self._begin()

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        past = await loop.run_in_executor(None, history, self._kafka, self._pipeline)
        self._controller = Controller(self._pipeline, self._profile, self._expected)
        for event in past:
            await self._tell(event)
        await self._tell(Woke())
        log.info("in charge of pipeline %s after %d records", self._pipeline.name, len(past))

    async def _end(self) -> None:
        if self._controller is not None:
            log.warning("another control app is in charge of pipeline %s", self._pipeline.name)
        self._controller = None

    async def _tock(self) -> None:
        self._ticking = False
        await self._tell(Woke())

    async def _tell(self, event: Event) -> None:
        if self._controller is None:
            return
        if isinstance(event, Failed):
            log.warning("no new plan: %s", event.error)
        for effect in self._controller.handle(event, time.time()):
            await self._perform(effect)

    async def _perform(self, effect: Effect) -> None:
        # Assign and Wake need nothing: Faust reads the topics, and ticks come anyway.
        if isinstance(effect, Send):
            await self._send(effect)
        elif isinstance(effect, Solve):
            task = asyncio.create_task(self._solve(effect, self._controller))
            self._solving.add(task)
            task.add_done_callback(self._solving.discard)

    async def _send(self, effect: Send) -> None:
        topic = physical(self._pipeline.name, effect.topic)
        slot = effect.slot if effect.slot >= 0 else None
        await self._write(topic, encode(effect.record), slot, effect.key.encode() or None)
        if isinstance(effect.record, Plan):
            log.info("plan %d: %s", effect.record.epoch, effect.record.reason)
        elif isinstance(effect.record, CommandResult):
            result = effect.record
            outcome = "done" if result.ok else "refused"
            log.info("command %s (%s) %s: %s", result.id, result.action, outcome, result.message)

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
    app = faust.App(
        f"{pipeline.name}.control",
        broker=[f"kafka://{server.strip()}" for server in kafka.bootstrap.split(",")],
        broker_credentials=to_faust(kafka),
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_RECORD_BYTES,
        producer_max_request_size=MAX_RECORD_BYTES,
        stream_wait_empty=False,
        store="memory://",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        worker_redirect_stdouts=False,
        datadir=folder,
    )

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

    app.timer(TICK_S)(tick)
    app.on_partitions_assigned.connect(assigned)
    return app


def run(
    pipeline: Pipeline, profile: ProfileTable | None, kafka: KafkaConfig, expected_workers: int
) -> None:
    """Control a pipeline until SIGTERM or SIGINT.

    Raises ``BrokerError`` where the broker cannot be used.
    """
    _configure_logging()
    prepare(kafka, pipeline, "control")
    with tempfile.TemporaryDirectory(prefix="headrace-control-") as folder:
        asyncio.run(_serve(pipeline, profile, kafka, expected_workers, folder))


async def _serve(
    pipeline: Pipeline,
    profile: ProfileTable | None,
    kafka: KafkaConfig,
    expected_workers: int,
    folder: str,
) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    steward = Steward(pipeline, profile, kafka, expected_workers)
    app = make_app(pipeline, kafka, steward, folder)
    try:
        await app.start()
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


def _writer(producer: Any) -> Write:
    async def write(topic: str, value: bytes, slot: int | None, key: bytes | None) -> None:
        await producer.send_and_wait(topic, key, value, slot, None, None)

    return write


def _configure_logging() -> None:
    """Ours to standard error; of the libraries only what is wrong."""
    line = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=line)
    log.setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Seldom())


class _Seldom(logging.Filter):
    """Lets a library repeat itself every ten seconds at most: an absent broker is news once."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == log.name:
            return True
        key = (record.name, str(record.msg))
        if record.created - self._last.get(key, 0.0) < REPEAT_S:
            return False
        self._last[key] = record.created
        return True
