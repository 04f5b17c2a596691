"""A gateway that shuts down wakes pending waiters and answers the requests in flight."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.gateway.grpc.health_and_reflection import WholeWrites
from headrace.gateway.result_watch import ResultWatch
from tests.gateway_world import (
    LIMITS,
    BrokerInTest,
    Gateway,
    a_gateway,
    a_message,
    an_answer,
    call,
    got,
    parts,
    posted,
    said_to,
    until,
)

LONG = replace(LIMITS, drain_s=60.0)
ANSWERS = "/v2/models/words/answers"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def going_down(broker: BrokerInTest) -> AsyncIterator[Gateway]:
    """A gateway with a drain time of one minute ends in less than 20 s."""
    async with asyncio.timeout(20.0), a_gateway(broker, limits=LONG) as gateway:
        yield gateway
        gateway.front.drain.set()


async def answer_once_closed(port: int, broker: BrokerInTest) -> None:
    with contextlib.suppress(OSError):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
    broker.tell(an_answer(broker.sent[0].id, "done"))


def watched(watch: ResultWatch, name: str) -> Callable[[], bool]:
    return lambda: watch.wants(name.encode())


async def test_long_poll_learns_that_the_gateway_is_shutting_down() -> None:
    async with going_down(BrokerInTest()) as gateway:
        poll = asyncio.create_task(said_to(gateway.http, got(f"{ANSWERS}/a?wait=60")))
        await until(watched(gateway.model.watch, "a"))
    status, head, body = parts(await poll)
    assert (status, "retry-after: 5" in head, b"going down" in body) == (503, True, True)


async def test_a_stream_ends_whole() -> None:
    broker = BrokerInTest()
    async with going_down(broker) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http)
        writer.write(got(f"{ANSWERS}?prefix=a"))
        await until(watched(gateway.model.watch, "a"))
        broker.tell(an_answer("a"))
        await reader.readuntil(b"event: answer")
    assert (await reader.read())[-5:] == b"0\r\n\r\n"
    writer.close()


async def test_a_watch_of_health_ends_as_not_serving() -> None:
    async with going_down(BrokerInTest()) as gateway:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}")
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="words")
        )
        seen = []
        async for each in watch:
            seen.append(each.status)
            if each.status == SERVING:
                gateway.front.drain.set()
        assert seen[-2:] == [SERVING, NOT_SERVING]
        await channel.close()


async def test_the_last_state_of_a_watch_waits_for_the_write_that_the_drain_interrupts() -> None:
    """gRPC refused the second write, and the watch ended with an error."""
    began: list[str] = []
    gates = {"serving": asyncio.Event(), "not serving": asyncio.Event()}

    class Context:
        async def write(self, message: str) -> None:
            began.append(message)
            await gates[message].wait()

    states = WholeWrites(Context())
    first = asyncio.create_task(states.write("serving"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    last = asyncio.create_task(states.write("not serving"))
    await asyncio.wait([first])
    assert began == ["serving"]
    for gate in gates.values():
        gate.set()
    await last
    assert began == ["serving", "not serving"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_a_request_in_flight_is_answered(protocol: str) -> None:
    async def over_http(gateway: Gateway) -> bytes:
        sent = posted(b"x", Inference_Header_Content_Length="0")
        status, _, body = parts(await said_to(gateway.http, sent))
        assert status == 200
        return body

    async def over_grpc(gateway: Gateway) -> bytes:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel:
            reply = await call(channel, "ModelInfer", a_message(b"x"))
        return bytes(reply.raw_output_contents[0])

    broker = BrokerInTest()
    asked = {"http": over_http, "grpc": over_grpc}[protocol]
    async with going_down(broker) as gateway:
        request = asyncio.create_task(asked(gateway))
        await until(lambda: bool(broker.sent))
        gateway.front.drain.set()
        answering = asyncio.create_task(answer_once_closed(gateway.http, broker))
    assert b"done" in await request
    await answering
