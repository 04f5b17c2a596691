"""No event makes a record that is too large, whatever producers send and operators return."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from control.per_query.shadowing import shadow_of
from operators.dispatch.dispatch_profile import device_kind, dispatch_profile
from operators.dispatch.dispatcher import Dispatcher
from operators.dispatch.task_dispatcher import TaskDispatcher
from operators.egress.egress import Egress
from operators.ingress.ingress import NOTICE_S, Ingress
from operators.record_size import MOST_REASON_BYTES, brief
from operators.scoring.scorer import Scorer, exact_match
from operators.serving.worker import Worker
from schemas.codec.json_form import answer_to_json
from schemas.codec.single_object import decode, encode
from schemas.effects import (
    COMMANDS,
    LABELS,
    PLANS,
    RESULTS,
    Arrived,
    Effect,
    Failed,
    Infer,
    Inferred,
    Loaded,
    Send,
    Woke,
)
from schemas.pipeline import Labels
from schemas.records import (
    FAILED,
    FULL_CREDIT,
    Answer,
    Command,
    DeadLetter,
    Garbled,
    Label,
    Notice,
    Query,
    Report,
    Route,
    Work,
)
from streams.codecs.size_gate import MOST_ENCODED_BYTES, RecordTooLarge, fitting
from tests.builders import (
    a_hop,
    a_lease,
    a_notice,
    a_noticed,
    a_pipeline,
    a_plan,
    a_work,
    an_answer,
    an_ended,
    an_item,
    arrived,
    told,
)
from tests.control_world import World
from tests.control_world import a_pipeline as a_control_pipeline
from tests.property_examples import at_most

MOST = 4096  # in place of eight MiB, so that a test may exceed it often
PIPELINE = a_pipeline({"read": ["check"], "check": []})


def fitted(send: Send, write: Any = encode, most: int = MOST) -> list[Send]:
    """Return the replacements of a record; each fits and is read back unchanged."""
    pieces = list(fitting(send, write, PIPELINE.egress_partitions, most))
    for each, value in pieces:
        assert len(value) <= most
        assert value == write(each.record)
    return [each for each, _ in pieces]


def sends(effects: Iterable[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


# ---------------------------------------------------------------------- one record


def test_a_record_that_fits_is_written_as_it_is() -> None:
    send = Send("work.read", a_work(), 3)
    assert list(fitting(send, encode, 4)) == [(send, encode(send.record))]


def test_items_that_do_not_fit_together_are_split_and_none_is_lost() -> None:
    items = tuple(an_item(b"x" * 700, (0, n), credit=n + 1) for n in range(50))
    pieces = fitted(Send("work.check", a_work(0, *items, task="check"), 2))
    assert [item for each in pieces for item in each.record.items] == list(items)  # type: ignore[union-attr]
    assert {(each.topic, each.slot) for each in pieces} == {("work.check", 2)}


def test_an_item_that_fits_no_record_fails_at_egress_with_its_credit() -> None:
    path = (a_hop(task="read"),)
    good, bad = an_item(b"x", (0, 0), credit=3), an_item(b"x" * 9000, (0, 1), credit=5, path=path)
    work = a_work(1, good, bad, task="check")
    first, second = fitted(Send("work.check", work, 2))
    assert (first.topic, first.record) == ("work.check", replace(work, items=(good,)))
    assert (second.topic, second.slot) == ("outputs", 0)
    (item,) = second.record.items  # type: ignore[union-attr]
    assert (item.branch, item.credit, item.value) == ((0, 1), 5, None)
    assert (item.end.outcome, item.end.task) == (FAILED, "read")
    assert "fits no record (at most 0); return less, or a reference to it" in item.end.reason


@pytest.mark.parametrize("topic", ["work.check", "shadows"])
def test_a_shadow_that_fits_no_record_fails_at_the_scorer_and_not_at_egress(topic: str) -> None:
    lease = replace(a_lease(), open_slot=5)
    shadow = shadow_of(a_work(1), (("read/v", (lease,)), ("check/v", (lease,))), 0, 0.0)
    large = replace(shadow, task="check", items=(an_item(b"x" * 9000, (0, 0)),))
    (send,) = fitted(Send(topic, large, 5))
    assert (send.topic, send.slot) == ("shadows", 0)
    assert isinstance(send.record, Work)
    (item,) = send.record.items
    assert item.end is not None
    assert item.end.outcome == FAILED


def test_a_notice_is_split_so_that_every_part_ends_where_the_next_begins() -> None:
    queries = tuple(a_noticed(n, refused="r" * 100) for n in range(5, 105))
    parts = [
        s.record for s in fitted(Send("outputs", Notice(partition=0, upto=200, queries=queries)))
    ]
    assert [q for part in parts for q in part.queries] == list(queries)  # type: ignore[union-attr]
    ends = [part.upto for part in parts]  # type: ignore[union-attr]
    begins = [part.queries[0].offset for part in parts]  # type: ignore[union-attr]
    assert ends == [*begins[1:], 200]


@pytest.mark.parametrize("write", [encode, answer_to_json])
def test_an_answer_gives_up_its_paths_before_its_result(write: Any) -> None:
    answer = an_answer(result="seven", paths=((a_hop(),),) * 200, ends=())
    (send,) = fitted(Send(RESULTS, answer), write)
    assert send.record == replace(answer, paths=())


@pytest.mark.parametrize("write", [encode, answer_to_json])
def test_an_answer_whose_result_fits_no_record_fails(write: Any) -> None:
    answer = an_answer(result=["x" * 5000], paths=((a_hop(),),), ends=())
    (send,) = fitted(Send(RESULTS, answer), write)
    record = send.record
    assert isinstance(record, Answer)
    assert (record.outcome, record.task, record.result) == (FAILED, "egress", None)
    assert record.reason.startswith("the answer of 0.0 MiB fits no record")


def test_record_without_a_smaller_form_is_reported() -> None:
    with pytest.raises(RecordTooLarge, match="a Plan for plans has"):
        fitted(Send("plans", a_plan(reason="x" * 5000)))


_READABLE = st.characters(exclude_categories=("Cc", "Cs"))  # the others become escapes


@given(st.text(_READABLE, max_size=3000) | st.text("a\u00e9\ud800", min_size=1900, max_size=2100))
def test_a_reason_is_cut_to_what_it_may_need(reason: str) -> None:
    said = brief(reason)
    assert len(said.encode()) <= MOST_REASON_BYTES
    if len(reason.encode("utf-8", "replace")) <= MOST_REASON_BYTES:
        assert said == reason.encode("utf-8", "replace").decode()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from((1, 3_000, 30_000)), min_size=4, max_size=4))
def test_the_control_app_makes_no_record_that_is_too_large(sizes: list[int]) -> None:
    world = World(a_control_pipeline()).start("w0", "w1", "w2")
    name, action, key, value = ("n" * size for size in sizes)
    command = Command(id=name, pipeline="postcode", action=action, arguments={key: value})
    made = []
    for record in (command, Garbled(b"x", action, id=name + "x")):
        arrival = Arrived(record, COMMANDS, 0, 0, world.now)
        made += sends(world.controller.handle(arrival, world.now))
    assert len(made) == 2
    for each, written in (pair for send in made for pair in fitting(send, encode, 4, 4 * MOST)):
        assert len(written) + len(each.key) <= 4 * MOST


# ---------------------------------------------------------------------- all nodes

SIZES = st.sampled_from((0, 1, 500, 1500, 5000))
VALUES = st.one_of(
    SIZES.map(bytes),
    SIZES.map(lambda n: "\u00e9" * n),
    SIZES.map(lambda n: [0.1] * n),
    SIZES.map(np.zeros),
    SIZES.map(lambda n: {f"k{i}": i for i in range(n // 10)}),
)
HEADERS = st.lists(st.tuples(st.just("h"), SIZES.map(bytes)), max_size=40).map(tuple)
NAMES = st.sampled_from((0, 1, 256)).map(lambda n: "q" * n)


@settings(max_examples=at_most(60), deadline=None)
@given(st.lists(st.tuples(VALUES, NAMES, HEADERS, st.booleans()), min_size=1, max_size=20))
def test_ingress_makes_no_record_that_is_too_large(queries: list[Any]) -> None:
    ingress = Ingress("i", PIPELINE, (0,), incarnation=0.0)
    told(ingress, (Woke(), 0.0), (arrived(a_plan([a_lease()])), 0.0))
    made: list[Send] = []
    for offset, (value, name, headers, readable) in enumerate(queries):
        record = (
            Query(payload=value, id=name)
            if readable
            else Garbled(bytes(9000), "r" * 9000, headers, name)
        )
        made += sends(ingress.handle(Arrived(record, "queries", 0, offset, 0.0), 0.0))
    made += sends(ingress.handle(Woke(), NOTICE_S))
    pieces = [piece.record for send in made for piece in fitted(send, most=8192)]
    noticed = [q.offset for n in pieces if isinstance(n, Notice) for q in n.queries]
    assert noticed == list(range(len(queries)))
    assert {n.upto for n in pieces if isinstance(n, Notice)} >= {len(queries)}


@settings(max_examples=at_most(60), deadline=None)
@given(st.lists(st.lists(VALUES, max_size=30), min_size=1, max_size=4), st.booleans())
def test_workers_make_no_record_that_is_too_large(outputs: list[Any], raises: bool) -> None:
    worker = Worker("w", PIPELINE, "cpu", incarnation=0.0)
    routes = (Route("read", 0, 1.0), Route("check", 0, 1.0))
    told(worker, (Woke(), 0.0), (arrived(a_plan([a_lease("w", batch=4)], routes=routes)), 0.0),
         (Loaded("read/v", 0.1), 0.0))  # fmt: skip
    effects = told(
        worker, *((arrived(a_work(n, deadline_s=99.0), n), 0.0) for n in range(len(outputs)))
    )
    effects = [*effects, *told(worker, (Woke(), 0.0))]
    jobs = [effect for effect in effects if isinstance(effect, Infer)]
    made: list[Send] = []
    while jobs:
        job = jobs.pop(0)
        given_out = tuple(outputs[: len(job.values)])
        event = Failed(job.job, "x" * 9000) if raises else Inferred(job.job, given_out, 0.1, 0.2)
        effects = list(worker.handle(event, 0.2))
        made += sends(effects)
        jobs += [effect for effect in effects if isinstance(effect, Infer)]
    pieces = [piece.record for send in made for piece in fitted(send)]
    works = [piece for piece in pieces if isinstance(piece, Work)]
    credit: dict[Any, int] = {}
    for work in works:
        credit[work.origin] = credit.get(work.origin, 0) + sum(i.credit for i in work.items)
    assert set(credit.values()) == {FULL_CREDIT}
    assert len(credit) == len(outputs)


@settings(max_examples=at_most(60), deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=20), st.booleans())
def test_egress_makes_no_record_that_is_too_large(values: list[Any], in_json: bool) -> None:
    egress = Egress("e", a_pipeline(), (0, 1), incarnation=0.0)
    share = FULL_CREDIT // len(values)
    items = [an_ended(v, (0, n), credit=share) for n, v in enumerate(values)]
    items[-1] = replace(items[-1], credit=FULL_CREDIT - share * (len(values) - 1))
    events = [a_notice(0), a_work(0, *items, task="")]
    made = sends(told(egress, (Woke(), 0.0), *((arrived(e, n), 0.1) for n, e in enumerate(events))))
    write = answer_to_json if in_json else encode
    pieces = [
        piece.record
        for send in made
        if not isinstance(send.record, Report)
        for piece in fitted(send, write)
    ]
    assert [type(piece) for piece in pieces] == [Answer]


@settings(max_examples=at_most(60), deadline=None)
@given(st.lists(st.tuples(VALUES, NAMES, HEADERS, st.booleans()), min_size=1, max_size=20))
def test_the_scorer_makes_no_record_that_is_too_large(labels: list[Any]) -> None:
    pipeline = a_pipeline(labels=Labels())
    scorer = Scorer(
        "s", pipeline, Labels(), exact_match, incarnation=0.0, answer_slots=(0,), label_slots=(0,)
    )
    effects = told(scorer, (Woke(), 0.0), (arrived(a_plan(), topic=PLANS), 0.0))
    for offset, (value, name, headers, readable) in enumerate(labels):
        answer = an_answer(offset, id=name, result=value, paths=((a_hop(),),))
        label = Label(id=name, truth=value)
        record = label if readable else Garbled(bytes(9000), "r" * 9000, headers, name)
        effects += scorer.handle(Arrived(answer, RESULTS, 0, offset, 0.0), 0.1)
        effects += scorer.handle(Arrived(record, LABELS, 0, offset, 0.0), 0.1)
    effects += scorer.handle(Woke(), 60.0)
    assert [piece for send in sends(effects) for piece in fitted(send, most=8192)]


@settings(max_examples=at_most(60), deadline=None)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=10), min_size=1, max_size=4), HEADERS)
def test_a_dispatcher_makes_no_record_that_is_too_large(values: list[Any], headers: Any) -> None:
    pipeline = a_pipeline({"scan": ["read"], "read": []})
    tasks = tuple(dataclasses.replace(t, dispatch="fcfs" * (t.name == "read"))
                  for t in pipeline.tasks)  # fmt: skip
    pipeline = dataclasses.replace(pipeline, tasks=tasks, dispatchers=1)
    kind = device_kind("cpu", "v")
    profile = dispatch_profile((kind,), lambda *_: 0.1, 1, by_variant=True)
    inner = Dispatcher(pipeline, profile, task=pipeline.task("read"))
    node = TaskDispatcher("d", pipeline, "read", inner, incarnation=0.0)
    lease = replace(a_lease("w0"), batch=1, type="cpu")
    effects = told(node, (Woke(), 0.0), (arrived(a_plan([lease]), topic=PLANS), 0.0))
    for offset, several in enumerate(values):
        items = [an_item(value, (0, n)) for n, value in enumerate(several)]
        work = a_work(offset, *items, deadline_s=99.0)
        effects += node.handle(Arrived(work, "waiting.read", 0, offset, 0.0), 0.1)
    garbled = Garbled(bytes(9000), "r" * 9000, headers)
    effects += node.handle(Arrived(garbled, "waiting.read", 0, len(values), 0.0), 0.1)
    effects += node.handle(Woke(), 0.2)
    made = {piece.topic for send in sends(effects) for piece in fitted(send, most=8192)}
    assert made & {"work.read", "outputs"}  # if the only item fits no record


def test_a_record_of_eight_mebibytes_and_its_headers_make_a_letter_that_fits() -> None:
    ingress = Ingress("i", PIPELINE, (0,), incarnation=0.0)
    headers = tuple((f"h{n}", bytes(10_000)) for n in range(100))
    garbled = Garbled(bytes(8 * 2**20), "r" * 9_000_000, headers)
    made = sends(ingress.handle(Arrived(garbled, "queries", 0, 0, 0.0), 0.0))
    (letter,) = [send for send in made if isinstance(send.record, DeadLetter)]
    assert len(encode(letter.record)) <= MOST_ENCODED_BYTES
    assert decode(encode(letter.record)) == letter.record
    assert "(kept: 6 of 100 headers)" in letter.record.reason  # type: ignore[union-attr]


def test_a_list_of_half_a_million_numbers_fails_its_item_only() -> None:
    numbers = (np.arange(500_000) / 7).tolist()
    good, bad = an_item(b"x", (0, 0)), an_item(numbers, (0, 1))
    work = a_work(0, good, bad, task="check")
    made = fitted(Send("work.check", work, 1), most=MOST_ENCODED_BYTES)
    assert [(send.topic, len(send.record.items)) for send in made] == [  # type: ignore[union-attr]
        ("work.check", 1),
        ("outputs", 1),
    ]
