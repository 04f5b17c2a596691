"""An unreadable body: the client gets an error, no query is sent, and nothing is logged."""

import asyncio
import gzip

import pytest

from tests.gateway_world import BrokerInTest, a_gateway, posted, said_to


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_body_with_a_wrong_encoding_gets_400_and_is_not_logged(
    coding: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = b"this is no compressed text"
    head = (
        "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n"
        f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )

    async def play() -> bytes:
        async with a_gateway(BrokerInTest()) as gateway:
            return await said_to(gateway.http, head.encode() + body)

    said = asyncio.run(play())
    assert said.startswith(b"HTTP/1.1 400 Bad Request")
    assert said.lower().count(b"connection: close") == 1
    assert not caplog.records


@pytest.mark.parametrize("body", [b"{", b'{"a": "\xff"}', b"[" * 1_000])
def test_an_index_request_that_is_no_json_gets_400(body: bytes) -> None:
    head = (
        "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )

    async def play() -> bytes:
        async with a_gateway(BrokerInTest()) as gateway:
            return await said_to(gateway.http, head.encode() + body)

    assert asyncio.run(play()).startswith(b"HTTP/1.1 400 Bad Request")


async def test_a_payload_whose_gzip_is_cut_short_is_no_query() -> None:
    packed = gzip.compress(bytes(range(256)) * 2)
    head = {"Inference-Header-Content-Length": "0", "Content-Encoding": "gzip"}

    broker = BrokerInTest()
    async with a_gateway(broker) as gateway:
        said = await said_to(gateway.http, posted(packed[:-9], **head))
    assert said.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"cut short" in said
    assert not broker.sent
