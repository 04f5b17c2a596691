"""Forms of answers by id over HTTP."""

import asyncio
import json
import time

import pytest

from headrace.gateway.http.answer_api import KEPT_S
from headrace.model_registry.signature import Signature, TensorSpec
from tests.gateway_world import BrokerInTest, a_gateway, an_answer, got, parts, posted, said_to

SOUND = Signature((TensorSpec("input", "BYTES", (1,)),), (TensorSpec("sound", "BYTES", (1,)),))
ANSWER = "/v2/models/words/answers/mine"
OCTETS = "application/octet-stream"


async def test_answer_without_a_json_form_is_available_in_binary_form() -> None:
    broker = BrokerInTest(kept={"mine": an_answer("mine", b"\xff\xfe")})
    async with a_gateway(broker, SOUND) as gateway:
        status, _, body = parts(await said_to(gateway.http, got(ANSWER)))
        assert (status, f"Accept: {OCTETS}" in json.loads(body)["error"]) == (500, True)
        status, head, body = parts(await said_to(gateway.http, got(ANSWER, Accept=OCTETS)))
    json_length = int(head.split("inference-header-content-length: ")[1].split("\r\n")[0])
    assert (status, f"content-type: {OCTETS}" in head) == (200, True)
    output = json.loads(body[:json_length])["outputs"][0]
    assert output == {
        "name": "sound", "datatype": "BYTES", "shape": [1],
        "parameters": {"binary_data_size": 6},
    }  # fmt: skip
    assert body[json_length:] == b"\x02\0\0\0\xff\xfe"


async def test_a_time_in_the_future_is_refused() -> None:
    """Such as one in milliseconds: the answer would be pending for ever."""
    async with a_gateway(BrokerInTest()) as gateway:
        for since, status in (("1e300", 400), (f"{time.time() * 1e3:.0f}", 400), ("0", 404)):
            said = await said_to(gateway.http, got(f"{ANSWER}?since={since}"))
            assert parts(said)[0] == status
        near = f"{ANSWER}?since={time.time() + 60.0}"
        assert parts(await said_to(gateway.http, got(near)))[0] == 202


@pytest.mark.parametrize(("ago_s", "status"), [(60.0, 202), (KEPT_S - 5.0, 202), (KEPT_S, 404)])
def test_a_query_that_ingress_has_not_read_yet_is_pending(ago_s: float, status: int) -> None:
    """While ingress stood still, the address of an answer got 404, "none can come", from 12 s after
    the query on. The answer came when ingress was restarted."""

    async def play() -> int:
        async with a_gateway(BrokerInTest()) as gateway:
            asked = got(f"{ANSWER}?since={time.time() - ago_s}")
            return parts(await said_to(gateway.http, asked))[0]

    assert asyncio.run(play()) == status


@pytest.mark.parametrize(
    "preferences",
    [b"Prefer: respond-async", b"Prefer: Respond-Async, wait=10",
     b"Prefer: wait=10\r\nPrefer: respond-async"],
)  # fmt: skip
def test_a_caller_that_prefers_it_does_not_wait_for_the_answer(preferences: bytes) -> None:
    async def play() -> int:
        broker = BrokerInTest()
        broker.on_send = lambda query: broker.tell(acknowledged=(query.id,))
        request = posted(
            b"x", Inference_Header_Content_Length="0", headrace_timeout_ms="500"
        ).replace(b"Host: x", b"Host: x\r\n" + preferences)
        async with a_gateway(broker) as gateway:
            return parts(await said_to(gateway.http, request))[0]

    assert asyncio.run(play()) == 202
