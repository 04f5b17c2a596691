"""The queries in flight of a gateway, and the requests that wait for each. In the event loop.

The reading thread hands over the news of a whole turn in one call, with only the answers that
requests wait for: each hand-over wakes the loop, which costs more than a record. The thread also
decodes the answers, since that may involve a schema registry, for which the loop must not wait.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from headrace.client.exchange import BrokerNews
from headrace.client.formats import Read
from headrace.errors import NoAnswer
from headrace.gateway.result_watch import ResultWatch
from schemas.codec.single_object import CodecError
from schemas.records import Answer
from streams.kafka.kafka_errors import BrokerError

Waiter = asyncio.Future[Answer | None]
Ended = Callable[[Answer | None], None]

LOOK_EVERY_S = 0.25  # for expired queries; the largest delay of a timeout


def _nothing(_: Answer | None) -> None:
    """Do nothing: the caller needs no notice of the query's end."""


class _Query(Struct):
    due_s: float  # in the loop's time
    within_s: float
    digest: bytes
    ended: Ended
    acknowledged: bool = False  # set in the reading thread
    waiters: list[Waiter] = []
    takers: "list[asyncio.Future[None]]" = []  # wait for the broker


class RequestsInFlight:
    """Every query ends once: by its answer, its timeout, or an error. All but ``take`` and ``end``
    are called in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Read, watch: ResultWatch) -> None:
        self._loop = loop
        self._read = read
        self._watch = watch
        self._queries: dict[bytes, _Query] = {}
        # One timer for all: to set and cancel one per query took half of a query's time in this
        # class.
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, name: str) -> bool:
        return name.encode() in self._queries

    def add(self, name: str, within_s: float, digest: bytes = b"", ended: Ended = _nothing) -> None:
        """Open a query, which ends with ``NoAnswer`` at most ``LOOK_EVERY_S`` after ``within_s``;
        ``digest`` is of its request.

        ``ended`` gets its answer, or None if none arrives in that time.
        """
        due_s = self._loop.time() + within_s
        self._queries[name.encode()] = _Query(due_s, within_s, digest, ended)
        if self._look is None:
            self._look = self._loop.call_later(LOOK_EVERY_S, self._expire)

    def digest(self, name: str) -> bytes:
        """Return the digest of the request of a query in flight."""
        return self._queries[name.encode()].digest

    def fail(self, name: str, error: Exception) -> None:
        """End a query with an error, as one that was not sent."""
        self._fail(name.encode(), error)

    def waiter(self, name: str) -> Waiter:
        """Return a future of its own for the answer to a query in flight, or its error."""
        future: Waiter = self._loop.create_future()
        self._queries[name.encode()].waiters.append(future)
        return future

    def taken(self, name: str) -> "asyncio.Future[None]":
        """Return a future that is resolved once the broker has a query in flight."""
        query, future = self._queries[name.encode()], self._loop.create_future()
        query.takers.append(future)
        if query.acknowledged:  # after it joins the takers: the reading thread looks there last
            _resolve_taken(query)
        return future

    async def wait(self, name: str, seconds: float | None) -> Answer | None:
        """Return the answer to a query in flight, None if it does not arrive within ``seconds``
        (None: as long as the query is in flight).

        Raises the error that ends the query. A caller that is cancelled leaves the query in flight.
        """
        future: Waiter = self._loop.create_future()
        self._queries[name.encode()].waiters.append(future)
        if seconds is None:
            return await future
        patience = self._loop.call_later(seconds, _give_up, future)
        try:
            return await future
        finally:
            patience.cancel()

    # ------------------------------------------------------------------ from the reading thread

    def take(self, news: BrokerNews) -> None:
        """Hand the loop the news for this gateway."""
        queries, watched = self._queries, self._watch.wants
        answers = [
            (key, self._read_or_why(value))
            for key, value in news.records
            if key in queries or watched(key)
        ]
        taken = [query for name in news.acknowledged if (query := queries.get(name.encode()))]
        for query in taken:
            query.acknowledged = True
        asked = [query for query in taken if query.takers]
        if answers or asked or news.refused:
            self._loop.call_soon_threadsafe(self._give, answers, asked, news.refused)

    def _read_or_why(self, value: bytes) -> Answer | CodecError | BrokerError:
        try:
            return self._read(value)
        except (CodecError, BrokerError) as error:  # BrokerError: the schema registry
            return error

    def end(self, error: Exception) -> None:
        """End every query with an error."""
        self._loop.call_soon_threadsafe(self._end_all, error)

    # ------------------------------------------------------------------ in the loop

    def _give(
        self,
        answers: Sequence[tuple[bytes, Answer | CodecError | BrokerError]],
        taken: Sequence[_Query],
        refused: Mapping[str, BrokerError],
    ) -> None:
        for key, answer in answers:
            if isinstance(answer, Answer):
                self._end(key, answer)
                self._watch.give(key, answer)
            else:
                self._fail(key, answer)
        for query in taken:
            _resolve_taken(query)
        for name, error in refused.items():
            self._fail(name.encode(), error)

    def _end(self, key: bytes, answer: Answer) -> None:
        """End a query with its answer, if it is in flight here."""
        query = self._queries.pop(key, None)
        if query is None:
            return
        if query.takers:
            _resolve_taken(query)
        for waiter in query.waiters:
            if not waiter.done():
                waiter.set_result(answer)
        self._loop.call_soon(query.ended, answer)  # after the requests have their answer

    def _expire(self) -> None:
        """End the expired queries, and look again later if others are in flight."""
        now = self._loop.time()
        late = [(key, query) for key, query in self._queries.items() if now >= query.due_s]
        for key, query in late:
            self._fail(key, _no_answer(key.decode(), query.within_s))
            query.ended(None)
        self._look = None
        if self._queries:
            self._look = self._loop.call_later(LOOK_EVERY_S, self._expire)

    def _fail(self, key: bytes, error: Exception) -> None:
        query = self._queries.pop(key, None)
        if query is None:
            return
        for waiter in query.waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # mark as retrieved: the request may have left

    def _end_all(self, error: Exception) -> None:
        for key in list(self._queries):
            self._fail(key, error)


def _resolve_taken(query: _Query) -> None:
    for taker in query.takers:
        if not taker.done():
            taker.set_result(None)


def _give_up(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _no_answer(name: str, within_s: float) -> NoAnswer:
    return NoAnswer(
        f"no answer to {name} within {within_s:g} s; allow it more time, or check that the "
        "pipeline is up with `headrace status FILE --once`"
    )
