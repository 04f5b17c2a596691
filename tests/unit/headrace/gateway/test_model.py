"""Requests of a model: joined, accepted, refused."""

import asyncio

import pytest

from headrace.gateway.protocol.callers import Caller
from headrace.gateway.protocol.requests import InferRequest
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import bytes_tensor
from streams.kafka.kafka_errors import BrokerError
from tests.gateway_world import BrokerInTest, a_model, a_plan, an_answer

REQUEST = InferRequest(inputs=(bytes_tensor("input", [b"x"], [1]),))
MINE = Caller(id="mine")


def test_an_accepted_query_is_answered_and_its_answer_kept() -> None:
    async def play() -> None:
        broker = BrokerInTest()
        model = a_model(broker)
        taken = asyncio.ensure_future(model.accept(REQUEST, MINE, 1.0))
        broker.on_send = lambda query: broker.tell(acknowledged=(query.id,))
        assert await taken == "mine"
        broker.tell(an_answer("mine"))
        answer = await model.answers.answer("mine", 5.0, None)
        assert answer is not None
        assert (answer.id, answer.result) == ("mine", b"result")

    asyncio.run(play())


def test_a_query_that_the_broker_refuses_is_accepted_by_no_request_that_joined_it() -> None:
    async def play() -> None:
        broker = BrokerInTest()
        model = a_model(broker)
        both = [asyncio.ensure_future(model.accept(REQUEST, MINE, 1.0)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [query.id for query in broker.sent] == ["mine"]
        broker.tell(refused={"mine": BrokerError("the broker is away")})
        ends = await asyncio.gather(*both, return_exceptions=True)
        assert [type(end) for end in ends] == [Unserved, Unserved]
        assert [e.status.ending for e in ends if isinstance(e, Unserved)] == [
            Ending.UNAVAILABLE, Ending.UNAVAILABLE,
        ]  # fmt: skip

    asyncio.run(play())


@pytest.mark.parametrize("acknowledged_first", [True, False])
def test_a_request_that_joins_is_accepted_once_the_broker_has_the_query(
    acknowledged_first: bool,
) -> None:
    async def play() -> None:
        broker = BrokerInTest()
        model = a_model(broker)
        waits = asyncio.ensure_future(model.infer(REQUEST, MINE, 1.0))
        await asyncio.sleep(0)
        if acknowledged_first:  # which nobody asked about then
            broker.tell(acknowledged=("mine",))
        joins = asyncio.ensure_future(model.accept(REQUEST, MINE, 1.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not acknowledged_first:
            assert not joins.done()
            broker.tell(acknowledged=("mine",))
        assert await joins == "mine"
        assert (model.joined, waits.done()) == (1, False)
        broker.tell(an_answer("mine"))
        await waits

    asyncio.run(play())


@pytest.mark.parametrize("paused", [True, False])
def test_a_retry_joins_its_query_where_no_new_one_would_be_taken(paused: bool) -> None:
    async def play() -> None:
        broker = BrokerInTest()
        model = a_model(broker, most_open=1)
        first = asyncio.ensure_future(model.infer(REQUEST, MINE, 1.0))
        await asyncio.sleep(0)
        if paused:
            broker.plan = a_plan(paused=True)
        again = asyncio.ensure_future(model.infer(REQUEST, MINE, 1.0))
        with pytest.raises(Unserved) as raised:
            await model.infer(REQUEST, Caller(id="other"), 1.0)
        assert raised.value.status.ending is (
            Ending.UNAVAILABLE if paused else Ending.OVER_CAPACITY
        )
        broker.tell(an_answer("mine"))
        assert [(await each).response.id for each in (first, again)] == ["mine", "mine"]

    asyncio.run(play())
