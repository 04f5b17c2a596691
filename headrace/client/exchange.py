"""Queries to a pipeline's topics, and the one thread that reads their answers.

``headrace.Client`` and the gateway hold one ``Exchange`` each. It reads the results topic from its
end without a consumer group, so any number of processes may do so without rebalances. Each sees the
key of every record and decodes only those that it waits for.
"""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException
from msgspec import Struct

from headrace.client.formats import Headers
from headrace.client.topic_clients import Asker, Tail
from headrace.errors import ClientClosed
from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Query
from streams.kafka.connectivity import Connectivity
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

TURN_S = 0.05  # longest time without a turn, and between two looks for acknowledgements
LOOK_AGAIN_S = 1.0  # between two requests to an unreachable broker
T = TypeVar("T")


class BrokerNews(Struct, frozen=True):
    """The broker's news at ``now``: keys and values of the results topic's records, the ids of
    queries that it acknowledged, and those that it refused. ``now`` is in seconds of
    ``time.monotonic``."""

    now: float
    records: Sequence[tuple[bytes, bytes]]
    acknowledged: Collection[str]
    refused: Mapping[str, BrokerError]


class RequestHolder(Protocol):
    """A holder of waiting requests. Both methods are called in the reading thread."""

    def take(self, news: BrokerNews) -> None: ...
    def end(self, error: Exception) -> None: ...


class Exchange:
    """Sends queries to a pipeline and gives ``waiting`` every record of the results topic. Safe for
    several threads.

    Raises ``BrokerError`` if the broker or the pipeline's topics are not available.
    """

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline, waiting: RequestHolder) -> None:
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
        self._waiting = waiting
        self._look_s = self._polled_s = 0.0
        self._closing = threading.Event()
        self.ended: Exception | None = None  # the error that ended reading
        self._reading = threading.Thread(target=self._read, name="headrace-client", daemon=True)
        self._reading.start()

    @property
    def away(self) -> bool:
        """Whether the broker counts as away."""
        return self._connectivity.away

    def send(self, query: Query, headers: Headers = (), together: int | None = None) -> None:
        """Send a query that has an id; ``headers`` are added to those of its form.

        Queries with the same number ``together`` share a partition. Raises ``ClientClosed``,
        ``BrokerError`` while too many queries wait for the broker and
        ``headrace.errors.Unsuccessful`` for a query that is too large.
        """
        try:
            self._asker.ask(query, headers, together)
        except BufferError:
            raise BrokerError(
                "too many queries wait for the broker to take them; ask fewer at once, and check "
                "that the broker keeps up"
            ) from None
        except RuntimeError:
            if self._closing.is_set() or self.ended is not None:
                raise _closed() from None
            raise

    def close(self) -> None:
        """End queries in flight with ``ClientClosed`` and close the Kafka clients; idempotent."""
        self._closing.set()
        if threading.current_thread() is not self._reading:  # callbacks run in that thread
            self._reading.join()

    # ------------------------------------------------------------------ the thread

    def _read(self) -> None:
        ended: Exception = _closed()
        try:
            while not self._closing.is_set():
                self._turn()
        except Exception as error:  # noqa: BLE001 - every query, present and later, ends with it
            ended = error
        self.ended = ended
        self._waiting.end(ended)
        self._asker.close()
        self._results.close()

    def _turn(self) -> None:
        messages = self._results.messages(TURN_S)
        now = time.monotonic()
        if messages:
            records = [(message.key() or b"", message.value() or b"") for message in messages]
            self._waiting.take(BrokerNews(now, records, (), {}))
            if now < self._polled_s + TURN_S:
                return  # answered callers now wait for the interpreter's lock, not for the rest
        self._polled_s = now
        self._asker.poll()
        refused = {
            name: BrokerError(f"the broker did not take {name}: {reason}")
            for name, reason in _drained(self._asker.refused).items()
        }
        self._waiting.take(BrokerNews(now, (), _drained(self._asker.acknowledged), refused))
        self._look(now)

    def _look(self, now: float) -> None:
        """Log the broker's absence, and ask an absent one again."""
        self._connectivity.look(now)
        if self.away and now >= self._look_s:
            self._look_s = now + LOOK_AGAIN_S
            if self._asker.reached(LOOK_AGAIN_S):
                self._connectivity.answered(now)


def _drained(found: dict[str, T]) -> dict[str, T]:
    """Empty a dict that other threads fill, and return its items."""
    return dict(found.popitem() for _ in range(len(found)))


def _closed() -> ClientClosed:
    return ClientClosed("the client is closed; open another one")
