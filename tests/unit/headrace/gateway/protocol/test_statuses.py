"""Query outcomes as HTTP and gRPC statuses, and deadlines of callers."""

from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.protocol.callers import (
    Caller,
    caller_of,
    caller_timeout_s,
    echoed,
    query_deadline_s,
)
from headrace.gateway.protocol.requests import InferRequest
from headrace.gateway.protocol.statuses import Ending, Status, Unserved, cancelled, status_of
from operators.drop_reasons import OVER_CAPACITY, PAUSED
from schemas.enumerations import ReasonCode
from schemas.pipeline import QuerySize
from schemas.records import ANSWERED, DROPPED, FAILED, REFUSED, Answer, Origin
from tests.builders import a_pipeline


def an_answer(outcome: str, **more: Any) -> Answer:
    values = {"answered_s": 1.5, **more}
    return Answer(
        id="q", origin=Origin(0, 0), outcome=outcome, created_s=1.0, deadline_s=2.0, **values
    )


@pytest.mark.parametrize(
    ("answer", "until", "http", "code"),
    [
        (an_answer(ANSWERED), None, 200, "OK"),
        (an_answer(ANSWERED, late=True), None, 200, "OK"),
        (an_answer(ANSWERED, late=True), 1.4, 504, "DEADLINE_EXCEEDED"),
        (an_answer(DROPPED), None, 504, "DEADLINE_EXCEEDED"),
        (an_answer(FAILED, reason_code=ReasonCode.OPERATOR), None, 500, "INTERNAL"),
        (an_answer(REFUSED, reason_code=OVER_CAPACITY.code), None, 429, "RESOURCE_EXHAUSTED"),
        (an_answer(REFUSED, reason_code=ReasonCode.OTHER), None, 429, "RESOURCE_EXHAUSTED"),
        (an_answer(REFUSED, reason_code=PAUSED.code), None, 503, "UNAVAILABLE"),
        (an_answer(REFUSED, reason_code=ReasonCode.NO_WORKER), None, 503, "UNAVAILABLE"),
        (an_answer(REFUSED, reason_code=ReasonCode.BAD_INPUT), None, 400, "INVALID_ARGUMENT"),
    ],
)
def test_an_outcome_has_its_status(
    answer: Answer, until: float | None, http: int, code: str
) -> None:
    status = status_of(answer, until)
    assert (status.ending.http, status.ending.grpc) == (http, code)
    assert (status.text == "") == (http == 200)


def test_every_code_is_one_of_grpcs() -> None:
    assert all(hasattr(grpc.StatusCode, ending.grpc) for ending in Ending)


def test_marks_and_retry_after_are_headers() -> None:
    late = status_of(an_answer(ANSWERED, late=True, incomplete=True), None)
    assert late.headers == {"headrace-late": "true", "headrace-incomplete": "true"}
    assert Status(ending=Ending.OVER_CAPACITY).headers == {"retry-after": "1"}
    assert Status(ending=Ending.UNAVAILABLE).headers == {"retry-after": "5"}
    assert Status(ending=Ending.PAST_DEADLINE).headers == {}


def test_the_smallest_of_all_deadlines_wins() -> None:
    headers = {
        "headrace-timeout-ms": "900",
        "x-request-timeout-seconds": "0.8",
        "x-envoy-expected-rq-timeout-ms": "15000",
    }
    assert caller_timeout_s(headers, {"timeout": 700_000}) == pytest.approx(0.7)
    assert caller_timeout_s(headers, {"timeout": 950_000}) == pytest.approx(0.8)
    assert caller_timeout_s(headers, {}, grpc_remaining_s=0.3) == pytest.approx(0.3)
    assert caller_timeout_s({"headrace-timeout-ms": "0"}, {"timeout": 0}) is None


def test_a_call_without_time_left_is_not_a_call_without_a_limit() -> None:
    assert caller_timeout_s({"headrace-timeout-ms": "900"}, {}, grpc_remaining_s=0.0) == 0.0


@pytest.mark.parametrize("said", ["soon", "-1", "nan", "inf", ""])
def test_a_deadline_that_is_no_number_is_reported(said: str) -> None:
    with pytest.raises(Unserved, match="number of milliseconds") as raised:
        caller_timeout_s({"headrace-timeout-ms": said}, {})
    assert raised.value.status.ending is Ending.BAD_REQUEST


positive = st.floats(1e-3, 1e4)


@given(st.none() | positive, positive, st.floats(0, 1e9))
def test_a_caller_shortens_the_slo_and_never_stretches_it(
    timeout_s: float | None, slo_s: float, now: float
) -> None:
    deadline_s = query_deadline_s(now, timeout_s, slo_s)
    shortens = timeout_s is not None and timeout_s < slo_s
    assert (deadline_s is not None) == shortens
    assert deadline_s is None or deadline_s <= now + slo_s


def test_request_parameters_are_read() -> None:
    pipeline = a_pipeline(slo_classes={"fast": 0.1}, size=QuerySize(most=100))
    headers = {"x-request-id": "r", "headrace-slo-class": "fast", "headrace-size": "7"}
    assert caller_of(headers, InferRequest(inputs=()), pipeline) == Caller(
        id="r", shared_id=True, slo_class="fast", size=7
    )
    request = InferRequest(inputs=(), id="q", parameters={"size": 8, "slo_class": "fast"})
    assert caller_of({"x-request-id": "r"}, request, pipeline) == Caller(
        id="q", slo_class="fast", size=8
    )


def test_a_size_above_the_largest_is_taken_where_queries_are_split() -> None:
    pipeline = a_pipeline(size=QuerySize(most=100, split="shop.parts:cut"))
    assert caller_of({"headrace-size": "250"}, InferRequest(inputs=()), pipeline).size == 250
    with pytest.raises(Unserved, match="takes 100000 at most"):
        caller_of({"headrace-size": "100001"}, InferRequest(inputs=()), pipeline)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"headrace-slo-class": "slow"}, "this pipeline has fast"),
        ({"headrace-size": "101"}, "takes 100 at most"),
        ({"headrace-size": "-1"}, "whole number from 1"),
        ({"x-request-id": "x" * 257}, "at most 256"),
    ],
)
def test_parameters_unknown_to_the_pipeline_are_reported(
    headers: dict[str, str], told: str
) -> None:
    pipeline = a_pipeline(slo_classes={"fast": 0.1}, size=QuerySize(most=100))
    with pytest.raises(Unserved, match=told):
        caller_of(headers, InferRequest(inputs=()), pipeline)


def test_ids_and_traces_go_back_to_the_caller() -> None:
    headers = {"traceparent": "00-a-b-01", "x-request-id": "r", "cookie": "c"}
    assert echoed(headers) == {"traceparent": "00-a-b-01", "x-request-id": "r"}


@pytest.mark.parametrize(
    ("remaining_s", "ending"),
    [
        (None, Ending.LEFT),
        (1.0, Ending.LEFT),
        (0.04, Ending.PAST_DEADLINE),
        (0.0, Ending.PAST_DEADLINE),
    ],
)
def test_a_call_that_its_client_ends_is_past_its_deadline_or_left(
    remaining_s: float | None, ending: Ending
) -> None:
    assert cancelled(remaining_s) is ending
