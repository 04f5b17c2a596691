"""Request and reply over a pipeline's topics, from Python.

    with Client("localhost:9092", "postcode") as client:
        answer = client.ask(image, deadline=0.3)

Many queries may be in flight: ``submit`` returns a future, ``ask_async`` awaits one. Opening and
closing wait for the broker, so do not call them in an event loop.
"""

import asyncio
import itertools
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TypedDict, Unpack

from headrace.client.defaults import client_brokers, only_pipeline
from headrace.client.exchange import Exchange
from headrace.client.formats import WRITERS, answer_reader
from headrace.client.open_queries import OpenQueries
from headrace.client.query_arguments import query_of, seconds
from headrace.errors import ClientClosed, NoAnswer
from schemas.pipeline import Pipeline, QuerySize
from schemas.records import Answer, Value
from streams.kafka.kafka_client import reach
from streams.kafka.kafka_errors import BrokerError

__all__ = ["Client", "ClientClosed", "NoAnswer"]

OPENS_WITHIN_S = 5.0  # the longest wait for the broker at opening
ANSWER_WITHIN_S = 30.0  # the default timeout without a deadline: the client does not know the SLO
BEYOND_DEADLINE_S = 4.0  # egress's grace and the answer's transfer


class QueryArguments(TypedDict, total=False):
    """The arguments of ``Client.submit`` besides the payload."""

    deadline: float | str | None
    slo_class: str
    session: str
    size: int
    id: str
    timeout: float | str | None


class Client(AbstractContextManager["Client"]):
    """A client of a running pipeline. Safe for several threads and event loops at once.

    ``bootstrap`` defaults to HEADRACE_BOOTSTRAP or the local broker; ``pipeline``, the name in the
    pipeline file, to the only pipeline on it. ``input`` is the form that the file names: raw
    (payloads are bytes), avro or confluent (any ``schemas.records.Value``); ``size_header`` is the
    file's ``size.header``. ``properties`` are librdkafka's, for security. Answers may be JSON or
    Avro, and with ``schema_registry``, a URL, Avro in Confluent's framing.

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
        size_header: str = "headrace-size",
    ) -> None:
        asked = _asked(pipeline or "", input, schema_registry, size_header)
        kafka = client_brokers(bootstrap, properties or {})
        self._raw = input == "raw"
        reach(kafka, OPENS_WITHIN_S)  # fails fast without a broker
        if not pipeline:
            pipeline = only_pipeline(kafka)
            asked = _asked(pipeline, input, schema_registry, size_header)
        self._open = OpenQueries(answer_reader(asked))
        self._exchange = Exchange(kafka, asked, self._open)
        self._prefix = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)  # thread-safe

    def submit(
        self,
        payload: Value,
        *,
        deadline: float | str | None = None,
        slo_class: str = "",
        session: str = "",
        size: int = 1,
        id: str = "",
        timeout: float | str | None = None,
    ) -> "Future[Answer]":
        """Send a query at once and return a future for its answer.

        ``deadline`` is a time from now, in seconds or as a text such as "300ms"; the default is the
        pipeline's SLO. After ``timeout``, in the same forms (by default 4 s beyond the deadline, or
        30 s without one), the future raises ``NoAnswer``; it raises ``BrokerError`` if the broker
        does not take the query and ``ClientClosed`` if the client is closed first. ``session`` and
        ``size`` are those of the query, for pipelines that have them.

        Raises ``TypeError``, ``ValueError`` and ``headrace.errors.Unsuccessful`` for a query that
        cannot be sent.
        """
        deadline_s = seconds("deadline", deadline)
        patience_s = _patience(deadline_s, seconds("timeout", timeout))
        query = query_of(
            payload,
            id=id or f"{self._prefix}-{next(self._numbers)}",
            deadline_s=None if deadline_s is None else time.time() + deadline_s,
            slo_class=slo_class,
            session=session,
            size=size,
            raw=self._raw,
        )
        future = self._open.add(query.id, time.monotonic(), patience_s)
        try:
            self._exchange.send(query)
        except (BrokerError, ClientClosed) as error:
            self._open.fail(query.id, error)
        except Exception as error:
            self._open.fail(query.id, error)
            raise
        return future

    def ask(self, payload: Value, **arguments: Unpack[QueryArguments]) -> Answer:
        """Send a query and return its answer; arguments and errors are those of ``submit``, and the
        errors of its future."""
        return self.submit(payload, **arguments).result()

    async def ask_async(self, payload: Value, **arguments: Unpack[QueryArguments]) -> Answer:
        """Send a query and await its answer; ``ask`` for event loops."""
        return await asyncio.wrap_future(self.submit(payload, **arguments))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End queries in flight with ``ClientClosed`` and close the Kafka clients; idempotent."""
        self._exchange.close()


def _asked(name: str, form: str, schema_registry: str, size_header: str) -> Pipeline:
    """Return a pipeline record with the name, the topic forms and the header of sizes only: all
    that a client needs."""
    if form not in WRITERS:
        raise ValueError(f"input is {form!r}; a pipeline takes {', '.join(WRITERS)}")
    if form == "confluent" and not schema_registry:
        raise ValueError('input is "confluent", which needs schema_registry="http://..." as well')
    return Pipeline(
        name=name, slo_s=0, tasks=(), policies=(), policy="", input=form,
        schema_registry=schema_registry, size=QuerySize(most=1, header=size_header),
    )  # fmt: skip


def _patience(deadline: float | None, timeout: float | None) -> float:
    if timeout is not None:
        return timeout
    return ANSWER_WITHIN_S if deadline is None else deadline + BEYOND_DEADLINE_S
