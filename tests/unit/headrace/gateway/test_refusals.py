"""Refusals over both protocols: the status and the time of a retry."""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.gateway_world import (
    LIMITS,
    BrokerInTest,
    Gateway,
    a_gateway,
    a_message,
    a_plan,
    call,
    parts,
    posted,
    said_to,
    until,
)


async def refused(
    channel: grpc.aio.Channel, message: Any
) -> tuple[grpc.StatusCode, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call(channel, "ModelInfer", message, timeout=20.0)
    trailing = raised.value.trailing_metadata()
    return raised.value.code(), {name: str(value) for name, value in trailing or ()}


async def refused_over_http(gateway: Gateway) -> tuple[int, str]:
    sent = posted(b"x", Inference_Header_Content_Length="0")
    status, head, _ = parts(await said_to(gateway.http, sent))
    return status, head


def after(trailing: Mapping[str, str]) -> tuple[str | None, str | None]:
    return trailing.get("retry-after"), trailing.get("grpc-retry-pushback-ms")


async def test_requests_beyond_the_limit_get_a_retry_after() -> None:
    broker = BrokerInTest()
    async with (
        a_gateway(broker) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(4)]
        calls = [
            asyncio.ensure_future(call(channel, "ModelInfer", a_message(b"x")))
            for _ in range(LIMITS.requests)
        ]
        await until(lambda: len(broker.sent) == LIMITS.requests)
        code, trailing = await refused(channel, a_message(b"x"))
        assert (code, after(trailing)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED, ("1", "1000"),
        )  # fmt: skip
        status, head = await refused_over_http(gateway)
        assert (status, "retry-after: 1" in head) == (429, True)
        await health.Check(health_pb2.HealthCheckRequest())
        for each in (*watches, *calls):
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_paused_pipeline_is_unavailable_over_both() -> None:
    async with (
        a_gateway(BrokerInTest(plan=a_plan(paused=True))) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        code, trailing = await refused(channel, a_message(b"x"))
        assert (code, after(trailing)) == (grpc.StatusCode.UNAVAILABLE, ("5", None))
        status, head = await refused_over_http(gateway)
        assert (status, "retry-after: 5" in head) == (503, True)


async def test_a_grpc_message_over_the_limit_is_refused() -> None:
    async with (
        a_gateway(BrokerInTest()) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        code, _ = await refused(channel, a_message(b"x" * (LIMITS.body_bytes + 1)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
