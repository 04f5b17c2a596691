"""Bytes in a request head that are not UTF-8 never cause a gateway failure."""

import asyncio

import pytest

from headrace.gateway.protocol.descriptors import SERVICE
from tests.gateway_world import (
    BrokerInTest,
    a_gateway,
    a_message,
    answering,
    parts,
    posted,
    said_to,
)
from tests.raw_http2 import call_head, message, opening

RAW = "Inference_Header_Content_Length"


def asked(request: bytes) -> tuple[int, str, bytes]:
    async def play() -> bytes:
        broker = BrokerInTest()
        broker.on_send = answering(broker)
        async with a_gateway(broker) as gateway:
            return await said_to(gateway.http, request)

    return parts(asyncio.run(play()))


def with_header(name: bytes) -> bytes:
    head, _, rest = posted(b"x", **{RAW: "0"}).partition(b"\r\n")
    return head + b"\r\n" + name + b": \xff\xfe\r\n" + rest


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (b"traceparent", 200),
        (b"tracestate", 200),
        (b"baggage", 200),
        (b"X-Request-Id", 400),
        (b"headrace-timeout-ms", 400),
        (b"headrace-slo-class", 400),
        (b"headrace-size", 400),
        (b"Prefer", 200),
        (b"Accept", 200),
        (b"Authorization", 200),
        (b"Expect", 400),
        (b"Other", 200),
    ],
)
def test_a_header_of_odd_bytes_is_left_out_or_the_clients_fault(name: bytes, status: int) -> None:
    found, head, body = asked(with_header(name))
    assert found == status, (head, body)


@pytest.mark.parametrize("name", ["traceparent", "tracestate", "baggage", "x-request-id"])
@pytest.mark.parametrize("value", [b"\xc3\xa9", b"\xe9", b"a\tb", b"\x7f"])
async def test_a_header_that_grpc_cannot_repeat_costs_no_answer(name: str, value: bytes) -> None:
    """Other libraries send such headers: baggage may be UTF-8."""
    broker = BrokerInTest()
    broker.on_send = answering(broker)
    asked = call_head(f"/{SERVICE}/ModelInfer", **{name: value})
    async with a_gateway(broker) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.grpc)
        writer.write(opening() + asked + message(a_message(b"x").SerializeToString()))
        said = await reader.readuntil(b"grpc-status")
        writer.close()
    assert (b"output" in said) == bool(
        broker.sent
    )  # a query has its answer; only ids must be ASCII


@pytest.mark.parametrize(
    "path",
    [
        b"/v2/models/\xff", b"/v2/models/%ff", b"/v2/models/words/answers/\xff",
        b"/v2/models/words/answers/%ff", b"/v2/models/words/answers/x?wait=\xff",
        b"/v2/models/words/answers/x?since=%ff", b"/\xff",
    ],
)  # fmt: skip
def test_a_path_of_odd_bytes_is_the_clients_fault(path: bytes) -> None:
    rest = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    status, head, body = asked(b"GET " + path + rest)
    assert status in (400, 404), (head, body)


def test_a_stream_of_an_odd_prefix_is_the_clients_fault() -> None:
    path = b"/v2/models/words/answers?prefix=\xff"
    status, head, body = asked(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == 400, (head, body)


@pytest.mark.parametrize("id_", [b"\\u0001", b"a\\nb", b"\\u009b", b"x" * 257])
def test_an_id_that_no_query_can_have_is_the_clients_fault(id_: bytes) -> None:
    """Ingress refuses such a query under another id, so its answer would never arrive."""
    tensor = b'{"name": "input", "datatype": "BYTES", "shape": [1], "data": ["x"]}'
    body = b'{"id": "' + id_ + b'", "inputs": [' + tensor + b"]}"
    status, head, told = asked(posted(body))
    assert status == 400, (head, told)
