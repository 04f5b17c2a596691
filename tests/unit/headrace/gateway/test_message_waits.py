"""The messages of gRPC calls."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.gateway.grpc.grpc_calls import only, timely
from headrace.gateway.protocol.statuses import Ending, Unserved

LONG_S = 60.0


class Unary:
    """The messages of a call, as grpc hands them over."""

    def __init__(self, *held: bytes) -> None:
        self._held = iter(held)

    def __aiter__(self) -> "Unary":
        return self

    async def __anext__(self) -> bytes:
        for each in self._held:
            return each
        raise StopAsyncIteration


def test_the_message_of_a_call_leaves_no_task_to_the_loop() -> None:
    """Each call had a generator that the loop had to close, in a task of its own."""
    tasks = list[Coroutine[Any, Any, Any]]()

    def counted(loop: asyncio.AbstractEventLoop, asked: Any, **more: Any) -> asyncio.Task[Any]:
        tasks.append(asked)
        return asyncio.Task(asked, loop=loop, **more)

    async def play() -> tuple[bytes, int]:
        asyncio.get_running_loop().set_task_factory(counted)
        found = await only(Unary(b"a"), LONG_S)
        for _ in range(3):
            await asyncio.sleep(0)
        return found, len(tasks)

    assert asyncio.run(play()) == (b"a", 0)


def test_a_call_without_a_message_is_a_bad_request() -> None:
    with pytest.raises(Unserved, match="the call has no message") as told:
        asyncio.run(only(Unary(), LONG_S))
    assert told.value.status.ending is Ending.BAD_REQUEST


def test_each_of_several_messages_is_yielded() -> None:
    async def play() -> list[bytes]:
        return [each async for each in timely(Unary(b"a", b"b"), LONG_S)]

    assert asyncio.run(play()) == [b"a", b"b"]
