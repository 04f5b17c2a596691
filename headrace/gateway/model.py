"""A pipeline behind the gateway: requests become queries, answers responses.

A retry of a request in flight (same id and content) joins the query of the first request, so that
retries of a mesh or client cost no second query. A client that leaves cancels nothing: its query is
answered on Kafka, where any caller can find the answer by its id.
"""

import asyncio
import itertools
import time
import uuid
from functools import partial
from math import inf
from typing import Any

from msgspec import Struct

from headrace.client.formats import answer_reader
from headrace.client.open_loop import PATIENCE_S
from headrace.errors import NoAnswer
from headrace.gateway.answers_by_id import QUERY_ERRORS, AnswersById
from headrace.gateway.concurrency_limit import (
    AIM,
    ConcurrencyLimit,
    InFlight,
    time_to_answer_s,
    too_late,
    within_s,
)
from headrace.gateway.kafka_side import KafkaSide
from headrace.gateway.outgoing import Outgoing
from headrace.gateway.plans_in_force import fault
from headrace.gateway.protocol.callers import Caller, digest, named_query, query_deadline_s
from headrace.gateway.protocol.payloads import check_wanted, outputs_of, payload_of
from headrace.gateway.protocol.requests import InferRequest, InferResponse
from headrace.gateway.protocol.statuses import Ending, Status, Unserved, status_of
from headrace.gateway.requests_in_flight import RequestsInFlight
from headrace.gateway.result_watch import ResultWatch
from headrace.model_registry.signature import Signature
from schemas.codec.single_object import CodecError
from schemas.pipeline import Pipeline
from schemas.records import Answer, Plan, Query

TAKEN_WITHIN_S = 10.0  # by the broker, of a query whose caller does not wait for the answer


class Served(Struct, frozen=True):
    """A response, and how its query ended."""

    response: InferResponse
    status: Status


