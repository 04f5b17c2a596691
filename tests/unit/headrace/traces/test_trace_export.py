"""Answers to a collector over HTTP: what is counted of those taken and those dropped."""

import pytest

from headrace.errors import Unsuccessful
from headrace.traces.trace_context import own_context
from headrace.traces.trace_export import Sampling, TraceExport
from schemas.records import DROPPED, Answer
from streams.observers.metrics import Observed
from tests.builders import a_pipeline, an_answer
from tests.otlp_collector import a_collector


def an_export(endpoint: str, told: list[str]) -> TraceExport:
    return TraceExport(a_pipeline(slo_s=0.3), endpoint, Sampling(share=0.0), told.append)


def a_miss(offset: int) -> Answer:
    return an_answer(offset, outcome=DROPPED, reason="too late", task="read")


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
        export.export([a_miss(2), an_answer(3)])
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
    assert exemplar.trace == own_context("p", a_miss(1).origin).trace


def test_an_endpoint_that_is_no_address_is_refused_at_once() -> None:
    with pytest.raises(Unsuccessful, match="write such as http://localhost:4318"):
        an_export("localhost:4318", [])
