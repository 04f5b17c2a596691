"""Export of answers to a collector over HTTP: counts of accepted and dropped spans."""

import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from headrace.client.formats import read_answer
from headrace.errors import Unsuccessful
from headrace.traces.delivery import GIVE_UP_S, Delivery, checked
from headrace.traces.otlp import NotTaken, request_of, send, spans_in
from headrace.traces.query_trace import context_of
from headrace.traces.trace_export import (
    Sampling,
    Traced,
    TraceExport,
    delivery_to,
    traced_answers,
)
from schemas.codec.single_object import encode
from schemas.records import DROPPED, Trace
from streams.observers.metrics import Observed
from tests.builders import a_pipeline, an_answer
from tests.integration.certificates import make_authority
from tests.otlp_collector import a_collector


def an_export(endpoint: str, told: list[str]) -> TraceExport:
    delivery = delivery_to(endpoint, told.append, None)
    return TraceExport(a_pipeline(slo_s=0.3), Sampling(share=0.0), delivery)


def a_miss(offset: int) -> Traced:
    return an_answer(offset, outcome=DROPPED, reason="too late", task="read"), None


def counted(export: TraceExport) -> dict[str, float]:
    return {
        labels[0]: value
        for name, labels, value in export.samples()
        if name == "exported_spans_total" and not isinstance(value, Observed)
    }


def test_a_refusal_costs_its_spans_and_not_the_export() -> None:
    told: list[str] = []
    with a_collector() as collector:
        export = an_export(collector.endpoint, told)
        collector.status = 400
        export.export([a_miss(0), a_miss(1)])
        collector.status = 200
        export.export([a_miss(2), (an_answer(3), None)])
        assert len(collector.taken) == 2
    assert (export.answers, export.traces) == (4, 3)
    assert counted(export) == {"taken": 1, "dropped": 2}
    assert told[0].endswith("; 2 spans dropped, 2 in all")


def test_an_exemplar_is_a_trace_that_the_collector_has() -> None:
    with a_collector() as collector:
        export = an_export(collector.endpoint, [])
        collector.status = 400
        export.export([a_miss(0)])
        collector.status = 200
        export.export([a_miss(1)])
        (sent,) = (span for span in collector.spans[1:])
    (seconds,) = (value for name, _, value in export.samples() if name == "exported_query_seconds")
    assert isinstance(seconds, Observed)
    (exemplar,) = seconds.exemplars.values()
    assert (exemplar.trace, seconds.count) == (sent["traceId"], 1)
    assert exemplar.trace == context_of(None, "p", a_miss(1)[0].origin).trace


class Record:
    """A record of the results topic as the client returns it."""

    def __init__(self, value: bytes, headers: list[tuple[str, bytes]] | None) -> None:
        self._value, self._headers = value, headers

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self._headers


def test_the_callers_context_is_in_the_headers_of_the_result() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    records = [
        Record(encode(an_answer(0)), [("traceparent", parent.encode())]),
        Record(b"foreign", [("traceparent", parent.encode())]),
        Record(encode(an_answer(1)), None),
        Record(encode(an_answer(2)), [("traceparent", b"malformed")]),
    ]
    found = traced_answers(records, read_answer)  # type: ignore[arg-type]
    assert [(answer.id, trace) for answer, trace in found] == [
        ("q0", Trace(parent)), ("q1", None), ("q2", None),
    ]  # fmt: skip


def test_an_endpoint_that_is_no_address_is_refused_at_once() -> None:
    with pytest.raises(Unsuccessful, match="write such as http://localhost:4318"):
        an_export("localhost:4318", [])


class CollectorAway:
    """An unavailable collector and a topic with an answer for each turn, on one clock."""

    def __init__(self, length_s: float | None, most_turns: int = 1000) -> None:
        self.now = 1000.0
        self.turns, self._most_turns = 0, most_turns
        self.delivery = Delivery(
            self._send, lambda _: None,
            clock=lambda: self.now, sleep=self._sleep, chance=lambda: 0.0, length_s=length_s,
        )  # fmt: skip
        self.export = TraceExport(a_pipeline(slo_s=0.3), Sampling(), self.delivery)

    def read(self) -> list[Traced]:
        """Return the answer of a turn, which ends at once while the exporter catches up."""
        self.turns += 1
        if self.turns > self._most_turns:
            raise KeyboardInterrupt
        self.now += 0.01
        return [a_miss(self.turns)]

    def _send(self, request: dict[str, Any]) -> None:
        raise NotTaken("away", len(spans_in(request)), again=True)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_an_export_ends_in_time_while_the_collector_is_away() -> None:
    away = CollectorAway(length_s=10.0)
    away.export.follow(away.read)
    assert away.now <= 1000.0 + 10.0 + GIVE_UP_S
    assert (away.delivery.taken, away.export.answers) == (0, away.turns)
    assert away.delivery.dropped > 0


@pytest.mark.parametrize(
    ("turns", "length_s", "error"),
    [(1000, 10.0, Unsuccessful), (2, None, Unsuccessful), (0, None, KeyboardInterrupt)],
)
def test_a_command_that_has_dropped_spans_says_so_also_after_ctrl_c(
    turns: int, length_s: float | None, error: type[BaseException]
) -> None:
    away = CollectorAway(length_s, turns)
    with pytest.raises(error), checked(away.delivery):
        away.export.follow(away.read)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://local host:4318", "http://localhost:port", "http://[::1", "http://localhost:99999",
        "http://" + "a" * 70 + ".example:4318", "http://a..b:4318", "http://",
    ],
)  # fmt: skip
def test_an_endpoint_that_no_request_can_go_to_is_refused_in_one_sentence(endpoint: str) -> None:
    with pytest.raises(Unsuccessful, match=re.escape(repr(endpoint))):
        an_export(endpoint, [])


def test_a_collector_whose_certificate_is_not_trusted_is_not_asked_again(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "authority.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server(tmp_path / "server.pem"))
    with a_collector(context) as collector, pytest.raises(NotTaken, match="CERTIFICATE") as raised:
        send(collector.endpoint, request_of([{"name": "a"}], "p"))
    assert not raised.value.again
