"""The control app: the controller's driver gets commands and ticks from Faust, and reports from a
plain consumer.

Of several control apps, the one in charge is the member of Faust's consumer group that is assigned
the control topics. It replays the topics' history into a fresh controller, and drops the controller
when it loses the topics.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

import faust
from aiokafka.errors import KafkaConnectionError, KafkaError
from faust.assignor import PartitionAssignor

from control.controller.controller import Controller
from schemas.effects import Observer
from schemas.pipeline import Pipeline
from streams.codecs.wire import Fetched
from streams.control_app.control_driver import LEVELS, PUBLISH_S, READY, ControlDriver
from streams.control_app.control_records import AGAIN_S, reachable
from streams.control_app.control_writer import Write
from streams.control_app.election import CHARGED, SESSION_TIMEOUT_S, Election, elected
from streams.control_app.faust_clients import (
    group_errors,
    missing_right,
    moved_brokers,
    refused_write,
)
from streams.control_app.report_reader import ReportReader
from streams.kafka.admin.preflight import prepare
from streams.kafka.faust_security import to_faust
from streams.kafka.kafka_client import fatal_errors
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.live.dilation import REAL, Dilation
from streams.live.steady_clock import Clock
from streams.observers.journal import tell
from streams.topics import MAX_RECORD_BYTES, physical

log = logging.getLogger("headrace.control")

HEARTBEAT_S = 1.5
# A broker that answers no request counts as lost after this; Faust's default is 90 s. It exceeds
# the session timeout, as a group answers a join only once its lost members have timed out.
REQUEST_TIMEOUT_S = 1.5 * SESSION_TIMEOUT_S
# A standby's connection may be half open long before it takes charge; its first plan would then
# wait for ``PUBLISH_S``. So the client closes a connection that is idle for this long, and opens a
# new one for the next record.
IDLE_S = 3.0
STOP_S = 5.0  # longest wait for Faust to stop


class Tableless(faust.App):  # type: ignore[misc]  # faust has no types
    """A Faust app that creates no folders for tables, which a kill would leave behind."""

    def _create_directories(self) -> None:
        pass


class FirstPartitions(PartitionAssignor):  # type: ignore[misc]  # faust has no types
    """Assigns the first partition of every topic to the same member of the group, and no others.

    Faust assigns topics with different numbers of partitions independently of each other: of two
    apps, one could get the commands and the other one the plans, and none would be in charge.
    """

    @classmethod
    def _get_copartitioned_groups(cls, topics: set[str], cluster: Any, subscriptions: Any) -> Any:
        there = {topic for topic in topics if cluster.partitions_for_topic(topic)}
        return {1: cls._group_co_subscribed(there, subscriptions)} if there else {}

    @classmethod
    def _get_client_metadata(cls, metadata: Any) -> Any:
        found = super()._get_client_metadata(metadata)
        had = found.assignment.actives  # also other partitions, if an older release assigned them
        found.assignment.actives = {topic: [0] for topic, numbers in had.items() if 0 in numbers}
        return found


def make_app(election: Election, driver: ControlDriver) -> faust.App:
    """Return the Faust app. Its topics must exist, as Faust silently ignores missing ones."""
    app = Tableless(election.group, datadir=os.devnull, **_settings(election))

    def follow(logical: str) -> None:
        name = physical(election.pipeline, logical)
        topic = app.topic(name, partitions=1, key_serializer="raw", value_serializer="raw")

        async def agent(stream: Any) -> None:
            async for event in stream.events():
                driver.arrived(logical, event.message)

        app.agent(topic, name=f"{election.pipeline}.{logical}", concurrency=1)(agent)

    for logical in CHARGED:
        follow(logical)

    async def tick() -> None:
        driver.tick()

    async def assigned(_app: faust.App, partitions: Iterable[Any], **_: Any) -> None:
        driver.assigned(elected(partitions))

    app.timer(driver.tick_s)(tick)
    app.on_partitions_assigned.connect(assigned)
    return app


def _settings(election: Election) -> dict[str, Any]:
    """Return the settings of a control app: it creates no topic, table or web page."""
    kafka = election.kafka
    return {
        "broker_client_id": election.client,
        "PartitionAssignor": FirstPartitions,
        "broker": [f"kafka://{server.strip()}" for server in kafka.bootstrap.split(",")],
        "broker_credentials": to_faust(kafka),
        "broker_session_timeout": SESSION_TIMEOUT_S,
        "broker_heartbeat_interval": HEARTBEAT_S,
        "broker_request_timeout": REQUEST_TIMEOUT_S,
        "consumer_auto_offset_reset": "earliest",
        "consumer_max_fetch_size": MAX_RECORD_BYTES,
        "producer_max_request_size": MAX_RECORD_BYTES,
        "producer_connections_max_idle_ms": int(IDLE_S * 1e3),
        "producer_request_timeout": PUBLISH_S,
        "stream_wait_empty": False,
        "store": "memory://",
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "web_enabled": False,
        "worker_redirect_stdouts": False,
    }


def run_control_app(
    pipeline: Pipeline,
    fresh: Callable[[], Controller],
    kafka: KafkaConfig,
    observers: Sequence[Observer] = (),
    dilation: Dilation = REAL,
    clock: Clock = time.time,
    write_as: Callable[[int], None] | None = None,
) -> None:
    """Control a pipeline until SIGTERM or SIGINT, with a fresh controller per term in charge.

    Raise ``BrokerError`` if the broker cannot be used.
    """
    prepare(kafka, pipeline, "control")
    election = Election(kafka, pipeline.name, f"{pipeline.name}.control.{uuid.uuid4().hex}")
    driver = ControlDriver(
        pipeline, fresh, kafka, observers, dilation, clock,
        write_as=write_as, replaced=election.replaced,
    )  # fmt: skip
    for handler in logging.getLogger().handlers:
        handler.addFilter(driver.log_filter())
    asyncio.run(_serve(pipeline, election, driver))


async def _serve(pipeline: Pipeline, election: Election, driver: ControlDriver) -> None:
    kafka = election.kafka
    stopping = asyncio.Event()
    driver.read_with(_report_reader(pipeline, kafka, driver))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    make = partial(make_app, election, driver)
    errors = partial(group_errors, election)
    try:
        app = await started(make, partial(reachable, kafka), stopping, errors)
        if app is not None:
            await _control(pipeline, election, driver, app, stopping)
    finally:
        driver.close()


async def _control(
    pipeline: Pipeline,
    election: Election,
    driver: ControlDriver,
    app: faust.App,
    stopping: asyncio.Event,
) -> None:
    """Run a started app until it ends, ``stopping`` is set or an error of its clients."""
    kafka = election.kafka
    standing_by = f"{READY} {pipeline.name}"
    tell(log, LEVELS["control.ready"], "control.ready", standing_by, pipeline=pipeline.name)
    try:
        producer = await app.maybe_start_producer()
        metadata = producer._producer.client.force_metadata_update
        await first_of(
            stopping.wait(),
            app.wait_until_stopped(),
            driver.run(_writer(kafka, producer)),
            group_errors(election, app),
            moved_brokers(kafka, metadata, partial(asyncio.to_thread, reachable, kafka)),
        )
        if app.crash_reason is not None:
            raise missing_right(kafka, app.crash_reason)
    finally:
        await _stop(app)


async def _stop(app: faust.App) -> None:
    """Stop an app, whose clients may wait for brokers that are gone."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(app.stop(), STOP_S)


