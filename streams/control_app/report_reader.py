"""Reads reports on its own thread, with a plain consumer, for the control app in charge.

If the pipeline has sessions, it also reads the results of profilers.

A thousand workers report 5,000 times a second. Faust takes some 150 us per record, most of a core;
a plain consumer that gathers records for ``GATHER_S`` takes a few. Faust still delivers commands
and plans; their group elects the app in charge.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from confluent_kafka import Consumer, Message, TopicPartition

from streams.codecs.wire import Fetched
from streams.control_app.control_records import fetched_from
from streams.kafka.kafka_client import NO_CALLBACKS, Callbacks, assign_more, consumer, heartbeat_id
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError, unreadable
from streams.kafka.reading.partition_reader import assign_anew
from streams.kafka.reading.silent_slots import SilentSlots
from streams.kafka.topic_contents import bounds_now
from streams.topics import physical

WAIT_S = 0.1  # wait for the first report of a batch; bounds the time to stop a reading
GATHER_S = 0.02  # wait for the other reports: each batch costs a wake-up of the event loop
MOST = 5000  # records per batch
LOOK_S = 1.0  # interval between two checks for slots that the client has stopped reading

Deliver = Callable[[list[Fetched]], None]


class Reports(Protocol):
    """Reads the ``STREAMED`` topics from given offsets until stopped; passes the records to
    ``reported``."""

    def start(self, offsets: Mapping[str, int]) -> None: ...
    def stop(self) -> None: ...


class ReportReader:
    """Passes reports to ``deliver`` in batches while started, and the error that ends it to
    ``fail``; its thread calls both."""

    def __init__(
        self,
        config: KafkaConfig,
        pipeline: str,
        deliver: Deliver,
        fail: Callable[[BaseException], None],
        callbacks: Callbacks = NO_CALLBACKS,
    ) -> None:
        self._config, self._pipeline = config, pipeline
        self._group = f"{pipeline}.control"
        self._deliver, self._fail, self._callbacks = deliver, fail, callbacks
        self._ends: threading.Event | None = None

    def start(self, offsets: Mapping[str, int]) -> None:
        """Read each logical topic from its offset; end a reading under way."""
        self.stop()
        self._ends = threading.Event()
        places = [
            TopicPartition(physical(self._pipeline, topic), 0, offset)
            for topic, offset in offsets.items()
        ]
        run = threading.Thread(
            target=self._run, args=(places, self._ends), name="reports", daemon=True
        )
        run.start()

    def stop(self) -> None:
        """End the reading; at most one more batch arrives."""
        if self._ends is not None:
            self._ends.set()
            self._ends = None

    def _run(self, places: list[TopicPartition], ends: threading.Event) -> None:
        try:
            own = heartbeat_id(self._config)
            reader = consumer(self._config, self._group, **own, **self._callbacks)
            try:
                assign_more(reader, places)
                self._read(reader, places, ends)
            finally:
                reader.close()
        except Exception as error:  # noqa: BLE001 - the driver raises it
            if not ends.is_set():
                self._fail(error)

    def _read(self, reader: Consumer, places: list[TopicPartition], ends: threading.Event) -> None:
        silent = SilentSlots()
        for each in places:
            silent.reads((each.topic, each.partition), each.offset)
        look_at_s = time.monotonic() + LOOK_S
        while not ends.is_set():
            if time.monotonic() >= look_at_s:
                _look(reader, silent)
                look_at_s = time.monotonic() + LOOK_S
            batch = self._records(_gathered(reader))
            for each in batch:
                silent.heard((each.topic, each.slot), each.offset)
            if batch and not ends.is_set():
                self._deliver(batch)

    def _records(self, messages: Iterable[Message]) -> list[Fetched]:
        """Return the messages without errors as records; raise ``BrokerError`` for an error after
        which librdkafka does not retry."""
        found = []
        for message in messages:
            error = message.error()
            if error is None:
                found.append(fetched_from(message))
            elif why := unreadable(self._config, error, message.topic() or "", self._group):
                raise BrokerError(why)
        return found


def _gathered(reader: Consumer) -> list[Message]:
    """Wait for a message; return it and those that follow within ``GATHER_S``."""
    first = reader.poll(WAIT_S)
    return [] if first is None else [first, *reader.consume(MOST - 1, timeout=GATHER_S)]


def _look(reader: Consumer, silent: SilentSlots) -> None:
    """Assign slots anew that the client has stopped reading, if any."""
    asked = silent.silent(())
    bounds = bounds_now(reader, asked) if asked else {}
    ends = {place: end for place, (_, end) in bounds.items()}
    stopped = silent.stopped(ends, ())
    if stopped:
        assign_anew(reader, stopped, ends)
