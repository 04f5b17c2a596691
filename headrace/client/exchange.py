"""Queries in flight over a pipeline's topics, and the one thread that reads their answers.

``headrace.Client`` and the gateway hold one ``Exchange`` each. It reads the results topic from its
end without a consumer group, so any number of processes may do so, and none of them rebalances
another; each sees the key of every record and decodes only those that it waits for.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaException

from headrace.client.formats import Headers, Read, reader_of
from headrace.client.topic_clients import Asker, Tail
from headrace.errors import ClientClosed, NoAnswer
from schemas.codec.single_object import CodecError
from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Answer, Query
from streams.kafka.connectivity import Connectivity
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

TURN_S = 0.05  # the largest delay of a timeout
T = TypeVar("T")
Seen = Callable[[bytes, bytes], None]  # the key and value of a record of the results topic

LOOK_AGAIN_S = 1.0  # between two questions to a broker that is away


class Open:
    """The queries in flight. Thread-safe.

    Every future is resolved once: by its answer, its timeout, or an error.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._ended: Exception | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, name: str, now: float, within_s: float, taken: "Future[None] | None" = None
    ) -> Future[Answer]:
        """Return a future for a query; raises ``ValueError`` for an id in flight, and the error
        given to ``end``.

        ``taken`` is resolved once the broker has the query; if it does not take it, never.
        """
        future: Future[Answer] = Future()
        with self._lock:
            if self._ended is not None:
                raise self._ended
            if name in self._waiting:
                raise ValueError(f"a query {name!r} is in flight already; give each its own id")
            self._waiting[name] = _Waiting(future, now + within_s, within_s, taken)
        return future

    def answer(self, name: str, value: bytes) -> None:
        """Resolve a query in flight with a record of the results topic; ignore any other id."""
        held = self._take(name)
        if held is None:
            return
        _resolve(held.taken, None)
        try:
            _resolve(held.answer, self._read(value))
        except (CodecError, BrokerError) as error:  # BrokerError: the schema registry
            _fail(held.answer, error)

    def taken(self, name: str) -> None:
        """Record that the broker has a query."""
        with self._lock:
            held = self._waiting.get(name)
        if held is not None:
            _resolve(held.taken, None)

    def fail(self, name: str, error: Exception) -> None:
        """Resolve a query with an error."""
        held = self._take(name)
        if held is not None:
            _fail(held.answer, error)

    def expire(self, now: float) -> None:
        """Resolve the queries whose timeout has passed with ``NoAnswer``."""
        with self._lock:
            late = [(name, w.within_s) for name, w in self._waiting.items() if now > w.due_s]
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

    def _take(self, name: str) -> "_Waiting | None":
        with self._lock:
            return self._waiting.pop(name, None)


@dataclass(frozen=True, slots=True)
class _Waiting:
    answer: Future[Answer]
    due_s: float
    within_s: float
    taken: "Future[None] | None"


def _resolve(future: "Future[T] | None", value: T) -> None:
    if future is not None and not future.done() and future.set_running_or_notify_cancel():
        future.set_result(value)


def _fail(future: Future[Answer], error: Exception) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)


class Exchange:
    """Sends queries to a pipeline and gives each its answer. Safe for several threads.

    ``seen`` gets every record of the results topic, in the reading thread. Raises ``BrokerError``
    if the broker or the pipeline's topics are not available.
    """

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline, seen: Seen | None = None) -> None:
        self._connectivity = Connectivity(kafka)
        self._topic = physical(pipeline.name, RESULTS)
        self._results = Tail(kafka, self._topic)
        try:
            self._asker = Asker(kafka, pipeline, self._connectivity.failed_request)
        except KafkaException as error:
            self._results.close()
            raise BrokerError(f"no broker takes queries: {error.args[0].str()}") from error
        except BaseException:
            self._results.close()
            raise
        self._open = Open(reader_of(pipeline))
        self._seen = seen
        self._look_s = 0.0
        self._closing = threading.Event()
        self.ended: Exception | None = None  # why nothing is read any more
        self._reading = threading.Thread(target=self._read, name="headrace-client", daemon=True)
        self._reading.start()

    @property
    def away(self) -> bool:
        """Whether the broker counts as away."""
        return self._connectivity.away

    def __len__(self) -> int:
        """Return the number of queries in flight."""
        return len(self._open)

    def send(
        self,
        query: Query,
        now: float,
        within_s: float,
        taken: "Future[None] | None" = None,
        headers: Headers = (),
    ) -> Future[Answer]:
        """Send a query, which has an id, with ``headers`` of Kafka's beside those of its form;
        return a future for its answer.

        The future raises ``NoAnswer`` after ``within_s``, ``BrokerError`` if the broker does not
        take the query and ``ClientClosed`` if the exchange is closed first. ``taken`` is resolved
        once the broker has the query. Raises ``ValueError`` for an id in flight and
        ``headrace.errors.Unsuccessful`` for a query that is too large.
        """
        name = query.id
        future = self._open.add(name, now, within_s, taken)
        try:
            self._asker.ask(query, headers)
        except BufferError:
            self._open.fail(name, _too_many())
        except Exception as error:
            if not self._closing.is_set():  # else the future has its error already
                self._open.fail(name, error)
                raise
        return future

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
        self.ended = ended
        self._open.end(ended)
        self._asker.close()
        self._results.close()

    def _turn(self) -> None:
        for message in self._results.messages(TURN_S):
            key, value = message.key() or b"", message.value() or b""
            self._open.answer(key.decode(errors="replace"), value)
            if self._seen is not None:
                self._seen(key, value)
        self._asker.poll()
        while self._asker.acknowledged:
            self._open.taken(self._asker.acknowledged.popitem()[0])
        while self._asker.refused:
            name, reason = self._asker.refused.popitem()
            self._open.fail(name, BrokerError(f"the broker did not take {name}: {reason}"))
        now = time.time()
        self._open.expire(now)
        self._look(now)

    def _look(self, now: float) -> None:
        """Log the broker's absence, and ask an absent one again."""
        self._connectivity.look(now)
        if self.away and now >= self._look_s:
            self._look_s = now + LOOK_AGAIN_S
            if self._asker.reached(LOOK_AGAIN_S):
                self._connectivity.answered(now)


def _too_many() -> BrokerError:
    return BrokerError(
        "too many queries wait for the broker to take them; ask fewer at once, and check that the "
        "broker keeps up"
    )