class Model:
    """One pipeline. Construct and use it in the event loop; closing waits for the broker.

    Raises ``BrokerError`` if the broker or the pipeline's topics are not available.
    """

    def __init__(
        self, pipeline: Pipeline, signature: Signature | None, kafka: KafkaSide, most_open: int
    ) -> None:
        self.pipeline = pipeline
        self.signature = signature
        self._loop = loop = asyncio.get_running_loop()
        self._limit = ConcurrencyLimit(loop.time())
        self.watch = ResultWatch(loop)
        self._open = RequestsInFlight(loop, answer_reader(pipeline), self.watch)
        self.answers = AnswersById(self._open, self.watch, kafka.find)
        self._plan, self._plans_ended = kafka.plan, kafka.plans_ended
        self._most_open = most_open
        self._exchange = kafka.connect(self._open)
        self._outgoing = Outgoing(loop, self._exchange.send, self._open.fail)
        self._prefix = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)
        self._judged: tuple[Plan | None, str] = (None, "")  # the last plan's fault
        self.joined = 0  # requests that joined another's query

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.pipeline.name

    @property
    def open(self) -> int:
        """The number of queries in flight."""
        return len(self._open)

    @property
    def limit(self) -> float:
        """The present limit on queries in flight; inf: none."""
        return self._limit.limit

    @property
    def broken(self) -> Exception | None:
        """The error after which no answer or plan can arrive; None while there is none."""
        return self._exchange.ended or self._plans_ended()

    def fault(self) -> str:
        """Return the reason that the pipeline takes no queries now, or ""."""
        if self._exchange.away:
            return f"the broker of pipeline {self.name} is away"
        plan = self._plan()
        if plan is not self._judged[0] or plan is None:
            self._judged = plan, fault(self.pipeline, plan)
        return self._judged[1]

    # ------------------------------------------------------------------ inference

    def check_wait(self, waited_s: float, caller: Caller) -> None:
        """Raise ``Unserved`` for a request that has waited too long for its handler to be answered
        within its SLO and its caller's time."""
        has_s = within_s(caller.timeout_s, self._slo_s(caller.slo_class))
        if waited_s > AIM * has_s:
            raise Unserved(
                Ending.OVER_CAPACITY,
                f"requests wait {waited_s * 1e3:.0f} ms here before they are read, and one of "
                f"{self.name} has {has_s * 1e3:.0f} ms",
            )

    async def infer(self, request: InferRequest, caller: Caller, began_s: float) -> Served:
        """Return the response to a request that came at ``began_s``; raise ``Unserved``."""
        return await self.answered(self.ask(request, caller, began_s), request, caller, began_s)

    async def answered(
        self, name: str, request: InferRequest, caller: Caller, began_s: float
    ) -> Served:
        """Return the response to a request whose query has the id ``name``; raise ``Unserved``."""
        until = None if caller.timeout_s is None else began_s + caller.timeout_s
        try:
            answer = await self._open.wait(name, None if until is None else until - time.time())
        except QUERY_ERRORS as error:
            raise _unserved(error) from None
        if answer is None:
            raise Unserved(
                Ending.PAST_DEADLINE, f"query {name} has no answer by the caller's deadline"
            )
        return self.served(answer, request, until)

    async def accept(self, request: InferRequest, caller: Caller, began_s: float) -> str:
        """Send the query of a request whose caller fetches the answer later; return its id.

        Returns once the broker has the query. Raises ``Unserved``.
        """
        name = self.ask(request, caller, began_s)
        self.answers.remember(name)
        taken, answer = self._open.taken(name), self._open.waiter(name)
        either: set[asyncio.Future[Any]] = {taken, answer}
        await asyncio.wait(either, timeout=TAKEN_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        failed = answer.exception() if answer.done() else None
        if failed is not None:
            raise _unserved(failed)
        if not taken.done():
            raise Unserved(
                Ending.UNAVAILABLE, f"the broker did not take query {name} in {TAKEN_WITHIN_S:g} s"
            )
        return name

    def served(self, answer: Answer, request: InferRequest, until: float | None = None) -> Served:
        """Return the response with an answer; raise ``Unserved`` if there is none.

        ``until`` is the caller's deadline, epoch seconds.
        """
        status = status_of(answer, until)
        if status.ending is not Ending.OK:
            raise Unserved(status.ending, status.text)
        outputs = outputs_of(answer.result, self.signature, request.outputs)
        marks = dict.fromkeys(status.marks, True)
        response = InferResponse(
            model=self.name, id=answer.id, outputs=tuple(outputs), parameters=marks
        )
        return Served(response, status)

    def ask(self, request: InferRequest, caller: Caller, began_s: float) -> str:
        """Send the query of a request that came at ``began_s``, unless it is in flight; return its
        id. Raises ``Unserved``."""
        if request.outputs:
            check_wanted(self.signature, request.outputs)
        payload = payload_of(request.inputs, self.signature, self.pipeline.input)
        content = digest(request, caller) if caller.id else b""
        name = self._id(caller, content)
        if name in self._open:
            self.joined += 1
            return name
        waited_s, slo_s = time.time() - began_s, self._slo_s(caller.slo_class)
        self._check_open(inf if caller.timeout_s is None else caller.timeout_s - waited_s)
        query = Query(
            payload=payload,
            id=name,
            deadline_s=query_deadline_s(began_s, caller.timeout_s, slo_s),
            slo_class=caller.slo_class,
            size=caller.size,
        )
        had_s = time_to_answer_s(caller.timeout_s, slo_s)
        ahead = len(self._open)
        joined = InFlight(self._loop.time() - waited_s, had_s, ahead)
        ended = partial(self._ended, joined)
        self._open.add(name, self._longest_s(slo_s), content, ended)
        if ahead:
            self._outgoing.add(query, caller.trace)
            return name
        try:
            self._outgoing.send(query, caller.trace)
        except Unserved as error:
            self._open.fail(name, error)
            raise
        return name

    def _ended(self, query: InFlight, answer: Answer | None) -> None:
        self._limit.ended(query, answer, self._loop.time())

    def _id(self, caller: Caller, content: bytes) -> str:
        """Return the id of the query in flight with that content, else one that is not in flight.

        Raises ``Unserved`` if the caller's own id belongs to another request.
        """
        name = named_query(caller, content) if caller.id else ""
        if name and (name not in self._open or self._open.digest(name) == content):
            return name
        if name and not caller.shared_id:
            raise Unserved(
                Ending.CONFLICT,
                f"another request with the id {caller.id[:80]!r} is in flight; give different "
                "requests different ids",
            )
        while (made := f"{self._prefix}-{next(self._numbers)}") in self._open:
            pass
        return made

    def _check_open(self, left_s: float) -> None:
        """Raise ``Unserved`` for a query that cannot be served, or not within ``left_s``."""
        why = self.fault()
        if why:
            raise Unserved(Ending.UNAVAILABLE, why)
        in_flight, now = len(self._open), self._loop.time()
        if in_flight >= self._most_open:
            raise Unserved(
                Ending.OVER_CAPACITY, f"{self._most_open} queries of {self.name} are in flight here"
            )
        if left_s < inf and left_s < (takes_s := self._limit.takes_s(in_flight, now)):
            raise Unserved(Ending.PAST_DEADLINE, too_late(self.name, takes_s, left_s))
        if not self._limit.admits(in_flight, now):
            raise Unserved(
                Ending.OVER_CAPACITY,
                f"{in_flight} queries of {self.name} are in flight here, and one more would be "
                "answered too late",
            )

    def _slo_s(self, slo_class: str) -> float:
        if slo_class:
            return self.pipeline.slo_classes[slo_class]
        plan = self._plan()
        return plan.settings.slo_s if plan else self.pipeline.slo_s

    def _longest_s(self, slo_s: float) -> float:
        """Return the latest time at which egress answers a query, in seconds after it was sent."""
        return slo_s + self.pipeline.grace_s + PATIENCE_S

    # ------------------------------------------------------------------ answers by id

    def holds(self, name: str) -> bool:
        """Return whether a query of that id is in flight here."""
        return name in self._open

    def close(self) -> None:
        """Close the Kafka clients."""
        self.answers.close()
        self._exchange.close()


def _unserved(error: BaseException) -> Unserved:
    """Return the reason that a query in flight ended without an answer."""
    if isinstance(error, Unserved):
        return error
    if isinstance(error, NoAnswer):
        return Unserved(Ending.PAST_DEADLINE, str(error))
    if isinstance(error, CodecError):
        return Unserved(Ending.FAILED, f"the answer cannot be read: {error}")
    return Unserved(Ending.UNAVAILABLE, str(error))
