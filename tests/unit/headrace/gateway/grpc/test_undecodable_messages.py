"""Undecodable bytes: the gRPC caller gets an error, and nothing is logged."""

import asyncio

import grpc
import pytest

from headrace.gateway.protocol.descriptors import METHODS, SERVICE
from tests.gateway_world import BrokerInTest, a_gateway, counted

NONE = b"\xff\xff\xff"
EMPTY = ("ServerLive", "ServerReady", "ServerMetadata")  # their requests have no fields to read
HEALTH, REFLECTION = "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"


async def code_of(channel: grpc.aio.Channel, method: str) -> grpc.StatusCode:
    if method.startswith(REFLECTION):
        call = channel.stream_stream(f"/{method}")(iter((NONE,)))
    elif method.endswith("Watch"):
        call = channel.unary_stream(f"/{method}")(NONE)
    else:
        call = channel.unary_unary(f"/{method}")(NONE)
    return await call.code()


@pytest.mark.parametrize(
    "method",
    [
        *(f"{SERVICE}/{name}" for name in METHODS if name not in EMPTY),
        *(f"{HEALTH}/{name}" for name in ("Check", "List", "Watch")),
        f"{REFLECTION}/ServerReflectionInfo",
    ],
)
def test_a_message_that_is_none_is_the_callers_fault_and_not_logged(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> tuple[grpc.StatusCode, dict[tuple[str, ...], float]]:
        async with (
            a_gateway(BrokerInTest()) as gateway,
            grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
        ):
            return await code_of(channel, method), counted(gateway.front)

    code, requests = asyncio.run(play())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert requests == ({("", "grpc", "400"): 1.0} if method.endswith("ModelInfer") else {})
    assert not caplog.records
