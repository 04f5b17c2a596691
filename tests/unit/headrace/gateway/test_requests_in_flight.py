"""Queries in flight behind a gateway: each ends once, for every request that waits for it."""

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.exchange import BrokerNews
from headrace.client.formats import read_answer
from headrace.errors import ClientClosed, NoAnswer
from headrace.gateway.requests_in_flight import LOOK_EVERY_S, RequestsInFlight
from headrace.gateway.result_watch import ResultWatch
from schemas.codec.single_object import CodecError, encode
from schemas.records import ANSWERED, Answer, Origin
from streams.kafka.kafka_errors import BrokerError
from tests.virtual_loop import VirtualLoop

LONG_S = 1000.0


def an_answer(name: str) -> Answer:
    return Answer(
        id=name, origin=Origin(0, 0), outcome=ANSWERED, created_s=1.0, deadline_s=2.0,
        answered_s=1.5,
    )  # fmt: skip


def a_turn(
    *records: tuple[bytes, bytes],
    acknowledged: Sequence[str] = (),
    refused: Mapping[str, BrokerError] | None = None,
) -> BrokerNews:
    return BrokerNews(0.0, records, acknowledged, refused or {})


def answered(*names: str) -> BrokerNews:
    return a_turn(*((name.encode(), encode(an_answer(name))) for name in names))


class InLoop:
    """Return the queries in flight of a gateway on the running loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.watch = ResultWatch(loop)
        self.open = RequestsInFlight(loop, read_answer, self.watch)

    def add(self, *names: str) -> None:
        for name in names:
            self.open.add(name, LONG_S)


async def test_an_answer_ends_its_query_for_every_request_and_no_other() -> None:
    side = InLoop()
    side.add("a", "b")
    first, joined, other = (side.open.waiter(name) for name in "aab")
    side.open.take(answered("a", "somebody-elses"))
    assert await first == await joined == an_answer("a")
    assert (other.done(), len(side.open), "a" in side.open) == (False, 1, False)


async def test_a_request_that_leaves_or_gives_up_leaves_the_query_to_the_others() -> None:
    side = InLoop()
    side.add("a")
    stays = side.open.waiter("a")
    leaves = asyncio.ensure_future(side.open.wait("a", LONG_S))
    await asyncio.sleep(0)
    leaves.cancel()
    assert await side.open.wait("a", 0.0) is None
    assert "a" in side.open
    side.open.take(answered("a"))
    assert await stays == an_answer("a")
    assert leaves.cancelled()


def test_a_query_ends_without_an_answer_after_its_time() -> None:
    async def play() -> None:
        loop, side = asyncio.get_running_loop(), InLoop()
        for within_s in (3.0, 1.0, 2.0):  # one after the other: none is in flight between them
            name, due_s = f"within {within_s:g}", loop.time() + within_s
            side.open.add(name, within_s)
            side.open.add("long", LONG_S)
            with pytest.raises(NoAnswer, match=f"{name} within {within_s:g} s; allow it more"):
                await side.open.wait(name, None)
            assert due_s <= loop.time() <= due_s + LOOK_EVERY_S
            side.open.fail("long", ClientClosed("closed"))
            assert len(side.open) == 0
            await asyncio.sleep(2 * LOOK_EVERY_S)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())


@pytest.mark.parametrize(
    ("news", "error"),
    [
        (a_turn((b"a", b"garbage")), CodecError),
        (a_turn(refused={"a": BrokerError("too large")}), BrokerError),
    ],
)
async def test_invalid_answer_is_reported_to_waiting_requests(
    news: BrokerNews, error: type[Exception]
) -> None:
    side = InLoop()
    side.add("a")
    waiting = side.open.waiter("a")
    side.open.take(news)
    with pytest.raises(error):
        await waiting


async def test_waiting_requests_learn_when_the_broker_has_a_query() -> None:
    side = InLoop()
    side.add("a", "b")
    taken = side.open.taken("a")
    side.open.take(a_turn(acknowledged=["b", "unknown", "a"]))
    await taken
    await side.open.taken("b")  # it has it already
    assert len(side.open) == 2


def test_a_turn_with_nothing_for_this_gateway_does_not_wake_it() -> None:
    class Asleep(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *_: object, **__: object) -> asyncio.Handle:
            raise AssertionError("it was woken")

    loop = Asleep()
    try:
        open_ = RequestsInFlight(loop, read_answer, ResultWatch(loop))
        open_.add("a", LONG_S)
        open_.take(a_turn((b"b", b"another gateway's"), acknowledged=["a"]))
        open_.fail("a", ClientClosed("the test is over"))
    finally:
        loop.close()


async def test_a_watcher_gets_the_answers_of_other_gateways() -> None:
    side = InLoop()
    with side.watch.of("theirs") as coming, side.watch.stream("pre") as stream:
        side.open.take(answered("theirs", "pre-1", "other"))
        assert await coming == an_answer("theirs")
        assert (await stream.answers.get()).id == "pre-1"
        assert stream.answers.empty()


@given(st.lists(st.sampled_from(["answer", "refuse", "garbage", "give up", "cancel"]), max_size=30))
def test_every_query_ends_exactly_once_whatever_happens(events: list[str]) -> None:
    async def play() -> None:
        side = InLoop()
        names = [str(n) for n in range(6)]
        side.add(*names)
        waiters = {name: side.open.waiter(name) for name in names}
        for at, event in enumerate(events):
            name = str(at % 6)
            if event == "answer":
                side.open.take(answered(name))
            elif event == "refuse":
                side.open.take(a_turn(refused={name: BrokerError("no")}))
            elif event == "garbage":
                side.open.take(a_turn((name.encode(), b"x")))
            elif event == "cancel":
                waiters[name].cancel()
            elif name in side.open:
                with contextlib.suppress(BrokerError, CodecError):
                    await side.open.wait(name, 0.0)
        side.open.end(ClientClosed("closed"))
        await asyncio.sleep(0)
        assert all(waiter.done() for waiter in waiters.values())
        assert len(side.open) == 0

    asyncio.run(play())


async def test_the_end_of_a_query_is_counted_once_its_requests_have_the_answer() -> None:
    side, order = InLoop(), list[str]()
    side.open.add("a", LONG_S, ended=lambda _: order.append("counted"))

    async def request() -> None:
        await side.open.wait("a", None)
        order.append("answered")

    waits = asyncio.create_task(request())
    await asyncio.sleep(0)
    side.open.take(answered("a"))
    await waits
    await asyncio.sleep(0)
    assert order == ["answered", "counted"]


async def test_answers_are_decoded_in_the_reading_thread_which_may_wait_for_a_registry() -> None:
    threads: list[int] = []

    def read(value: bytes) -> Answer:
        threads.append(threading.get_ident())
        return read_answer(value)

    loop = asyncio.get_running_loop()
    watch = ResultWatch(loop)
    open_ = RequestsInFlight(loop, read, watch)
    open_.add("a", LONG_S)
    waiter = open_.waiter("a")
    with watch.of("theirs") as coming:
        await asyncio.to_thread(open_.take, answered("a", "theirs"))
        assert [await waiter, await coming] == [an_answer("a"), an_answer("theirs")]
    assert len(threads) == 2
    assert threading.get_ident() not in threads
