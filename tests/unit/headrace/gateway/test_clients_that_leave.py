"""A client that disconnects or cancels is not a gateway failure."""

import asyncio
import socket
import struct

import grpc
import pytest

from tests.gateway_world import (
    BrokerInTest,
    a_gateway,
    a_message,
    call,
    counted,
    got,
    posted,
    said_to,
    until,
)

RAW = "Inference_Header_Content_Length"


async def test_a_client_that_leaves_over_http_is_counted_as_such() -> None:
    broker = BrokerInTest()
    async with a_gateway(broker) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.http)
        writer.write(posted(b"x", **{RAW: "0"}))
        await until(lambda: bool(broker.sent))
        writer.close()
        await until(lambda: bool(counted(gateway.front)))
        assert counted(gateway.front) == {("words", "http", "499"): 1.0}


def test_a_client_that_leaves_before_it_is_told_to_continue_leaves_no_trace_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        broker = BrokerInTest()
        async with a_gateway(broker) as gateway:
            for _ in range(10):
                client = socket.create_connection(("127.0.0.1", gateway.http))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(posted(b"x", Expect="100-continue"))
                client.close()  # by a reset
            assert b"200" in await said_to(gateway.http, got("/v2/health/live"))

    asyncio.run(play())
    assert not caplog.records


async def test_a_call_over_grpc_that_its_client_cancels_is_counted_as_such() -> None:
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
