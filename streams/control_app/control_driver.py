"""The driver of the controller under Faust: one inbox, one event at a time.

Every event reaches the controller through the inbox, and its effects are performed before the next
event: a plan is confirmed by the broker before the result of the command that caused it is sent.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from aiokafka.errors import KafkaError
from msgspec.structs import replace

from control.controller.controller import TICK_S, Controller
from schemas.effects import (
    Arrived,
    Effect,
    Event,
    Forget,
    Heartbeats,
    Observer,
    Send,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.codecs.size_gate import RecordTooLarge
from streams.codecs.wire import Fetched
from streams.control_app.control_effects import STREAMED, ControlEffects, failed_results
from streams.control_app.control_records import arrived, read_back, retained_records
from streams.control_app.control_writer import ControlWriter, CopiesWait, Overtaken, Write
from streams.control_app.election import TopicGone, charged
from streams.control_app.host import ControlHost
from streams.control_app.input_count import InputCount
from streams.control_app.report_intake import ReportIntake
from streams.control_app.report_reader import Reports
from streams.control_app.solver_pool import Planners, Solvers
from streams.control_app.topic_ends import (
    Inputs,
    InputTopic,
)
from streams.kafka.admin.topic_copies import copies_of
from streams.kafka.connectivity import Connectivity, QuietFilter
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.missing_copies import Ask
from streams.kafka.throttling import HEARTBEATS, ThrottleEvent, Throttling
from streams.live.dilation import REAL, Dilation
from streams.live.steady_clock import Clock
from streams.observers.control_standing import ControlStanding
from streams.observers.health import Health
from streams.observers.journal import tell
from streams.topics import physical

log = logging.getLogger("headrace.control")

STALL_S = 3.0  # after a longer stall another app may have been in charge
PUBLISH_S = 5.0  # a record that is not accepted within this time is given up
COPIES_S = 5.0  # longest wait for an answer on a topic's copies
GONE_S = 3.0  # within this time a partition has a new leader, and the topic is assigned again
NODE = "control"  # the controller's name for observers
READY = "standing by to control pipeline"  # logged by an app that has started, with the name
LEVELS = {
    "control.ready": logging.INFO,
    "control.began": logging.INFO,
    "control.ended": logging.WARNING,
    "control.stalled": logging.WARNING,
    "control.overtaken": logging.WARNING,
    "control.blind": logging.WARNING,
    "control.unpublished": logging.WARNING,
    "control.too_large": logging.ERROR,
    "input.unread": logging.WARNING,
}


class ControlDriver:
    """Passes events to the controller and performs its effects, one event at a time.

    ``clock`` never steps, and goes on while the host is suspended.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        fresh: Callable[[], Controller],
        kafka: KafkaConfig,
        observers: Sequence[Observer] = (),
        dilation: Dilation = REAL,
        clock: Clock = time.time,
        *,
        planners: Solvers | None = None,
        inputs: Inputs | None = None,
        past: Callable[[], list[Arrived]] | None = None,
        write_as: Callable[[int], None] | None = None,
        replaced: Callable[[], bool] = lambda: False,
        copies: Ask | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._dilation = dilation
        self.tick_s = TICK_S * dilation.factor
        self._fresh = fresh
        self._observers = observers
        self._connectivity = Connectivity(kafka)
        self._throttling = Throttling(kafka)
        self._kafka = kafka
        self._host: ControlHost | None = None  # None: not in charge
        self._planners = planners or Planners(dilation.factor)
        self._inbox: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._awake_s = clock()
        self._stalled = False
        self._input = inputs or InputTopic(kafka, pipeline, clock)
        self._history = past or partial(retained_records, kafka, pipeline)
        self._intake = ReportIntake(pipeline.name, self._event)
        self._writer = ControlWriter(pipeline, self._input, write_as)
        counting = InputCount(self._input, self._intake, self._now)
        self._effects = ControlEffects(
            self, self._writer, self._planners, counting, self._now, dilation
        )
        self._reports: Reports | None = None
        self._replaced = replaced
        self._copies = CopiesWait(copies or partial(copies_of, kafka, timeout_s=COPIES_S))
        self._gone: tuple[float, TopicGone] | None = None  # when a lost topic ends the app

    # ------------------------------------------------------------------ from Faust

    def arrived(self, logical: str, message: Any) -> None:
        """Queue a record of a control topic."""
        self._heard(message.timestamp or 0.0)
        fetched = Fetched(
            message.topic, message.partition, message.offset, message.timestamp or 0.0,
            message.key, message.value, None,
        )  # fmt: skip
        event = self._event(logical, fetched)
        if event is not None:
            self._inbox.put_nowait(partial(self._deliver, logical, event))

    def reported(self, batch: Sequence[Fetched]) -> None:
        """Queue reports, and results of profilers."""
        self._heard(batch[-1].at_s)
        self._intake.arrived(batch, self._now())
        self._inbox.put_nowait(partial(self._deliver_reports, batch))

    def failed(self, error: BaseException) -> None:
        """End ``run`` with this error."""
        self._inbox.put_nowait(partial(self._raise, error))

    def throttled(self, event: ThrottleEvent) -> None:
        """Record a delay of the reports by a quota; may be called from any thread."""
        self._throttling.delayed(HEARTBEATS, event)
        self._intake.answered()

    @property
    def connectivity(self) -> Connectivity:
        """The broker's state as this process's clients see it."""
        return self._connectivity

    def _heard(self, at_s: float) -> None:
        if at_s > self._connectivity.since_s:
            self._connectivity.answered(self._clock())

    def _event(self, logical: str, fetched: Fetched) -> Arrived | None:
        at_s = self._dilation.inner(fetched.at_s)
        return arrived(self._pipeline.name, logical, replace(fetched, at_s=at_s))

    async def _deliver_reports(self, batch: Sequence[Fetched]) -> None:
        for event in self._intake.events(batch):
            await self._tell(event)
        self._intake.delivered(batch)

    async def _deliver(self, logical: str, event: Arrived) -> None:
        # Checked here: records arrive while the history is still being read.
        if event.offset >= self._intake.read_from.get(logical, 0):
            await self._tell(event)

    def tick(self) -> None:
        """Beat for health observers; check for a stall and for the broker's absence."""
        for observer in self._observers:
            if isinstance(observer, Health):
                observer.beat(NODE)
        self._look_at_the_clock()
        self._connectivity.look(self._clock())
        self._throttling.look(self._clock())
        if self._gone is not None and self._clock() > self._gone[0]:
            self.failed(self._gone[1])
        if self._stalled and self._inbox.empty():
            self._inbox.put_nowait(self._nothing)  # wakes ``run``, which catches up

    def assigned(self, topics: Iterable[str]) -> None:
        """Take charge if this app is assigned the topics of the app in charge, else stand by.

        The group's coordinator assigns, so the broker is back: a standby has no other sign of it.
        """
        self._connectivity.answered(self._clock())
        self._gone, in_charge = None, False
        try:
            in_charge = charged(self._pipeline.name, topics)
        except TopicGone as error:
            self._gone = self._clock() + GONE_S, error
        self._inbox.put_nowait(self._take_charge if in_charge else self._end)

    # ------------------------------------------------------------------ one at a time

    async def run(self, write: Write) -> None:
        """Process the inbox until cancelled."""
        self._writer.write = write
        try:
            while True:
                act = await self._inbox.get()
                self._look_at_the_clock()
                if self._stalled:
                    await self._catch_up()
                await act()
        finally:
            await self._effects.cancel()

    def log_filter(self) -> logging.Filter:
        """Return a filter that replaces the libraries' lines on an absent broker by one line."""
        return QuietFilter(self._connectivity)

    def close(self) -> None:
        """End the planners' processes and the reading of reports."""
        self._planners.close()
        if self._reports is not None:
            self._reports.stop()

    def read_with(self, reports: Reports) -> None:
        """Set the reader of reports; before ``run``."""
        self._reports = reports

    def _look_at_the_clock(self) -> None:
        # Ticks continue while the controller waits for the broker: a gap between them means that
        # the process itself stalled, or its host was suspended.
        now = self._clock()
        self._stalled = self._stalled or now - self._awake_s > STALL_S * self._dilation.factor
        self._awake_s = now

    async def _catch_up(self) -> None:
        """After a stall, replay the topics, or end the term if another app is in charge; stay
        stalled while copies of a topic that took no record are missing.

        If both apps continued, each would overtake the other.
        """
        loop = asyncio.get_running_loop()
        waits = partial(self._copies.waits, self._clock())
        if self._host is not None and await loop.run_in_executor(None, waits):
            return
        self._stalled = False
        if self._host is None:
            return
        replaced = False
        with contextlib.suppress(BrokerError):
            replaced = await loop.run_in_executor(None, self._replaced)
        if replaced:
            await self._end()
        else:
            self.say(
                "control.stalled", "reading back records that another control app may have written"
            )
            await self._begin()

    async def _take_charge(self) -> None:
        """Begin a term, unless one is under way: a rebalance that leaves this app in charge changes
        nothing. Writes of an app in between are found before the next write."""
        if self._host is None:
            await self._begin()

    async def _begin(self) -> None:
        past, read_from = await read_back(self._input, self._history, self._kafka)
        self._intake.begin(read_from)
        self._writer.begin(read_from)
        if self._reports is not None:
            self._reports.start({x: at for x, at in read_from.items() if x in STREAMED})
        self._host = ControlHost(self._fresh())
        # Of the history, observers see only the plan in force.
        plans = [event for event in past if self._is_plan(event)]
        for event in past:
            await self._tell(event, watched=event in plans[-1:])
        await self._tell(Woke())
        if self._host is None:  # the term has ended meanwhile
            return
        for standing in self._standings():
            standing.began()
        text = f"in charge of pipeline {self._pipeline.name} after reading {len(past)} records"
        self.say("control.began", text, records=len(past))

    async def _end(self) -> None:
        if self._host is not None:
            text = f"another control app is in charge of pipeline {self._pipeline.name}"
            self.say("control.ended", text)
        for standing in self._standings():
            standing.ended()
        if self._reports is not None:
            self._reports.stop()
        self._host = None

    def _standings(self) -> list[ControlStanding]:
        return [each for each in self._observers if isinstance(each, ControlStanding)]

    async def _nothing(self) -> None:
        """Do nothing: an inbox entry that only wakes ``run``."""

    def _is_plan(self, event: Event) -> bool:
        record = event.record if isinstance(event, Arrived) else None
        return isinstance(record, Plan) and record.pipeline == self._pipeline.name

    async def _tell(self, event: Event, *, watched: bool = True) -> None:
        """Pass an event to the host in charge and perform its effects.

        Ignore it if a write has failed or the process has stalled: the host then knows a plan that
        the topic does not have, and ``run`` replaces it before the next event.
        """
        if self._host is None or self._stalled:
            return
        if beats := self._intake.overdue(self._now()):
            await self._tell(Heartbeats(beats))
            if self._stalled:
                return
        now = self._now()
        performed = await self._perform(self._host.handle(event, now))
        for observer in self._observers if watched else ():
            observer.saw(NODE, event, performed, now)

    async def _perform(self, effects: Iterable[Effect]) -> list[Effect]:
        """Perform effects; return those that took place.

        After a record that is not written, the others of the event are discarded, and ``run`` reads
        the topics back, as the host's state is ahead of them.
        """
        performed, left = list[Effect](), iter(effects)
        try:
            for effect in left:
                await self._effects.perform(effect, self._host)
                performed.append(effect)
        except RecordTooLarge as error:
            self.say("control.too_large", str(error))
            self._stalled = True
            performed += await self._perform(failed_results(effect, left, str(error)))
        except (KafkaError, TimeoutError) as error:
            self._unpublished(effect, error)
        except Overtaken:
            self.say("control.overtaken", "another control app has written a record")
            self._stalled = True
        except BrokerError as error:
            self.say("control.unpublished", str(error))
            self._stalled = True
        return performed

    def _unpublished(self, effect: Effect, error: KafkaError | TimeoutError) -> None:
        """Discard effects that may not have reached the broker, and replay the topics instead.

        A plan that was delayed by the broker must not take force late. Raise a permanent error.
        """
        if isinstance(error, KafkaError) and not error.retriable:
            raise error
        assert isinstance(effect, Send | Forget)  # the effects that write
        topic = physical(self._pipeline.name, effect.topic)
        text = (
            f"topic {topic!r} took no record within {PUBLISH_S:g} s; the record is discarded and "
            "decided anew, once the topic has enough copies"
        )
        self.say("control.unpublished", text, topic=topic)
        self._copies.refused(topic)
        self._stalled = True

    def _now(self) -> float:
        return self._dilation.inner(self._clock())

    def say(self, event: str, text: str, **fields: Any) -> None:
        tell(log, LEVELS[event], event, text, pipeline=self._pipeline.name, **fields)

    def post(self, host: ControlHost, event: Event, *, watched: bool = True) -> None:
        """Queue an event for a host, unless a new host, which reuses job numbers, replaced it."""
        if host is self._host:
            self._inbox.put_nowait(partial(self._tell, event, watched=watched))

    async def _raise(self, error: BaseException) -> None:
        """End ``run`` with a job's unexpected error."""
        raise error
