"""Over gRPC, every service except health requires a token."""

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.gateway_world import BrokerInTest, a_gateway

BEARER = (("authorization", "Bearer a-token"),)


async def services(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> list[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    found = []
    async for each in stub.ServerReflectionInfo(iter((question,)), metadata=metadata):
        found += [service.name for service in each.list_services_response.service]
    return found


def test_reflection_needs_a_token_and_health_none(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token\n")

    async def play() -> None:
        async with (
            a_gateway(BrokerInTest(), tokens=tokens) as gateway,
            grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
        ):
            assert "inference.GRPCInferenceService" in await services(channel, BEARER)
            health = health_pb2_grpc.HealthStub(channel)
            await health.Check(health_pb2.HealthCheckRequest())
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await services(channel, ())
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED

    asyncio.run(play())
