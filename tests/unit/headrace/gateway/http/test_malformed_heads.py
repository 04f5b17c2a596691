"""A malformed HTTP head gets one sentence in JSON, and nothing is logged."""

import asyncio
import json

import pytest

from tests.gateway_world import BrokerInTest, a_gateway, got, parts, said_to


@pytest.mark.parametrize(
    "head",
    [
        b"no http at all\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nLong: " + b"a" * 10_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a client that speaks TLS
        b"GET http://[/v2 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=range(8),
)
def test_a_malformed_head_is_reported_in_json_and_not_logged(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> bytes:
        async with a_gateway(BrokerInTest()) as gateway:
            return await said_to(gateway.http, head)

    status, text, body = parts(asyncio.run(play()))
    assert (status, "content-type: application/json" in text) == (400, True), (text, body)
    assert json.loads(body)["error"]
    assert not caplog.records


@pytest.mark.parametrize("path", [b"/v2", b"/nowhere"])
def test_an_unknown_expectation_is_reported_in_json(path: bytes) -> None:
    head = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nExpect: x\r\nConnection: close\r\n\r\n"

    async def play() -> bytes:
        async with a_gateway(BrokerInTest()) as gateway:
            return await said_to(gateway.http, head)

    status, text, body = parts(asyncio.run(play()))
    assert (status, "content-type: application/json" in text) == (417, True), (text, body)
    assert f"content-length: {len(body)}\r\n" in text
    assert json.loads(body) == {"error": "417: Expectation Failed"}


def test_a_handler_that_fails_is_reported_in_json_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(name: str, since_s: float | None) -> None:
        raise ZeroDivisionError

    async def play() -> bytes:
        async with a_gateway(BrokerInTest(find=broken)) as gateway:
            return await said_to(gateway.http, got("/v2/models/words/answers/x"))

    status, _, body = parts(asyncio.run(play()))
    assert (status, json.loads(body)) == (
        500, {"error": "500: the gateway failed; its log says why"},
    )  # fmt: skip
    assert [record.levelname for record in caplog.records] == ["ERROR"]
