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
from schemas.codec.single_object import CodecError, encode
from schemas.records import Answer
from streams.kafka.kafka_errors import BrokerError

REMEMBERED = 4096  # answers to queries whose callers did not wait
REMEMBERED_BYTES = 64 << 20  # of all these answers
SEARCHES = 2  # of the results topic at once
SEARCH_WITHIN_S = 10.0  # the shortest limit of a search, also for a caller that does not wait
# What ends a query in flight.
QUERY_ERRORS = (NoAnswer, CodecError, BrokerError, ClientClosed, Unserved)

Find = Callable[[str, float | None], Answer | None]


class RememberedAnswers:
    """The last answers that were added, as far as ``most`` and ``most_bytes`` allow."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._answers: OrderedDict[str, tuple[Answer, int]] = OrderedDict()
        self._bytes = 0

    def add(self, answer: Answer) -> None:
        """Remember an answer, and forget the oldest ones for which there is no room."""
        self._forget(answer.id)
        size = len(encode(answer))
        self._answers[answer.id] = answer, size
        self._bytes += size
        while len(self._answers) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._answers)))

    def get(self, name: str) -> Answer | None:
        """Return the answer of that id, if it is remembered."""
        held = self._answers.get(name)
        return held and held[0]

    def _forget(self, name: str) -> None:
        _, size = self._answers.pop(name, (None, 0))
        self._bytes -= size


class AnswersById:
    """The answers of one pipeline. Use it in the event loop; ``find`` is called in its own
    threads."""

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
        # A search occupies its thread to its end, even if its caller has left.
        self._searches = ThreadPoolExecutor(SEARCHES, "headrace-search")
        self._remembered = RememberedAnswers(REMEMBERED, REMEMBERED_BYTES)

    def remember(self, name: str) -> None:
        """Remember the answer to a query in flight when it arrives."""
        self._open.waiter(name).add_done_callback(self._keep)

    def _keep(self, future: Waiter) -> None:
        if not future.cancelled() and future.exception() is None:
            answer = future.result()
            assert answer is not None
            with contextlib.suppress(CodecError):  # the answer is on the results topic as well
                self._remembered.add(answer)

    async def answer(self, name: str, wait_s: float, since_s: float | None) -> Answer | None:
        """Return the answer to a query of any gateway; None if it does not arrive within
        ``wait_s``.

        Looks among the queries in flight, the remembered answers and the results topic, as far back
        as ``since_s``, epoch seconds. Raises ``Unserved`` if the topic cannot be read, or if a
        search takes longer than ``wait_s`` and ``search_within_s``.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        if name in self._open:
            with contextlib.suppress(*QUERY_ERRORS):  # the topic may have the answer
                answer = await self._open.wait(name, wait_s)
                if answer is not None or name in self._open:
                    return answer
        remembered = self._remembered.get(name)
        if remembered is not None:
            return remembered
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
        search.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
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
        """Start no more searches."""
        self._searches.shutdown(wait=False, cancel_futures=True)
