"""Limits on what one client can hold of the gRPC port."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from headrace.gateway.protocol.descriptors import METHODS, SERVICE
from tests.gateway_world import LIMITS, BrokerInTest, a_gateway, a_message, answering, call
from tests.raw_http2 import (
    ACK,
    DATA,
    GOAWAY,
    PING,
    call_head,
    frame,
    message,
    next_frame,
    next_ping,
    opening,
)

REFLECTION = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WATCH = "/grpc.health.v1.Health/Watch"


@pytest.mark.parametrize("method", [*(f"{SERVICE}/{method}" for method in METHODS), REFLECTION])
async def test_a_call_ends_whose_message_does_not_come(method: str) -> None:
    async with (
        a_gateway(BrokerInTest(), limits=replace(LIMITS, body_s=0.05)) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        call = channel.stream_unary(f"/{method}")(timeout=20.0)
        told = await call.code(), await call.details()
    assert told == (
        grpc.StatusCode.DEADLINE_EXCEEDED, "the message did not arrive within 0.05 s",
    )  # fmt: skip


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"body_bytes": 2**40, "held_bytes": 2**40}, id="bytes of a body"),
        pytest.param({"idle_s": 1e8}, id="three years"),
        pytest.param({"requests": 2**40}, id="requests"),
    ],
)
async def test_limits_beyond_what_grpc_counts_are_as_high_as_it_counts(
    limits: dict[str, Any],
) -> None:
    broker = BrokerInTest()
    broker.on_send = answering(broker)
    async with (
        a_gateway(broker, limits=replace(LIMITS, **limits)) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        await call(channel, "ModelInfer", a_message(b"x"))


async def test_a_connection_beyond_the_limit_is_closed() -> None:
    limits = replace(LIMITS, connections=2)
    async with a_gateway(BrokerInTest(), limits=limits) as gateway:
        held = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.grpc)
            writer.write(opening())
            assert await reader.read(1)
            held.append(writer)
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.grpc)
        assert await reader.read() == b""
        for each in (*held, writer):
            each.close()


@pytest.mark.parametrize(
    ("sent", "pings"),
    [
        pytest.param(b"", 0, id="says nothing"),
        pytest.param(opening() + call_head(WATCH) + message(), 0, id="answers no ping"),
        pytest.param(opening() + call_head(WATCH) + message(), 1, id="vanishes during a call"),
    ],
)
async def test_a_client_is_cut_off_that(sent: bytes, pings: int) -> None:
    limits = replace(LIMITS, idle_s=0.2)
    async with a_gateway(BrokerInTest(), limits=limits) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.grpc)
        writer.write(sent)
        for _ in range(pings):
            writer.write(frame(PING, ACK, 0, await next_ping(reader)))
        async with asyncio.timeout(20.0):
            await reader.read()  # to the end
        writer.close()


async def test_a_call_that_comes_as_its_connection_ends_is_served() -> None:
    """gRPC would cut off a connection that idles, whatever its client has just sent."""
    async with a_gateway(BrokerInTest(), limits=replace(LIMITS, idle_s=0.2)) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.grpc)
        writer.write(opening())
        seen: list[int] = []
        async with asyncio.timeout(20.0):
            while DATA not in seen:  # the response
                kind, flags, payload = await next_frame(reader)
                if (kind, flags) == (PING, 0):
                    writer.write(frame(PING, ACK, 0, payload))
                if kind == GOAWAY and GOAWAY not in seen:
                    writer.write(call_head(f"/{SERVICE}/ServerLive") + message())
                seen.append(kind)
        assert GOAWAY in seen
        writer.close()
