"""Traces from answers: the caller's context, spans, sampling and delivery to a collector."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.traces.answer_spans import spans_of
from headrace.traces.query_trace import TraceContext, context_of
from headrace.traces.trace_export import Sampling
from schemas.enumerations import ReasonCode
from schemas.records import ANSWERED, DROPPED, Answer, Hop, Origin, Trace

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{CALLER}-01"


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


def test_a_query_without_a_caller_has_a_trace_of_its_own_the_same_at_every_export() -> None:
    origin = Origin(1, 7)
    assert context_of(Trace(HEADER), "p", origin) == TraceContext(TRACE, CALLER, sampled=True)
    own = context_of(None, "p", origin)
    assert (own.parent, own.sampled, own) == ("", False, context_of(None, "p", origin))
    others = [context_of(None, "p", Origin(7, 1)), context_of(None, "q", origin)]
    assert len({own.trace, *(each.trace for each in others)}) == 3


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


def test_queries_of_one_trace_have_spans_of_their_own() -> None:
    caller, hop = TraceContext(TRACE, CALLER), a_hop("read", 100.0)
    ids = [
        span["spanId"]
        for pipeline, offset in (("p", 7), ("p", 8), ("q", 7))
        for span in spans_of(replace(an_answer((hop,)), origin=Origin(1, offset)), caller, pipeline)
    ]
    assert len(set(ids)) == len(ids) == 12


def test_a_miss_is_an_error_with_its_reason() -> None:
    answer = an_answer(
        outcome=DROPPED, reason="too late", reason_code=ReasonCode.PAST_SAVING, task="read"
    )
    (root,) = spans_of(answer, context_of(None, "p", answer.origin), "p")
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


def test_missed_slow_and_caller_sampled_queries_are_exported() -> None:
    none = Sampling(share=0.0)
    own = context_of(None, "p", Origin(1, 7))
    assert not none.keeps(an_answer(), own)
    assert none.keeps(an_answer(outcome=DROPPED), own)
    assert none.keeps(an_answer(late=True), own)
    assert none.keeps(an_answer(answered_s=100.46), own)
    assert none.keeps(an_answer(), TraceContext(TRACE, CALLER, sampled=True))


def test_a_share_of_the_rest_is_exported() -> None:
    contexts = [context_of(None, "p", Origin(0, offset)) for offset in range(4000)]
    kept = sum(Sampling(share=0.25).keeps(an_answer(), each) for each in contexts)
    assert 900 < kept < 1100
