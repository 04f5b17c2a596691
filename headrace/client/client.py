"""Request and reply over a pipeline's topics, from Python.

    with Client("localhost:9092", "postcode") as client:
        answer = client.ask(image, deadline=0.3)

Many queries may be in flight: ``submit`` returns a future, ``ask_async`` awaits one. One thread
reads the results topic from its end, without a consumer group, and resolves the futures. Opening
and closing wait for the broker, so do not call them in an event loop.
"""

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager

from confluent_kafka import KafkaException

from headrace.client.defaults import brokers, only_pipeline
from headrace.client.formats import WRITERS, Read, reader_of
from headrace.client.topic_clients import Asker, Tail, usable
from headrace.errors import ClientClosed, NoAnswer
from schemas.codec.single_object import CodecError
from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Answer, Query, Value
from streams.kafka.kafka_client import reach
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

__all__ = ["Client", "ClientClosed", "NoAnswer"]

OPENS_WITHIN_S = 5.0  # the longest wait for the broker at opening
ANSWER_WITHIN_S = 30.0  # the default timeout without a deadline: the client does not know the SLO
BEYOND_DEADLINE_S = 4.0  # egress's grace and the answer's transfer
TURN_S = 0.05  # the largest delay of a timeout
MOST_AT_ONCE = 499


