"""Over gRPC, every service except health requires a token."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from headrace.gateway.grpc.health_and_reflection import MOST_STRANGERS
from headrace.gateway.protocol.descriptors import SERVICE
from tests.gateway_world import LIMITS, BrokerInTest, a_gateway

BEARER = (("authorization", "Bearer a-token"),)


async def services(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> list[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    found = []
    async for each in stub.ServerReflectionInfo(iter((question,)), metadata=metadata):
        found += [service.name for service in each.list_services_response.service]
    return found


async def test_reflection_needs_a_token_and_health_none(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token\n")

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


@pytest.mark.parametrize(
    "method",
    [f"{SERVICE}/ModelInfer", "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"],
)
def test_call_without_a_token_is_refused_before_its_message_has_come(
    method: str, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token\n")

    async def play() -> grpc.StatusCode:
        async with (
            a_gateway(BrokerInTest(), tokens=tokens) as gateway,
            grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
        ):
            return await channel.stream_unary(f"/{method}")(timeout=20.0).code()

    assert asyncio.run(play()) is grpc.StatusCode.UNAUTHENTICATED


async def test_health_ends_a_call_whose_message_does_not_come(tmp_path: Path) -> None:
    limits = replace(LIMITS, body_s=0.05)

    async with (
        a_gateway(BrokerInTest(), limits=limits) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        call = channel.stream_unary("/grpc.health.v1.Health/Check")()
        code, why = await call.code(), await call.details()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert why == "the message did not arrive within 0.05 s"


async def test_watchers_without_a_token_leave_places_for_callers_with_one(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token\n")
    question = health_pb2.HealthCheckRequest()

    async with (
        a_gateway(BrokerInTest(), tokens=tokens) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        watches = [health.Watch(question) for _ in range(MOST_STRANGERS)]
        for each in watches:
            await each.read()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await health.Check(question)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await health.Check(question, metadata=BEARER)
        watches[0].cancel()

        async def admitted() -> bool:
            return await health.Check(question).code() is grpc.StatusCode.OK

        async with asyncio.timeout(20.0):
            while not await admitted():
                pass
