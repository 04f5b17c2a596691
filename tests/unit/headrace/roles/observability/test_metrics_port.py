"""Metrics over HTTP as Prometheus reads them."""

import socket
from collections.abc import Iterator
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar, Timestamp

from headrace.errors import PortTaken
from headrace.roles.observability import metrics_port
from headrace.roles.observability.log_options import LOOPBACK
from headrace.roles.observability.metrics_port import serve
from schemas.effects import RESULTS, Send, Woke
from streams.observers.health import LIVE_S, Health
from streams.observers.metrics import Metrics, MetricSample, Observed, TracedValue
from tests.builders import a_pipeline, a_refusal, an_answer
from tests.memory_transport import VirtualClock


def scraped(port: int, host: str = LOOPBACK) -> dict[str, float]:
    """Return sample values by name and labels, without the pipeline label and process metrics."""
    with urlopen(f"http://{host}:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert {sample.labels.pop("pipeline") for sample in samples} == {"p"}
    assert any(sample.name.startswith("process_cpu") for sample in samples)
    return {
        f"{sample.name}{sample.labels or ''}": sample.value
        for sample in samples
        if sample.name.startswith("headrace_")
    }


def lag() -> Iterator[MetricSample]:
    yield "lag_records", ("queries",), 3.0


def test_a_bucket_has_the_newest_trace_in_it_as_its_exemplar_in_open_metrics() -> None:
    seconds = Observed((0.1, 1.0))
    for trace, value in (("a", 0.1), ("b", 0.3), ("c", 0.4), ("d", 7.0)):
        seconds.add_traced(TracedValue(trace, value, 1000.5))
    seconds.add(0.2)
    port = serve([lambda: [("exported_query_seconds", (), seconds)]], 0, LOOPBACK, "p")
    asked = Request(
        f"http://{LOOPBACK}:{port}/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    with urlopen(asked, timeout=5) as answer:
        families = {f.name: f for f in open_metrics(answer.read().decode())}
    found = {
        sample.labels["le"]: (sample.value, sample.exemplar)
        for sample in families["headrace_exported_query_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    at = Timestamp(1000, 500_000_000)
    assert found == {
        "0.1": (1, Exemplar({"trace_id": "a"}, 0.1, at)),
        "1.0": (4, Exemplar({"trace_id": "c"}, 0.4, at)),
        "+Inf": (5, Exemplar({"trace_id": "d"}, 7.0, at)),
    }
    assert scraped(port)["headrace_exported_query_seconds_count"] == 5


def test_what_was_folded_is_read_over_http() -> None:
    metrics = Metrics(a_pipeline(slo_s=0.3))
    answers = [an_answer(0, expected_accuracy=0.75), a_refusal(1, "over capacity", 0.01)]
    metrics.saw("egress-0", Woke(), [Send(RESULTS, answer) for answer in answers], 1.0)
    found = scraped(serve([metrics.samples, lag], 0, LOOPBACK, "p"))
    buckets = [
        value for name, value in found.items() if name.startswith("headrace_query_seconds_b")
    ]
    assert buckets == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert found["headrace_query_seconds_bucket{'le': '0.3'}"] == 1
    assert {name: value for name, value in found.items() if "bucket" not in name} == {
        "headrace_dead_letters_total": 0,
        "headrace_queries_total{'outcome': 'answered'}": 1,
        "headrace_queries_total{'outcome': 'refused'}": 1,
        "headrace_misses_total"
        "{'outcome': 'refused', 'reason': 'over_capacity', 'task': 'ingress'}": 1,
        "headrace_query_seconds_count": 1,
        "headrace_query_seconds_sum": 0.2,
        "headrace_served_accuracy_ratio_count": 1,
        "headrace_served_accuracy_ratio_sum": 0.75,
        "headrace_lag_records{'topic': 'queries'}": 3,
    }  # fmt: skip


def test_port_in_use_is_reported_with_a_remedy() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"127\.0\.0\.1:{port} .*--metrics-port"):
            serve([], port, LOOPBACK, "p")


def test_a_client_that_sends_nothing_loses_its_connection_and_leaves_no_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_port._Silent, "timeout", 0.05)
    port = serve([lag], 0, LOOPBACK, "p")
    with socket.create_connection((LOOPBACK, port), timeout=5) as client:
        assert client.recv(1) == b""
    assert scraped(port) == {"headrace_lag_records{'topic': 'queries'}": 3}
    assert capfd.readouterr().err == ""


def test_it_answers_on_the_address_that_is_named_only() -> None:
    port = serve([lag], 0, "127.0.0.2", "p")
    assert scraped(port, "127.0.0.2") == {"headrace_lag_records{'topic': 'queries'}": 3}
    with pytest.raises(URLError):
        scraped(port)


def test_it_answers_on_an_address_of_ipv6() -> None:
    port = serve([lag], 0, "::1", "p")
    assert scraped(port, "[::1]") == {"headrace_lag_records{'topic': 'queries'}": 3}


def test_address_of_another_machine_is_reported_with_a_remedy() -> None:
    with pytest.raises(PortTaken, match=r"192\.0\.2\.1:0 .*--metrics-host"):
        serve([], 0, "192.0.2.1", "p")


def test_probes_follow_the_work_that_is_done() -> None:
    clock = VirtualClock()
    health = Health(clock)
    port = serve([], 0, LOOPBACK, "p", health)

    def asked(path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode().strip()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode().strip()

    assert asked("/readyz") == (503, "not started yet")
    health.beat("control")
    assert [asked(path) for path in ("/livez", "/healthz", "/readyz")] == [(200, "ok")] * 3
    clock.now = LIVE_S + 1
    assert asked("/livez") == (503, "control has made no progress for 11 s")
    assert asked("/nothing") == (404, "see /metrics")