async def first_of(*ways: Coroutine[Any, Any, Any]) -> None:
    """Return once one of several coroutines has ended, and raise its error; cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _report_reader(pipeline: Pipeline, kafka: KafkaConfig, driver: ControlDriver) -> ReportReader:
    """Return a reader that passes reports to the driver, in the running event loop."""
    loop = asyncio.get_running_loop()

    def deliver(batch: Sequence[Fetched]) -> None:
        loop.call_soon_threadsafe(driver.reported, batch)

    def fail(error: BaseException) -> None:
        loop.call_soon_threadsafe(driver.failed, error)

    on_error = fatal_errors(kafka, driver.connectivity.failed_request)
    callbacks = {"error_cb": on_error, "throttle_cb": driver.throttled}
    return ReportReader(kafka, pipeline.name, deliver, fail, callbacks)


async def started(
    make: Callable[[], faust.App],
    there: Callable[[], bool],
    stopping: asyncio.Event,
    errors: Callable[[faust.App], Coroutine[Any, Any, None]],
) -> faust.App | None:
    """Return a started Faust app; None if ``stopping`` is set first. Raise the first of its
    ``errors``.

    Faust's start does not wait for an unreachable broker. As ``prepare`` has verified that the
    broker exists, this function waits for its return. A failed start leaves an event loop behind,
    so the next app is created only once the broker is ``there``.
    """
    while not stopping.is_set():
        app = make()
        try:
            await first_of(app.start(), stopping.wait(), errors(app))
        except KafkaConnectionError as error:
            log.warning("lost the broker during start-up; waiting for it: %s", error)
            await app.stop()
            while not stopping.is_set() and not await asyncio.to_thread(there):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), AGAIN_S)
        except BrokerError:
            await _stop(app)
            raise
        else:
            if not stopping.is_set():
                return app
            await _stop(app)
    return None


def _writer(kafka: KafkaConfig, producer: Any) -> Write:
    async def write(topic: str, value: bytes | None, slot: int | None, key: bytes | None) -> int:
        sent = producer.send_and_wait(topic, key, value, slot, None, None)
        try:
            # The client's time-out does not cover a broker that takes a request and never answers.
            found = await asyncio.wait_for(sent, 2 * PUBLISH_S)
        except KafkaError as error:
            refused = refused_write(kafka, error, topic)
            if refused is None:
                raise
            raise refused from error
        return int(found.offset)

    return write