class Open:
    """The queries in flight. Thread-safe.

    Every future is resolved once: by its answer, its timeout, or an error.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[Future[Answer], float, float]] = {}
        self._ended: Exception | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str, now: float, within_s: float) -> Future[Answer]:
        """Return a future for a query; raises ``ValueError`` for an id in flight, and the error
        given to ``end``."""
        future: Future[Answer] = Future()
        with self._lock:
            if self._ended is not None:
                raise self._ended
            if name in self._waiting:
                raise ValueError(f"a query {name!r} is in flight already; give each its own id")
            self._waiting[name] = (future, now + within_s, within_s)
        return future

    def answer(self, name: str, value: bytes) -> None:
        """Resolve a query in flight with a record of the results topic; ignore any other id."""
        future = self._take(name)
        if future is None or not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self._read(value))
        except (CodecError, BrokerError) as error:  # BrokerError: the schema registry
            future.set_exception(error)

    def fail(self, name: str, error: Exception) -> None:
        """Resolve a query with an error."""
        _fail(self._take(name), error)

    def expire(self, now: float) -> None:
        """Resolve the queries whose timeout has passed with ``NoAnswer``."""
        with self._lock:
            late = [(name, s) for name, (_, due_s, s) in self._waiting.items() if now > due_s]
        for name, within_s in late:
            self.fail(
                name,
                NoAnswer(
                    f"no answer to {name} within {within_s:g} s; check that the pipeline is up "
                    "with `headrace status FILE --once`, or wait longer with timeout="
                ),
            )

    def end(self, error: Exception) -> None:
        """Resolve every query, and refuse new ones, with an error. The first error wins."""
        with self._lock:
            if self._ended is None:
                self._ended = error
            names = list(self._waiting)
        for name in names:
            self.fail(name, error)

    def _take(self, name: str) -> Future[Answer] | None:
        with self._lock:
            held = self._waiting.pop(name, None)
        return None if held is None else held[0]


def _fail(future: Future[Answer] | None, error: Exception) -> None:
    if future is not None and future.set_running_or_notify_cancel():
        future.set_exception(error)


class _Results(Tail):
    """The results topic with record keys, so that only answers to queries in flight are decoded."""

    def take_keyed(self, timeout_s: float) -> list[tuple[bytes, bytes]]:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        found = (first, *self._consumer.consume(MOST_AT_ONCE, 0))
        return [(m.key() or b"", m.value() or b"") for m in found if usable(m)]


class Client(AbstractContextManager["Client"]):
    """A client of a running pipeline. Safe for several threads and event loops at once.

    ``bootstrap`` defaults to HEADRACE_BOOTSTRAP or the local broker; ``pipeline``, the name in the
    pipeline file, to the only pipeline on it. ``input`` is the form that the file names: raw
    (payloads are bytes), avro or confluent (any ``schemas.records.Value``). ``properties`` are
    librdkafka's, for security. Answers may be JSON or Avro, and with ``schema_registry``, a URL,
    Avro in Confluent's framing.

    Raises ``BrokerError`` if the broker or the pipeline's topics are not available.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        pipeline: str | None = None,
        *,
        input: str = "raw",
        properties: Mapping[str, str] | None = None,
        schema_registry: str = "",
    ) -> None:
        asked = _asked(pipeline or "", input, schema_registry)
        kafka = brokers(bootstrap, properties or {})
        self._raw = input == "raw"
        reach(kafka, OPENS_WITHIN_S)  # fails fast without a broker
        if not pipeline:
            pipeline = only_pipeline(kafka)
            asked = _asked(pipeline, input, schema_registry)
        self._results = _Results(kafka, physical(pipeline, RESULTS))
        try:
            self._asker = Asker(kafka, asked)
        except KafkaException as error:
            self._results.close()
            raise BrokerError(f"no broker takes queries: {error.args[0].str()}") from error
        except BaseException:
            self._results.close()
            raise
        self._open = Open(reader_of(asked))
        self._closing = threading.Event()
        self._prefix = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)  # thread-safe
        self._reading = threading.Thread(target=self._read, name="headrace-client", daemon=True)
        self._reading.start()

    def submit(
        self,
        payload: Value,
        *,
        deadline: float | None = None,
        slo_class: str = "",
        id: str = "",
        timeout: float | None = None,
    ) -> "Future[Answer]":
        """Send a query at once and return a future for its answer.

        ``deadline`` is in seconds from now; the default is the pipeline's SLO. After ``timeout``
        seconds (by default 4 beyond the deadline, or 30 without one) the future raises
        ``NoAnswer``; it raises ``BrokerError`` if the broker does not take the query and
        ``ClientClosed`` if the client is closed first. Raises ``TypeError``, ``ValueError`` and
        ``headrace.errors.Unsuccessful`` for a query that cannot be sent.
        """
        if self._raw and not isinstance(payload, bytes):
            raise TypeError(
                f"the payload is {type(payload).__name__}, but a raw input topic takes bytes; "
                'encode it, or say input="avro" if the pipeline file does'
            )
        now = time.time()
        name = id or f"{self._prefix}-{next(self._numbers)}"
        query = Query(
            payload=payload,
            id=name,
            deadline_s=None if deadline is None else now + deadline,
            slo_class=slo_class,
        )
        future = self._open.add(name, now, _patience(deadline, timeout))
        try:
            self._asker.ask(query)
        except BufferError:
            self._open.fail(name, _too_many())
        except Exception as error:
            if not self._closing.is_set():  # else the future has its error already
                self._open.fail(name, error)
                raise
        return future

    def ask(
        self,
        payload: Value,
        *,
        deadline: float | None = None,
        slo_class: str = "",
        id: str = "",
        timeout: float | None = None,
    ) -> Answer:
        """Send a query and return its answer; raises the errors of ``submit`` and its future."""
        return self.submit(
            payload, deadline=deadline, slo_class=slo_class, id=id, timeout=timeout
        ).result()

    async def ask_async(
        self,
        payload: Value,
        *,
        deadline: float | None = None,
        slo_class: str = "",
        id: str = "",
        timeout: float | None = None,
    ) -> Answer:
        """Send a query and await its answer; ``ask`` for event loops."""
        future = self.submit(
            payload, deadline=deadline, slo_class=slo_class, id=id, timeout=timeout
        )
        return await asyncio.wrap_future(future)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End queries in flight with ``ClientClosed`` and close the Kafka clients; idempotent."""
        self._closing.set()
        if threading.current_thread() is not self._reading:  # callbacks run in that thread
            self._reading.join()

    # ------------------------------------------------------------------ the thread

    def _read(self) -> None:
        ended: Exception = ClientClosed("the client is closed; open another one")
        try:
            while not self._closing.is_set():
                self._turn()
        except Exception as error:  # noqa: BLE001 - every future, present and later, raises it
            ended = error
        self._open.end(ended)
        self._asker.close()
        self._results.close()

    def _turn(self) -> None:
        records = self._results.take_keyed(TURN_S)
        for key, value in records:
            self._open.answer(key.decode(errors="replace"), value)
        self._asker.poll()
        self._asker.acknowledged.clear()  # unused here
        while self._asker.refused:
            name, reason = self._asker.refused.popitem()
            self._open.fail(name, BrokerError(f"the broker did not take {name}: {reason}"))
        self._open.expire(time.time())


def _asked(name: str, form: str, schema_registry: str) -> Pipeline:
    """Return a pipeline record with the name and topic forms only: all that a client needs."""
    if form not in WRITERS:
        raise ValueError(f"input is {form!r}; a pipeline takes {', '.join(WRITERS)}")
    if form == "confluent" and not schema_registry:
        raise ValueError('input is "confluent", which needs schema_registry="http://..." as well')
    return Pipeline(
        name=name, slo_s=0, tasks=(), policies=(), policy="", input=form,
        schema_registry=schema_registry,
    )  # fmt: skip


def _patience(deadline: float | None, timeout: float | None) -> float:
    if timeout is not None:
        return timeout
    return ANSWER_WITHIN_S if deadline is None else deadline + BEYOND_DEADLINE_S


def _too_many() -> BrokerError:
    return BrokerError(
        "too many queries wait for the broker to take them; ask fewer at once, and check that the "
        "broker keeps up"
    )
