"""Answers to queries of any gateway, by their ids: in flight, remembered, on the results topic."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.errors import ClientClosed, NoAnswer
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.requests_in_flight import RequestsInFlight, Waiter
from headrace.gateway.result_watch import ResultWatch
from schemas.codec.single_object import CodecError
from schemas.records import Answer
from streams.kafka.kafka_errors import BrokerError

REMEMBERED = 4096  # answers to queries whose callers did not wait
SEARCHES = 2  # of the results topic at once
SEARCH_WITHIN_S = 10.0  # a search may take as long, also for a caller that does not wait
# What ends a query in flight.
QUERY_ERRORS = (NoAnswer, CodecError, BrokerError, ClientClosed, Unserved)

Find = Callable[[str, float | None], Answer | None]


class AnswersById:
    """The answers of one pipeline. In the event loop; ``find`` is called in threads of its own."""

    def __init__(
        self,
        in_flight: RequestsInFlight,
        watch: ResultWatch,
        find: Find,
        search_within_s: float = SEARCH_WITHIN_S,
    ) -> None:
        self._open = in_flight
        self._watch = watch
        self._find = find
        self._search_within_s = search_within_s
        # A search whose caller has left holds its thread to its end.
        self._searches = ThreadPoolExecutor(SEARCHES, "headrace-search")
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
        as ``since_s``, epoch seconds. Raises ``Unserved`` if the topic cannot be read, or has not
        been searched after ``wait_s``, and ``search_within_s`` at least.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        if name in self._open:
            with contextlib.suppress(*QUERY_ERRORS):  # it may be on the results topic all the same
                answer = await self._open.wait(name, wait_s)
                if answer is not None or name in self._open:
                    return answer
        if name in self._remembered:
            return self._remembered[name]
        with self._watch.of(name) as coming:  # before the search, so that nothing is missed
            found = await self._searched(name, since_s, coming, until)
            if found is None and not coming.done():
                await asyncio.wait({coming}, timeout=max(until - loop.time(), 0.0))
            return coming.result() if coming.done() else found

    async def _searched(
        self, name: str, since_s: float | None, coming: "asyncio.Future[Answer]", until: float
    ) -> Answer | None:
        """Return the answer on the results topic, unless ``coming`` is done first."""
        loop = asyncio.get_running_loop()
        search = loop.run_in_executor(self._searches, self._find, name, since_s)
        search.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen
        seconds = max(until - loop.time(), self._search_within_s)
        either: set[asyncio.Future[Any]] = {search, coming}
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return None
            if not search.done():
                raise Unserved(
                    Ending.UNAVAILABLE,
                    f"the results topic has not been searched for {name[:80]!r} in {seconds:.0f} "
                    "s; ask again",
                )
            return search.result()
        except BrokerError as error:
            raise Unserved(Ending.UNAVAILABLE, str(error)) from None
        finally:
            search.cancel()

    def close(self) -> None:
        """Begin no more searches."""
        self._searches.shutdown(wait=False, cancel_futures=True)
