"""Each answer reaches its caller: the open queries behind ``headrace.Client``."""

import re
import subprocess
import sys
import threading
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.client.formats import read_answer
from headrace.client.open_queries import OpenQueries
from headrace.errors import ClientClosed, NoAnswer
from schemas.codec.json_form import answer_to_json
from schemas.codec.single_object import CodecError, encode
from schemas.records import ANSWERED, Answer, Origin
from streams.kafka.kafka_errors import BrokerError


def an_answer(name: str) -> Answer:
    return Answer(
        id=name, origin=Origin(0, 0), outcome=ANSWERED, created_s=1.0, deadline_s=2.0,
        answered_s=1.5,
    )  # fmt: skip


@pytest.mark.parametrize("form", [encode, answer_to_json])
def test_an_answer_ends_the_query_of_its_id_and_no_other(form: object) -> None:
    waiting = OpenQueries(read_answer)
    futures = {name: waiting.add(name, now=0.0, within_s=1.0) for name in "abc"}
    for name in ("b", "somebody-elses"):
        waiting.answer(name, form(an_answer(name)))  # type: ignore[operator]
    assert futures["b"].result(0) == an_answer("b")
    assert (futures["a"].done(), futures["c"].done(), len(waiting)) == (False, False, 2)


def test_a_second_answer_for_an_id_changes_nothing() -> None:
    waiting = OpenQueries(read_answer)
    future = waiting.add("a", 0.0, 1.0)
    waiting.answer("a", encode(an_answer("a")))
    waiting.answer("a", b"garbage")
    assert future.result(0) == an_answer("a")


def test_unreadable_answer_raises_an_error_in_the_waiting_call() -> None:
    waiting = OpenQueries(read_answer)
    future = waiting.add("a", 0.0, 1.0)
    waiting.answer("a", b"garbage")
    with pytest.raises(CodecError, match="check the format"):
        future.result(0)


def test_a_query_ends_when_its_time_is_over_and_not_before() -> None:
    waiting = OpenQueries(read_answer)
    early, late = waiting.add("early", 10.0, 0.5), waiting.add("late", 10.0, 2.0)
    waiting.expire(10.5)
    assert not early.done()
    waiting.expire(10.6)
    assert (early.done(), late.done(), len(waiting)) == (True, False, 1)
    with pytest.raises(NoAnswer, match=r"no answer to early within 0\.5 s; check that") as raised:
        early.result(0)
    assert isinstance(raised.value, TimeoutError)
    assert "input= is what its file says" in str(raised.value)  # else nothing knows the query's id


def test_closing_ends_present_and_later_calls() -> None:
    waiting = OpenQueries(read_answer)
    future = waiting.add("a", 0.0, 1.0)
    waiting.end(BrokerError("the broker is gone"))
    waiting.end(ClientClosed("closed"))
    with pytest.raises(BrokerError, match="gone"):
        future.result(0)
    with pytest.raises(BrokerError, match="gone"):
        waiting.add("b", 0.0, 1.0)


def test_a_client_that_has_ended_keeps_nothing_of_the_queries_that_it_refuses() -> None:
    queries = OpenQueries(read_answer)
    queries.end(ClientClosed("closed"))
    depths = []
    for _ in range(3):
        with pytest.raises(ClientClosed) as raised:
            queries.add("a", 0.0, 1.0)
        depths.append(len(traceback.extract_tb(raised.value.__traceback__)))
    assert depths == depths[:1] * 3


def test_an_id_in_flight_is_not_given_twice() -> None:
    waiting = OpenQueries(read_answer)
    waiting.add("a", 0.0, 1.0)
    with pytest.raises(ValueError, match="'a' is in flight already"):
        waiting.add("a", 0.0, 1.0)


def test_cancelled_call_gets_no_answer_and_does_not_affect_others() -> None:
    waiting = OpenQueries(read_answer)
    gone, stays = waiting.add("gone", 0.0, 1.0), waiting.add("stays", 0.0, 1.0)
    assert gone.cancel()
    waiting.answer("gone", encode(an_answer("gone")))
    waiting.expire(2.0)
    assert (gone.cancelled(), stays.done(), len(waiting)) == (True, True, 0)


@given(st.lists(st.sampled_from("aet"), max_size=40))
def test_every_query_ends_exactly_once_whatever_happens(events: list[str]) -> None:
    waiting = OpenQueries(read_answer)
    futures = [waiting.add(str(n), 0.0, 1.0) for n in range(10)]
    ends = [0] * 10
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, n=number: ends.__setitem__(n, ends[n] + 1))
    for at, event in enumerate(events):
        if event == "a":
            waiting.answer(str(at % 10), encode(an_answer(str(at % 10))))
        elif event == "e":
            waiting.fail(str(at % 10), BrokerError("refused"))
        else:
            waiting.expire(2.0)
    waiting.end(ClientClosed("closed"))
    assert (ends, len(waiting)) == ([1] * 10, 0)


def test_threads_may_add_while_answers_come() -> None:
    waiting = OpenQueries(read_answer)
    futures = {}

    def asks(thread: int) -> None:
        for n in range(200):
            name = f"{thread}-{n}"
            futures[name] = waiting.add(name, 0.0, 1.0)
            waiting.answer(name, encode(an_answer(name)))

    threads = [threading.Thread(target=asks, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: f.result(0).id for name, f in futures.items()} == {n: n for n in futures}
    assert len(waiting) == 0


def test_the_package_offers_the_client_without_loading_it_first() -> None:
    code = (
        "import sys, headrace\n"
        "print('confluent_kafka' in sys.modules, end=' ')\n"
        "print(headrace.Client.__module__, 'confluent_kafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False headrace.client.client True\n", "")


def test_missing_package_attribute_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        _ = headrace.Klient


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ("cooked", "input is 'cooked'; a pipeline takes raw, avro, confluent"),
        ("confluent", 'input is "confluent", which needs schema_registry="http://..." as well'),
    ],
)
def test_a_form_that_cannot_be_written_is_refused_before_a_broker_is_asked(
    form: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        headrace.Client("127.0.0.1:1", "words", input=form)
