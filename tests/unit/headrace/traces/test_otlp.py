"""A request to a collector: accepted, refused permanently, or to be retried."""

from typing import Any

import pytest

from headrace.errors import Unsuccessful
from headrace.traces.answer_spans import spans_of
from headrace.traces.otlp import NotTaken, request_of, retry_after_s, send
from headrace.traces.query_trace import context_of
from tests.builders import an_answer
from tests.otlp_collector import a_collector


def a_request() -> dict[str, Any]:
    answer = an_answer()
    return request_of(spans_of(answer, context_of(None, "p", answer.origin), "p"), "p")


def test_a_collector_gets_the_spans() -> None:
    request = a_request()
    with a_collector() as collector:
        send(collector.endpoint, request)
        send(f"{collector.endpoint}/v1/traces", request)
        assert collector.taken == [("/v1/traces", "application/json", request)] * 2


@pytest.mark.parametrize(
    ("status", "more_headers", "again", "after_s"),
    [
        (429, {"Retry-After": "7"}, True, 7.0),
        (502, {}, True, None),
        (503, {"Retry-After": "soon"}, True, None),
        (504, {}, True, None),
        (400, {}, False, None),
        (404, {}, False, None),
        (500, {}, False, None),
    ],
)
def test_a_refusal_says_whether_and_when_to_send_again(
    status: int, more_headers: dict[str, str], again: bool, after_s: float | None
) -> None:
    with a_collector() as collector:
        collector.status, collector.more_headers = status, more_headers
        with pytest.raises(NotTaken, match=rf"did not take 1 spans \(HTTP Error {status}") as told:
            send(collector.endpoint, a_request())
    assert (told.value.spans, told.value.again, told.value.after_s) == (1, again, after_s)


def test_a_collector_that_is_away_may_come_back() -> None:
    with a_collector() as collector:
        gone = collector.endpoint
    with pytest.raises(NotTaken, match="did not take 1 spans") as told:
        send(gone, a_request())
    assert told.value.again


@pytest.mark.parametrize(
    ("body", "rejected"),
    [
        (b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}', 1),
        (b'{"partialSuccess": {"errorMessage": "a warning"}}', 0),
        (b'{"partialSuccess": null}', 0),
        (b'{"partialSuccess": {"rejectedSpans": 1e999}}', 0),
        (b"[" * 100_000, 0),
        (b"[]", 0),
        (b"no JSON", 0),
        (b"", 0),
    ],
)
def test_spans_that_a_collector_rejects_of_those_taken_are_reported(
    body: bytes, rejected: int
) -> None:
    with a_collector() as collector:
        collector.body = body
        if not rejected:
            send(collector.endpoint, a_request())
            return
        with pytest.raises(NotTaken, match=r"rejected 1 of 1 spans \(too old") as told:
            send(collector.endpoint, a_request())
    assert (told.value.spans, told.value.again) == (rejected, False)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("-3", None),
        ("soon", None),
        ("Thu, 99999999999999999999 Jan 1970 00:01:00 GMT", None),
        ("Thu, 01 Jan 1970 00:01:00 +99999999999999999999", None),
    ],
)
def test_retry_after_has_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, now=40.0) == seconds


def test_a_redirect_is_a_refusal_since_its_target_would_get_no_spans() -> None:
    with a_collector() as collector, a_collector() as other:
        collector.status, collector.more_headers = 302, {"Location": other.endpoint}
        with pytest.raises(NotTaken, match=r"did not take 1 spans \(HTTP Error 302") as told:
            send(collector.endpoint, a_request())
    assert not told.value.again


def test_an_address_that_is_none_of_http_is_refused() -> None:
    with pytest.raises(Unsuccessful, match="address is 'localhost:4318'; write such as http://"):
        send("localhost:4318", a_request())
