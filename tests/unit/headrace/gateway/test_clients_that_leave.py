"""A client that leaves, or cancels, is no failure of the gateway's."""

import asyncio

import grpc

from tests.gateway_world import (
    BrokerInTest,
    a_gateway,
    a_message,
    call,
    counted,
    posted,
    until,
)

RAW = "Inference_Header_Content_Length"


def test_a_client_that_leaves_over_http_is_counted_as_such() -> None:
    async def play() -> None:
        broker = BrokerInTest()
        async with a_gateway(broker) as gateway:
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.http)
            writer.write(posted(b"x", **{RAW: "0"}))
            await until(lambda: bool(broker.sent))
            writer.close()
            await until(lambda: bool(counted(gateway.front)))
            assert counted(gateway.front) == {("words", "http", "499"): 1.0}

    asyncio.run(play())


def test_a_call_over_grpc_that_its_client_cancels_is_counted_as_such() -> None:
    async def play() -> None:
        broker = BrokerInTest()
        async with (
            a_gateway(broker) as gateway,
            grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
        ):
            calling = call(channel, "ModelInfer", a_message(b"x"), timeout=60.0)
            await until(lambda: bool(broker.sent))
            calling.cancel()
            await until(lambda: bool(counted(gateway.front)))
            assert counted(gateway.front) == {("words", "grpc", "499"): 1.0}

    asyncio.run(play())
