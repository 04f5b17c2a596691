"""A client of a gateway whose requests are whole: it must get its answers, whatever other clients
send."""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc

from benchmarks.gateway_fuzz.damage import Target
from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool

M = message_classes(pool())
RAW = {"Inference-Header-Content-Length": "0"}


@dataclass(slots=True)
class Answered:
    """The number of requests that had their own answer."""

    count: int = 0


@asynccontextmanager
async def honest_client(target: Target) -> AsyncIterator[Answered]:
    """Ask over HTTP and gRPC in turn during the block, and once more of each after it.

    Raises ``AssertionError`` for an answer to another request, and the client's error for a request
    without an answer.
    """
    answered = Answered()
    async with (
        aiohttp.ClientSession() as session,
        grpc.aio.insecure_channel(target.grpc) as channel,
    ):
        asking = asyncio.create_task(_ask(session, channel, target, answered))
        try:
            yield answered
        finally:
            asking.cancel()
            (failed,) = await asyncio.gather(asking, return_exceptions=True)
        if not isinstance(failed, asyncio.CancelledError):
            raise failed
        await _once(session, channel, target, "after it", answered)


async def _ask(
    session: aiohttp.ClientSession, channel: grpc.aio.Channel, target: Target, answered: Answered
) -> None:
    for number in itertools.count():
        await _once(session, channel, target, str(number), answered)


async def _once(
    session: aiohttp.ClientSession, channel: grpc.aio.Channel, target: Target, text: str,
    answered: Answered,
) -> None:  # fmt: skip
    await _by_http(session, target, f"{text} over http.")
    answered.count += 1
    await _by_grpc(channel, target, f"{text} over grpc.")
    answered.count += 1


async def _by_http(session: aiohttp.ClientSession, target: Target, text: str) -> None:
    # A connection of its own: one that idled could close while the request is on its way.
    url = f"http://{target.http}/v2/models/{target.model}/infer"
    headers = RAW | {"Connection": "close"}
    async with session.post(url, data=text.encode(), headers=headers) as response:
        body = await response.text()
        assert response.status == 200, body
        assert _result(text) in body, body


async def _by_grpc(channel: grpc.aio.Channel, target: Target, text: str) -> None:
    tensor = M.ModelInferRequest.InferInputTensor(name="input", datatype="BYTES", shape=[1])
    raw = len(text).to_bytes(4, "little") + text.encode()
    call = channel.unary_unary(
        f"/{SERVICE}/ModelInfer",
        request_serializer=M.ModelInferRequest.SerializeToString,
        response_deserializer=M.ModelInferResponse.FromString,
    )
    response: Any = await call(
        M.ModelInferRequest(model_name=target.model, inputs=[tensor], raw_input_contents=[raw])
    )
    assert _result(text).encode() in response.raw_output_contents[0], response


def _result(text: str) -> str:
    """Return a payload as a result's JSON has it."""
    return base64.b64encode(text.encode()).decode()
