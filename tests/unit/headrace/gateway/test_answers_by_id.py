"""Answers by id: one timeout for all waits, and one error."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.formats import read_answer
from headrace.gateway.answers_by_id import SEARCHES, AnswersById, RememberedAnswers
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.requests_in_flight import RequestsInFlight
from headrace.gateway.result_watch import ResultWatch
from schemas.codec.single_object import encode
from streams.kafka.kafka_errors import BrokerError
from tests.gateway_world import an_answer


class Searched:
    """Return answers by id on the running loop; ``hold`` is what a search waits for."""

    def __init__(self, found: Callable[[str], Any], search_within_s: float = 30.0) -> None:
        loop = asyncio.get_running_loop()
        self.watch = ResultWatch(loop)
        in_flight = RequestsInFlight(loop, read_answer, self.watch)
        self.hold = threading.Event()
        self.begun = threading.Semaphore(0)
        self._found = found
        self.answers = AnswersById(in_flight, self.watch, self._find, search_within_s)

    def _find(self, name: str, since_s: float | None) -> Any:
        self.begun.release()
        self.hold.wait(30.0)
        return self._found(name)


def away(name: str) -> Any:
    raise BrokerError("no broker answers")


async def test_broker_outage_is_reported() -> None:
    side = Searched(away)
    side.hold.set()
    with pytest.raises(Unserved, match="no broker answers") as raised:
        await side.answers.answer("mine", 5.0, None)
    assert raised.value.status.ending is Ending.UNAVAILABLE
    side.answers.close()


async def test_an_answer_that_comes_is_given_while_the_searches_take_long() -> None:
    side = Searched(away)
    waiting = [
        asyncio.ensure_future(side.answers.answer(str(n), 30.0, None)) for n in range(SEARCHES + 1)
    ]
    for _ in range(SEARCHES):
        await asyncio.to_thread(side.begun.acquire)
    assert not side.begun.acquire(blocking=False)  # the last one waits for them
    for n in range(SEARCHES + 1):
        side.watch.give(str(n).encode(), an_answer(str(n)))
    found = await asyncio.wait_for(asyncio.gather(*waiting), 10.0)
    assert [answer and answer.id for answer in found] == ["0", "1", "2"]
    side.hold.set()
    side.answers.close()


async def test_timed_out_search_does_not_mean_a_missing_answer() -> None:
    side = Searched(lambda _: None, search_within_s=0.0)
    with pytest.raises(Unserved, match="not been searched") as raised:
        await side.answers.answer("mine", 0.0, None)
    assert raised.value.status.ending is Ending.UNAVAILABLE
    side.hold.set()
    side.answers.close()


async def test_what_is_found_nowhere_is_none_after_the_wait() -> None:
    side = Searched(lambda _: None)
    side.hold.set()
    assert await side.answers.answer("mine", 0.01, None) is None
    side.answers.close()


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 500)), max_size=20),
    st.integers(1, 4), st.integers(0, 2000),
)  # fmt: skip
def test_the_last_answers_are_remembered_within_their_number_and_bytes(
    added: list[tuple[str, int]], most: int, most_bytes: int
) -> None:
    remembered = RememberedAnswers(most, most_bytes)
    for name, size in added:
        remembered.add(an_answer(name, b"x" * size))
    last = {name: size for name, size in added}  # of each id
    order = sorted(last, key=lambda name: -max(n for n, (of, _) in enumerate(added) if of == name))
    held = [answer for name in order if (answer := remembered.get(name)) is not None]
    assert [answer.id for answer in held] == order[: len(held)]
    assert [answer.result for answer in held] == [b"x" * last[a.id] for a in held]
    sizes = [len(encode(answer)) for answer in held]
    assert len(held) <= most
    assert sum(sizes) <= most_bytes


def test_the_oldest_answers_are_forgotten_for_the_newest() -> None:
    answers = [an_answer(name, b"x" * 100) for name in "abc"]
    remembered = RememberedAnswers(10, 2 * len(encode(answers[0])))
    for answer in answers:
        remembered.add(answer)
    assert [remembered.get(name) for name in "abc"] == [None, *answers[1:]]
