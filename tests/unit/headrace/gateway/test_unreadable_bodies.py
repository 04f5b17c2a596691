"""A body that cannot be read: the client is told, its connection closed, and nothing is logged."""

import asyncio

import pytest

from headrace.gateway.access import tokens_in
from headrace.gateway.front import Front
from headrace.gateway.http_api import HttpApi
from headrace.gateway.listeners import HttpListener, Limits
from headrace.gateway.request_counts import RequestCounts

MOST_BYTES = 1000
LIMITS = Limits(
    body_bytes=MOST_BYTES, connections=10, requests=10, idle_s=5.0, body_s=5.0, drain_s=1.0
)


async def said_to(request: bytes) -> bytes:
    """Return all that a gateway without models says on a connection until it closes it."""
    front = Front({}, RequestCounts({}), tokens_in(None))
    listener = HttpListener(HttpApi(front, LIMITS.body_s).app(MOST_BYTES), LIMITS)
    port = await listener.start("127.0.0.1", 0, None, share=False)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        said = await reader.read()
        writer.close()
        await writer.wait_closed()
    finally:
        await listener.close()
    return said


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_body_that_is_not_coded_as_said_gets_400_and_no_trace_in_the_log(
    coding: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = b"this is no compressed text"
    head = (
        "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n"
        f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    said = asyncio.run(said_to(head.encode() + body))
    assert said.startswith(b"HTTP/1.1 400 Bad Request")
    assert said.lower().count(b"connection: close") == 1
    assert not caplog.records
