"""Queries of one turn of the loop are sent together; one that cannot be sent fails alone."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.formats import Headers
from headrace.errors import ClientClosed, Unsuccessful
from headrace.gateway.outgoing import Outgoing
from headrace.gateway.protocol.statuses import Ending, Unserved
from schemas.codec.single_object import CodecError
from schemas.records import Query
from streams.kafka.kafka_errors import BrokerError


def a_query(name: str) -> Query:
    return Query(payload=b"x", id=name)


async def test_the_queries_of_a_turn_are_sent_in_order_once_it_ends() -> None:
    sent: list[tuple[str, Headers]] = []
    outgoing = Outgoing(
        asyncio.get_running_loop(),
        lambda query, headers, _: sent.append((query.id, headers)),
        lambda name, error: pytest.fail(f"{name}: {error}"),
    )
    trace = [("traceparent", b"00-1")]
    outgoing.add(a_query("a"), trace)
    outgoing.add(a_query("b"), ())
    assert sent == []
    await asyncio.sleep(0)
    assert sent == [("a", trace), ("b", ())]
    outgoing.add(a_query("c"), ())
    await asyncio.sleep(0)
    assert sent[2:] == [("c", ())]


class Turns:
    """A loop whose time and turns the test controls."""

    def __init__(self) -> None:
        self.now = 5.0
        self._due: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None:
        self._due.append(call)

    def turn(self) -> None:
        due, self._due = self._due, []
        for call in due:
            call()


def test_the_queries_of_ten_milliseconds_share_a_partition_and_the_next_take_the_next() -> None:
    turns: Any = Turns()
    sent: dict[str, int] = {}
    outgoing = Outgoing(
        turns,
        lambda query, _, together: sent.update({query.id: together}),
        lambda name, error: pytest.fail(f"{name}: {error}"),
    )
    for name, at_s in (("a", 5.001), ("b", 5.001), ("c", 5.009), ("d", 5.011), ("e", 5.021)):
        turns.now = at_s
        outgoing.add(a_query(name), ())
        turns.turn()
    first = sent["a"]
    assert sent == {"a": first, "b": first, "c": first, "d": first + 1, "e": first + 2}


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (BrokerError("away"), Ending.UNAVAILABLE),
        (ClientClosed("closed"), Ending.UNAVAILABLE),
        (CodecError("no such field"), Ending.BAD_REQUEST),
        (Unsuccessful("too large"), Ending.TOO_LARGE),
        (RuntimeError("odd"), Ending.FAILED),
    ],
)
async def test_a_query_that_cannot_be_sent_ends_alone(error: Exception, ending: Ending) -> None:
    sent: list[str] = []
    refused: dict[str, Unserved] = {}

    def send(query: Query, _: Headers, __: int) -> None:
        if query.id == "bad":
            raise error
        sent.append(query.id)

    outgoing = Outgoing(asyncio.get_running_loop(), send, refused.__setitem__)
    for name in ("first", "bad", "last"):
        outgoing.add(a_query(name), ())
    await asyncio.sleep(0)
    assert sent == ["first", "last"]
    assert {name: why.status.ending for name, why in refused.items()} == {"bad": ending}
    assert str(error) in str(refused["bad"])
