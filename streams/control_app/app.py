"""The control app: Faust brings reports, commands and ticks to the controller's driver.

Faust's consumer group decides which of several control apps is in charge: the one that is given
the control topics. It then reads back what earlier lives left there and starts a fresh
controller; when it loses the topics, it drops it.
"""

import asyncio
import contextlib
import logging
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import faust
from aiokafka.errors import KafkaConnectionError

from control.controller.controller import Controller
from schemas.pipeline import Pipeline
from streams.control_app.control_driver import (
    AGAIN_S,
    LEVELS,
    PUBLISH_S,
    READ,
    ControlDriver,
    Write,
    reachable,
)
from streams.kafka.faust_security import to_faust
from streams.kafka.kafka_client import KafkaConfig
from streams.kafka.preflight import prepare
from streams.live.dilation import REAL, Dilation
from streams.live.live_driver import Clock, Observer
from streams.observers.journal import tell
from streams.topics import MAX_RECORD_BYTES, physical

log = logging.getLogger("headrace.control")

SESSION_TIMEOUT_S = 6.0  # an app that dies is replaced after it; brokers allow no less by default
HEARTBEAT_S = 1.5


def make_app(
    pipeline: Pipeline, kafka: KafkaConfig, driver: ControlDriver, folder: str
) -> faust.App:
    """The Faust app. Every topic it reads must exist: Faust ignores a missing one silently."""
    app = faust.App(f"{pipeline.name}.control", datadir=folder, **_settings(kafka))

    def follow(logical: str) -> None:
        name = physical(pipeline.name, logical)
        topic = app.topic(name, partitions=1, key_serializer="raw", value_serializer="raw")

        async def agent(stream: Any) -> None:
            async for event in stream.events():
                driver.arrived(logical, event.message)

        app.agent(topic, name=f"{pipeline.name}.{logical}", concurrency=1)(agent)

    for logical in READ:
        follow(logical)

    async def tick() -> None:
        driver.tick()

    async def assigned(_app: faust.App, partitions: Iterable[Any], **_: Any) -> None:
        driver.assigned(partition.topic for partition in partitions)

    app.timer(driver.tick_s)(tick)
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
    driver = ControlDriver(pipeline, fresh, kafka, observers, dilation, clock)
    for handler in logging.getLogger().handlers:
        handler.addFilter(driver.hushed())
    with tempfile.TemporaryDirectory(prefix="headrace-control-") as folder:
        asyncio.run(_serve(pipeline, kafka, driver, folder))


async def _serve(
    pipeline: Pipeline, kafka: KafkaConfig, driver: ControlDriver, folder: str
) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    make = partial(make_app, pipeline, kafka, driver, folder)
    app = await started(make, partial(reachable, kafka), told)
    if app is None:
        driver.close()
        return
    told_of = f"ready to control pipeline {pipeline.name}, as soon as no other app does"
    tell(log, LEVELS["control.ready"], "control.ready", told_of, pipeline=pipeline.name)
    try:
        producer = await app.maybe_start_producer()
        served = asyncio.create_task(driver.run(_writer(producer)))
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
        driver.close()


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


def _writer(producer: Any) -> Write:
    async def write(topic: str, value: bytes | None, slot: int | None, key: bytes | None) -> None:
        sent = producer.send_and_wait(topic, key, value, slot, None, None)
        # Its own time-out does not cover a broker that takes the request and never answers.
        await asyncio.wait_for(sent, 2 * PUBLISH_S)

    return write
