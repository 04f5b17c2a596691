"""Answers to queries of any gateway, by their ids: in flight, remembered, on the results topic."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable

from headrace.errors import ClientClosed, NoAnswer
from headrace.gateway.protocol.statuses import Unserved
from headrace.gateway.requests_in_flight import RequestsInFlight, Waiter
from headrace.gateway.result_watch import ResultWatch
from schemas.codec.single_object import CodecError
from schemas.records import Answer
from streams.kafka.kafka_errors import BrokerError

REMEMBERED = 4096  # answers to queries whose callers did not wait
SEARCHES = 2  # of the results topic at once
# What ends a query in flight.
QUERY_ERRORS = (NoAnswer, CodecError, BrokerError, ClientClosed, Unserved)

Find = Callable[[str, float | None], Answer | None]


class AnswersById:
    """The answers of one pipeline. In the event loop; ``find`` is called in threads."""

    def __init__(self, in_flight: RequestsInFlight, watch: ResultWatch, find: Find) -> None:
        self._open = in_flight
        self._watch = watch
        self._find = find
        self._searching = asyncio.Semaphore(SEARCHES)
        self._remembered: OrderedDict[str, Answer] = OrderedDict()

    def remember(self, name: str) -> None:
        """Keep the answer to a query in flight once it comes."""
        self._open.waiter(name).add_done_callback(lambda done: self._keep(name, done))

    def _keep(self, name: str, future: Waiter) -> None:
        if not future.cancelled() and future.exception() is None:
            answer = future.result()
            assert answer is not None
            self._remembered[name] = answer
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)

    async def answer(self, name: str, wait_s: float, since_s: float | None) -> Answer | None:
        """Return the answer to a query of any gateway; None if it does not come in ``wait_s``.

        Looks among the queries in flight, the remembered answers and the results topic, as far back
        as ``since_s``, epoch seconds.
        """
        if name in self._open:
            with contextlib.suppress(*QUERY_ERRORS):  # it may be on the results topic all the same
                answer = await self._open.wait(name, wait_s)
                if answer is not None or name in self._open:
                    return answer
        if name in self._remembered:
            return self._remembered[name]
        with self._watch.of(name) as coming:  # before the search, so that nothing is missed
            async with self._searching:
                found = await asyncio.to_thread(self._find, name, since_s)
            if found is None and wait_s > 0:
                await asyncio.wait({coming}, timeout=wait_s)
            return found or (coming.result() if coming.done() else None)
