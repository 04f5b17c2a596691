"""The raw gRPC client of the benchmarks behaves as the library."""

import asyncio

import pytest

from benchmarks.bare_grpc import bare_server
from benchmarks.raw_grpc import RawCalls
from headrace.gateway.protocol.descriptors import SERVICE
from tests.gateway_world import BrokerInTest, M, a_gateway, a_message, answering

INFER = f"/{SERVICE}/ModelInfer"


def called(model: str, times: int) -> list[bytes]:
    """Return the responses to consecutive calls of a gateway."""

    def make(port: int) -> list[bytes]:
        message = a_message(b"hello", model=model).SerializeToString()
        with RawCalls("127.0.0.1", port, INFER, message) as calls:
            return [calls.call() for _ in range(times)]

    async def play() -> list[bytes]:
        broker = BrokerInTest()
        broker.on_send = answering(broker)
        async with a_gateway(broker) as gateway:
            return await asyncio.to_thread(make, gateway.grpc)

    return asyncio.run(play())


def test_every_call_has_its_response() -> None:
    responses = [M.ModelInferResponse.FromString(each) for each in called("words", 3)]
    assert [response.model_name for response in responses] == ["words"] * 3
    assert len({response.id for response in responses}) == 3


def test_a_call_that_is_refused_has_no_message() -> None:
    with pytest.raises(ConnectionError, match="no message"):
        called("nobody", 1)


def test_the_bare_server_answers_with_the_bytes_of_the_request() -> None:
    message = a_message(b"hello").SerializeToString()
    with bare_server() as port, RawCalls("127.0.0.1", port, INFER, message) as calls:
        response = M.ModelInferResponse.FromString(calls.call())
    assert response.raw_output_contents == a_message(b"hello").raw_input_contents
