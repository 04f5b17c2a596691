"""The bytes of bodies in flight never exceed their budget and are all released."""

import asyncio
from contextlib import ExitStack, suppress
from dataclasses import replace

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.body_budget import BodyBudget
from headrace.gateway.protocol.statuses import Ending, Unserved
from tests.gateway_world import (
    LIMITS,
    BrokerInTest,
    a_gateway,
    a_message,
    an_answer,
    call,
    parts,
    posted,
    said_to,
    until,
)

MOST = 100


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120), st.booleans()), max_size=20))
def test_held_bytes_stay_within_the_budget_and_are_released(
    bodies: list[tuple[int, int, bool]],
) -> None:
    budget = BodyBudget(MOST)
    held = 0
    with ExitStack() as open_bodies:
        for announced, arrived, ends in bodies:
            with ExitStack() as body, suppress(Unserved):
                part = body.enter_context(budget.held(announced))
                part.shrink(arrived)
                if not ends:
                    held += min(announced, arrived)
                    open_bodies.push(body.pop_all())
            assert budget.used == held <= MOST
    assert budget.used == 0


def test_a_body_beyond_the_budget_is_refused_with_a_sentence() -> None:
    budget = BodyBudget(MOST)
    with budget.held(60), pytest.raises(Unserved, match="60 of 100 bytes") as raised:
        budget.held(41).__enter__()
    assert raised.value.status.ending is Ending.OVER_CAPACITY


async def test_bodies_of_requests_in_flight_count_over_both_protocols() -> None:
    broker = BrokerInTest()
    async with (
        a_gateway(broker, limits=replace(LIMITS, held_bytes=1000)) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel,
    ):
        first = asyncio.ensure_future(call(channel, "ModelInfer", a_message(b"x" * 700)))
        await until(lambda: len(broker.sent) == 1)
        sent = posted(b"x" * 400, Inference_Header_Content_Length="0")
        assert parts(await said_to(gateway.http, sent))[0] == 429
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(channel, "ModelInfer", a_message(b"x" * 400))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        broker.tell(an_answer(broker.sent[0].id))
        await first
        broker.on_send = lambda query: broker.tell(an_answer(query.id))
        assert parts(await said_to(gateway.http, sent))[0] == 200


async def test_a_body_that_has_not_arrived_counts_by_the_length_that_it_has() -> None:
    broker = BrokerInTest()
    broker.on_send = lambda query: broker.tell(an_answer(query.id))
    async with a_gateway(broker, limits=replace(LIMITS, held_bytes=1000)) as gateway:
        sent = posted(b"x" * 700, Inference_Header_Content_Length="0")
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http)
        writer.write(sent[:-1])
        await until(lambda: gateway.front.bodies.used == 700)
        assert parts(await said_to(gateway.http, sent))[0] == 429
        writer.write(sent[-1:])
        assert parts(await reader.read())[0] == 200
        writer.close()
