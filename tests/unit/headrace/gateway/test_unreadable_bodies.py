"""An unreadable body: the client gets an error, the connection closes, and nothing is logged."""

import asyncio

import pytest

from tests.gateway_world import BrokerInTest, a_gateway, said_to


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_body_with_a_wrong_encoding_gets_400_and_is_not_logged(
    coding: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = b"this is no compressed text"
    head = (
        "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n"
        f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def play() -> bytes:
        async with a_gateway(BrokerInTest()) as gateway:
            return await said_to(gateway.http, head.encode() + body)

    said = asyncio.run(play())
    assert said.startswith(b"HTTP/1.1 400 Bad Request")
    assert said.lower().count(b"connection: close") == 1
    assert not caplog.records
