"""Requests for a model: joined, accepted, refused."""

import asyncio
import time

import pytest
from msgspec.structs import replace

from headrace.gateway.protocol.callers import Caller
from headrace.gateway.protocol.requests import InferRequest
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import bytes_tensor
from schemas.codec.raw import MAX_ID_LENGTH
from schemas.records import Query
from streams.kafka.kafka_errors import BrokerError
from tests.gateway_world import BrokerInTest, a_model, a_plan, an_answer, answering

REQUEST = InferRequest(inputs=(bytes_tensor("input", [b"x"], [1]),))
MINE = Caller(id="mine")


async def test_an_accepted_query_is_answered_and_its_answer_kept() -> None:
    broker = BrokerInTest()
    model = a_model(broker)
    taken = asyncio.ensure_future(model.accept(REQUEST, MINE, 1.0))
    broker.on_send = lambda query: broker.tell(acknowledged=(query.id,))
    assert await taken == "mine"
    broker.tell(an_answer("mine"))
    answer = await model.answers.answer("mine", 5.0, None)
    assert answer is not None
    assert (answer.id, answer.result) == ("mine", b"result")


async def test_a_query_that_the_broker_refuses_is_accepted_by_no_request_that_joined_it() -> None:
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


@pytest.mark.parametrize("acknowledged_first", [True, False])
async def test_a_request_that_joins_is_accepted_once_the_broker_has_the_query(
    acknowledged_first: bool,
) -> None:
    broker = BrokerInTest()
    model = a_model(broker)
    waits = asyncio.ensure_future(model.infer(REQUEST, MINE, 1.0))
    await asyncio.sleep(0)
    if acknowledged_first:  # which no request waited for at that time
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


async def test_a_model_is_broken_once_no_plan_can_arrive_any_more() -> None:
    """A gateway whose user lost the right to read plans kept the last one for ever."""
    broker = BrokerInTest()
    model = a_model(broker)
    assert model.broken is None
    broker.plans_ended = BrokerError("no right to Read")
    assert model.broken is broker.plans_ended


OTHER = InferRequest(inputs=(bytes_tensor("input", [b"y"], [1]),))


