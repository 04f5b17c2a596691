"""Traces from answers: the caller's context, spans, which are kept, their way to a collector."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.traces.answer_spans import spans_of
from headrace.traces.trace_context import TraceContext, context_in, own_context
from headrace.traces.trace_export import Contexts, Sampling
from schemas.enumerations import ReasonCode
from schemas.records import ANSWERED, DROPPED, Answer, Hop, Origin

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{CALLER}-01".encode()


def a_hop(task: str, received_s: float, **more: Any) -> Hop:
    values = {"worker": "cpu-0", "batch": 4, **more}
    return Hop(
        task=task, variant="v", epoch=1, received_s=received_s, started_s=received_s + 0.01,
        finished_s=received_s + 0.03, **values,
    )  # fmt: skip


def an_answer(*paths: tuple[Hop, ...], **more: Any) -> Answer:
    values: dict[str, Any] = {"outcome": ANSWERED, "answered_s": 100.1, **more}
    return Answer(
        id="q", origin=Origin(1, 7), created_s=100.0, deadline_s=100.5, paths=paths, **values
    )


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (HEADER, TraceContext(TRACE, CALLER, sampled=True)),
        (f"00-{TRACE}-{CALLER}-00".encode(), TraceContext(TRACE, CALLER)),
        (f"cc-{TRACE}-{CALLER}-01-later".encode(), TraceContext(TRACE, CALLER, sampled=True)),
        (f"ff-{TRACE}-{CALLER}-01".encode(), None),
        (f"00-{'0' * 32}-{CALLER}-01".encode(), None),
        (f"00-{TRACE}-{'0' * 16}-01".encode(), None),
        (b"00-xyz", None),
        (b"\xff", None),
    ],
)
def test_a_callers_context(header: bytes, found: TraceContext | None) -> None:
    assert context_in(header) == found


def test_contexts_are_found_by_origin_and_bounded() -> None:
    contexts = Contexts(most=2)
    for offset in range(3):
        contexts.add(Origin(0, offset), HEADER)
    contexts.add(Origin(0, 9), b"nonsense")
    assert contexts.take(Origin(0, 2), "p").parent == CALLER
    for gone in (Origin(0, 0), Origin(0, 2), Origin(0, 9)):
        assert contexts.take(gone, "p") == own_context("p", gone)


def test_spans_hang_on_the_callers_and_share_hops_once() -> None:
    first = a_hop("read", 100.0)
    answer = an_answer((first, a_hop("a", 100.04)), (first, a_hop("b", 100.04)))
    spans = spans_of(answer, TraceContext(TRACE, CALLER, sampled=True), "p")
    root = spans[0]
    assert (root["traceId"], root["parentSpanId"], root["name"]) == (TRACE, CALLER, "p process")
    assert [span["name"] for span in spans[1:]] == [
        name for task in ("read/v", "a/v", "b/v") for name in (task, "queue", "batch")
    ]
    assert {span["parentSpanId"] for span in spans[1::3]} == {root["spanId"]}


def test_a_miss_is_an_error_with_its_reason() -> None:
    answer = an_answer(
        outcome=DROPPED, reason="too late", reason_code=ReasonCode.PAST_SAVING, task="read"
    )
    (root,) = spans_of(answer, own_context("p", answer.origin), "p")
    assert root["status"] == {"code": 2, "message": "too late"}
    assert {"key": "error.type", "value": {"stringValue": "past_saving"}} in root["attributes"]
    assert "parentSpanId" not in root


hops = st.builds(
    a_hop,
    st.sampled_from("abc"),
    st.floats(100.0, 100.06),
    worker=st.sampled_from(["cpu-0", "cpu-1"]),
)


@given(st.lists(st.lists(hops, max_size=3).map(tuple), max_size=4))
def test_every_span_is_one_of_its_trace_with_a_parent_and_times_in_order(
    paths: list[tuple[Hop, ...]],
) -> None:
    spans = spans_of(an_answer(*paths), TraceContext(TRACE, CALLER), "p")
    ids = [span["spanId"] for span in spans]
    assert len(set(ids)) == len(ids)
    assert all(span["parentSpanId"] in {CALLER, *ids} for span in spans)
    assert all(int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"]) for s in spans)
    assert all(len(s["traceId"]) == 32 and len(s["spanId"]) == 16 for s in spans)
    assert spans == spans_of(an_answer(*paths), TraceContext(TRACE, CALLER), "p")


def test_misses_slow_ones_and_what_callers_keep_are_exported() -> None:
    none = Sampling(share=0.0)
    own = own_context("p", Origin(1, 7))
    assert not none.keeps(an_answer(), own)
    assert none.keeps(an_answer(outcome=DROPPED), own)
    assert none.keeps(an_answer(late=True), own)
    assert none.keeps(an_answer(answered_s=100.46), own)
    assert none.keeps(an_answer(), TraceContext(TRACE, CALLER, sampled=True))


def test_a_share_of_the_rest_is_exported() -> None:
    contexts = [own_context("p", Origin(0, offset)) for offset in range(4000)]
    kept = sum(Sampling(share=0.25).keeps(an_answer(), each) for each in contexts)
    assert 900 < kept < 1100
