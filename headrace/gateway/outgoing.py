"""Queries on their way to the broker: those of one turn of the event loop are sent together.

Requests come in bunches, since answers do. Sent between the handling of two requests, each query
would be a produce request of its own; sent one right after the other, the queries share a few. A
query waits only for the rest of the loop's turn, and not at all if no other is in flight.

A produce request is for one partition, and the records that follow from a query go to one of
egress's partitions. So the queries of ``TOGETHER_S`` share a partition, and the next ones take the
next partition.
"""

import asyncio
from collections.abc import Callable

from headrace.client.formats import Headers
from headrace.errors import ClientClosed, Unsuccessful
from headrace.gateway.protocol.statuses import Ending, Unserved
from schemas.codec.single_object import CodecError
from schemas.records import Query
from streams.kafka.kafka_errors import BrokerError

Send = Callable[[Query, Headers, int], None]  # queries with one number share a partition
Refused = Callable[[str, Unserved], None]

TOGETHER_S = 0.01  # as for ingress's notices to egress


class Outgoing:
    """Passes the queries of a turn of the loop to ``send`` at its end; ``refused`` gets the id of
    each unsent query and the reason. Use it in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send, refused: Refused) -> None:
        self._loop = loop
        self._send = send
        self._refused = refused
        self._queries: list[tuple[Query, Headers]] = []

    def send(self, query: Query, headers: Headers) -> None:
        """Send a query at once; raise ``Unserved`` if it cannot be sent."""
        try:
            self._send(query, headers, self._together())
        except Exception as error:  # noqa: BLE001 - as in a turn: its request ends, no other
            raise unsent(error) from None

    def add(self, query: Query, headers: Headers) -> None:
        """Send a query in this turn."""
        if not self._queries:
            self._loop.call_soon(self._flush)
        self._queries.append((query, headers))

    def _flush(self) -> None:
        queries, self._queries = self._queries, []
        together = self._together()
        for query, headers in queries:
            try:
                self._send(query, headers, together)
            except Exception as error:  # noqa: BLE001 - the others of this turn are to be sent
                self._refused(query.id, unsent(error))

    def _together(self) -> int:
        return int(self._loop.time() / TOGETHER_S)


def unsent(error: Exception) -> Unserved:
    """Return the reason that a query could not be sent."""
    if isinstance(error, BrokerError | ClientClosed):
        return Unserved(Ending.UNAVAILABLE, str(error))
    if isinstance(error, CodecError):
        return Unserved(Ending.BAD_REQUEST, str(error))
    ending = Ending.TOO_LARGE if isinstance(error, Unsuccessful) else Ending.FAILED
    return Unserved(ending, str(error))