async def test_two_requests_with_one_mesh_id_are_two_queries() -> None:
    broker = BrokerInTest()
    model = a_model(broker)
    of_mesh = Caller(id="mine", shared_id=True)
    both = [asyncio.ensure_future(model.infer(r, of_mesh, 1.0)) for r in (REQUEST, OTHER)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [query.payload for query in broker.sent] == [b"x", b"y"]
    broker.tell(*(an_answer(q.id, result=f"for {q.payload!r}") for q in broker.sent))
    found = [(await each).response.outputs[0].array.item() for each in both]
    assert (found, model.joined) == ([b"\"for b'x'\"", b"\"for b'y'\""], 0)


async def test_a_request_without_an_id_joins_no_query_that_has_the_next_id_that_is_made() -> None:
    broker = BrokerInTest()
    broker.on_send = answering(broker)
    model = a_model(broker)
    prefix, _, number = (await model.infer(REQUEST, Caller(), 1.0)).response.id.rpartition("-")
    broker.on_send = lambda _: None
    named = Caller(id=f"{prefix}-{int(number) + 1}")
    both = [asyncio.ensure_future(model.infer(*each, 1.0)) for each in
            ((OTHER, named), (REQUEST, Caller()))]  # fmt: skip
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [query.payload for query in broker.sent] == [b"x", b"y", b"x"]
    broker.tell(*(an_answer(q.id, result=f"for {q.payload!r}") for q in broker.sent[1:]))
    found = [(await each).response.outputs[0].array.item() for each in both]
    assert (found, model.joined) == ([b"\"for b'y'\"", b"\"for b'x'\""], 0)


async def test_retry_at_another_gateway_keeps_its_id_and_mesh_ids_do_not_merge_requests() -> None:
    async def sent(request: InferRequest, caller: Caller) -> str:
        broker = BrokerInTest()
        waits = asyncio.ensure_future(a_model(broker).infer(request, caller, 1.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waits.cancel()
        return broker.sent[0].id

    for name in ("mine", "m" * 256):
        of_mesh = Caller(id=name, shared_id=True)
        first, retry = await sent(REQUEST, of_mesh), await sent(REQUEST, of_mesh)
        others = [
            await sent(OTHER, of_mesh),
            await sent(REQUEST, replace(of_mesh, size=2)),
            await sent(REQUEST, replace(of_mesh, id=f"{name[:-1]}n")),
            await sent(REQUEST, Caller(id=name)),
        ]
        assert retry == first
        assert len({first, *others}) == 5
        assert first.startswith(name[:200])
        assert all(len(each) <= MAX_ID_LENGTH for each in (first, *others))


@pytest.mark.parametrize(
    ("request_", "caller"),
    [
        (OTHER, MINE),
        (REQUEST, Caller(id="mine", size=2)),
        (REQUEST, Caller(id="mine", slo_class="fast")),
    ],
)
async def test_request_with_the_id_of_another_request_is_refused(
    request_: InferRequest, caller: Caller
) -> None:
    broker = BrokerInTest()
    model = a_model(broker)
    first = asyncio.ensure_future(model.infer(REQUEST, MINE, 1.0))
    await asyncio.sleep(0)
    with pytest.raises(Unserved, match="give different requests different ids") as raised:
        await model.infer(request_, caller, 1.0)
    assert raised.value.status.ending is Ending.CONFLICT
    broker.tell(an_answer("mine"))
    assert (await first).response.id == "mine"


@pytest.mark.parametrize("paused", [True, False])
async def test_a_retry_joins_its_query_where_no_new_one_would_be_taken(paused: bool) -> None:
    broker = BrokerInTest()
    model = a_model(broker, most_open=1)
    first = asyncio.ensure_future(model.infer(REQUEST, MINE, 1.0))
    await asyncio.sleep(0)
    if paused:
        broker.plan = a_plan(paused=True)
    again = asyncio.ensure_future(model.infer(REQUEST, MINE, 1.0))
    with pytest.raises(Unserved) as raised:
        await model.infer(REQUEST, Caller(id="other"), 1.0)
    assert raised.value.status.ending is (Ending.UNAVAILABLE if paused else Ending.OVER_CAPACITY)
    broker.tell(an_answer("mine"))
    assert [(await each).response.id for each in (first, again)] == ["mine", "mine"]


async def test_a_query_with_no_other_in_flight_is_sent_before_its_turn_ends() -> None:
    broker = BrokerInTest()
    model = a_model(broker)
    asked = [asyncio.ensure_future(model.infer(REQUEST, Caller(), 1.0)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(broker.sent) == 1
    await asyncio.sleep(0)
    assert len(broker.sent) == 3
    broker.tell(*(an_answer(query.id) for query in broker.sent))
    await asyncio.gather(*asked)


async def test_a_query_with_no_other_in_flight_that_cannot_be_sent_leaves_none() -> None:
    broker = BrokerInTest(on_send=refusing)
    model = a_model(broker)
    with pytest.raises(Unserved, match="away") as told:
        await model.infer(REQUEST, MINE, 1.0)
    assert told.value.status.ending is Ending.UNAVAILABLE
    assert model.open == 0


def refusing(_: Query) -> None:
    raise BrokerError("the broker is away")


async def test_model_with_late_answers_refuses_queries_that_would_be_late_with_a_reason() -> None:
    broker = BrokerInTest()
    model = a_model(broker, most_open=1000)
    long_ago_s = time.time() - 100.0  # beyond any SLO
    asked = [asyncio.ensure_future(model.infer(REQUEST, Caller(), long_ago_s)) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    broker.tell(*(an_answer(query.id) for query in broker.sent))
    await asyncio.gather(*asked)
    assert model.limit < 100
    more = [asyncio.ensure_future(model.infer(REQUEST, Caller(), time.time())) for _ in range(1000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    refused = [each.exception() for each in more if each.done()]
    assert len(refused) == 1000 - int(model.limit)
    assert all(
        isinstance(each, Unserved) and each.status.ending is Ending.OVER_CAPACITY
        for each in refused
    )
    assert "one more would be answered too late" in str(refused[0])
    for each in more:
        each.cancel()


async def test_a_caller_with_less_time_than_any_query_took_is_told_at_once() -> None:
    broker = BrokerInTest()
    model = a_model(broker)
    first = asyncio.ensure_future(model.infer(REQUEST, Caller(), time.time() - 0.5))
    await asyncio.sleep(0)
    broker.tell(an_answer(broker.sent[0].id))
    await first
    with pytest.raises(Unserved, match=r"deadline is \d+ ms away, but .* take 5\d\d ms") as told:
        await model.infer(REQUEST, Caller(timeout_s=0.3), time.time())
    assert told.value.status.ending is Ending.PAST_DEADLINE
    assert len(broker.sent) == 1


@pytest.mark.parametrize(
    ("timeout_s", "waited_s", "refused"),
    [
        (None, 0.3, False),
        (None, 0.4, True),
        (0.1, 0.03, False),
        (0.1, 0.04, True),
        (9.0, 0.3, False),
    ],
)
async def test_a_request_that_has_waited_for_a_third_of_its_time_is_refused(
    timeout_s: float | None, waited_s: float, refused: bool
) -> None:
    model = a_model(BrokerInTest())
    ending = None
    try:
        model.check_wait(waited_s, Caller(timeout_s=timeout_s))
    except Unserved as error:
        ending = error.status.ending
    assert ending == (Ending.OVER_CAPACITY if refused else None)
