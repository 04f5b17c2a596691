"""The messages of gRPC calls."""

import asyncio
import sys
from typing import Any

import grpc
import pytest
from grpc.aio import EOF

from headrace.gateway.grpc.message_waits import MessageWaits
from headrace.gateway.protocol.descriptors import SERVICE
from headrace.gateway.protocol.statuses import Ending, Status, Unserved
from tests.gateway_world import BrokerInTest, a_gateway
from tests.virtual_loop import VirtualLoop

LONG_S = 60.0


class Come:
    """The context of a call whose messages have come."""

    def __init__(self, *held: bytes) -> None:
        self._held = iter(held)

    async def read(self) -> Any:
        return next(self._held, EOF)


def test_a_call_leaves_no_generator_to_the_loop() -> None:
    """grpc's iterator of a call's messages is one, which the loop closes in a task of its own."""
    generators: list[Any] = []

    async def play() -> None:
        async with (
            a_gateway(BrokerInTest()) as gateway,
            grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
        ):
            sys.set_asyncgen_hooks(firstiter=generators.append)
            await channel.unary_unary(f"/{SERVICE}/ServerLive")(b"")

    asyncio.run(play())
    assert generators == []


def test_a_call_without_a_message_is_a_bad_request() -> None:
    with pytest.raises(Unserved, match="the call has no message") as told:
        asyncio.run(MessageWaits(LONG_S).only(Come()))
    assert told.value.status.ending is Ending.BAD_REQUEST


async def test_each_of_several_messages_is_yielded() -> None:
    assert [each async for each in MessageWaits(LONG_S).timely(Come(b"a", b"b"))] == [b"a", b"b"]


class Coming:
    """The context of a call whose message comes after some seconds."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s

    async def read(self) -> bytes:
        await asyncio.sleep(self._after_s)
        return b"a"


class Timed(VirtualLoop):
    """Counts the timers that are set."""

    timers = 0

    def call_at(self, *args: Any, **more: Any) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(*args, **more)


def test_each_call_has_the_whole_time_for_its_message() -> None:
    loop = Timed()
    ends: list[tuple[str, Status | None, float]] = []

    async def call(name: str, at_s: float, after_s: float) -> None:
        await asyncio.sleep(at_s)
        try:
            await waits.only(Coming(after_s))
            ends.append((name, None, loop.time()))
        except Unserved as error:
            ends.append((name, error.status, loop.time()))

    async def play() -> None:
        calls = ("a", 0.1, 1.0), ("b", 1.0, 9.0), ("c", 2.0, 4.9), ("d", 3.0, 5.1), ("e", 20.0, 6.0)
        await asyncio.gather(*(call(*each) for each in calls))

    waits = MessageWaits(5.0)
    late = Status(ending=Ending.SLOW_CLIENT, text="the message did not arrive within 5 s")
    loop.run_until_complete(play())
    loop.close()
    assert [(name, status, round(at_s, 6)) for name, status, at_s in ends] == [
        ("a", None, 1.1), ("b", late, 6.0), ("c", None, 6.9), ("d", late, 8.0), ("e", late, 25.0),
    ]  # fmt: skip


def test_calls_whose_messages_come_at_once_share_one_timer() -> None:
    """Each had one, which cost 400 bytecodes."""
    loop, waits = Timed(), MessageWaits(LONG_S)

    async def play() -> None:
        for _ in range(100):
            await waits.only(Come(b"a"))

    loop.run_until_complete(play())
    loop.close()
    assert loop.timers == 1


def test_a_call_whose_client_leaves_is_cancelled() -> None:
    async def play() -> None:
        call = asyncio.create_task(MessageWaits(LONG_S).only(Coming(LONG_S)))
        await asyncio.sleep(0)
        call.cancel()
        await call

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(play())
