"""Serve the observers' metrics to Prometheus over HTTP, with liveness and readiness probes."""

import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from headrace.errors import PortTaken
from streams.observers.metric_table import BY_NAME, COUNTER, HISTOGRAM, PREFIX, SUMMARY, Metric
from streams.observers.metrics import MetricSample, Observed, TracedValue


class Probes(Protocol):
    """The reasons why a role must be restarted (``live``) and why it cannot accept work
    (``ready``); "" if there is none."""

    def live(self) -> str: ...
    def ready(self) -> str: ...


Source = Callable[[], Iterable[MetricSample]]

REQUEST_S = 10.0  # a client that sends or takes nothing for this long would keep a thread


def serve(
    sources: Iterable[Source], port: int, host: str, pipeline: str, health: Probes | None = None
) -> int:
    """Serve on ``port`` (0: any free port) of ``host``, a local address, until the process ends.

    Return the port. ``/metrics`` has the samples, each with the label ``pipeline``; ``/livez``
    (``/healthz``) and ``/readyz`` answer 200, or 503 with the reason.

    Raises ``PortTaken`` if the port is in use or the machine has no such address.
    """
    registry = CollectorRegistry()
    registry.register(_Folded(tuple(sources), pipeline))
    try:
        routes = _routes(make_wsgi_app(registry), health)
        server = make_server(host, port, routes, _ServerOn6 if ":" in host else _Server, _Silent)
    except OSError as error:
        raise PortTaken(
            f"metrics cannot be served on {host}:{port} ({error.strerror}); "
            "name another port with --metrics-port, or another address with --metrics-host"
        ) from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_port)


class _Server(ThreadingWSGIServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a client that has gone or sends nothing; its thread ends."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _ServerOn6(_Server):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes arrive every second."""


def _routes(metrics: Callable[..., Any], health: Probes | None) -> Callable[..., Any]:
    probes: dict[str, Callable[[], str]] = {}
    if health is not None:
        probes = {"/livez": health.live, "/healthz": health.live, "/readyz": health.ready}

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        path = environ["PATH_INFO"]
        if path in ("/", "/metrics"):
            return metrics(environ, start_response)
        probe = probes.get(path)
        status, text = _probed(probe) if probe else ("404 Not Found", "see /metrics")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer


def _probed(probe: Callable[[], str]) -> tuple[str, str]:
    why = probe()
    return ("503 Service Unavailable", why) if why else ("200 OK", "ok")


class _Folded(Collector):
    """A collector that reads the sources at every scrape."""

    def __init__(self, sources: tuple[Source, ...], pipeline: str) -> None:
        self._sources = sources
        self._pipeline = pipeline
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Family]:
        found: defaultdict[str, list[MetricSample]] = defaultdict(list)
        for source in self._sources:
            for sample in source():
                found[sample[0]].append(sample)
        for name, samples in sorted(found.items()):
            yield _labelled(_family(BY_NAME[name], samples), self._pipeline)
        for family in self._process.collect():
            yield _labelled(family, self._pipeline)

    def describe(self) -> list[Family]:
        return []


def _labelled(family: Family, pipeline: str) -> Family:
    """Add the pipeline's name to each sample: several pipelines share one Prometheus."""
    family.samples = [
        each._replace(labels={"pipeline": pipeline, **each.labels}) for each in family.samples
    ]
    return family


def _family(metric: Metric, samples: Iterable[MetricSample]) -> Family:
    name = PREFIX + metric.name
    if metric.kind in (HISTOGRAM, SUMMARY):
        return _observed(metric, name, samples)
    kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
    family = kind(name, metric.help, labels=metric.labels)
    for _, labels, value in samples:
        assert not isinstance(value, Observed)
        family.add_metric(labels, value)
    return family


def _observed(metric: Metric, name: str, samples: Iterable[MetricSample]) -> Family:
    histogram = HistogramMetricFamily(name, metric.help, labels=metric.labels)
    summary = SummaryMetricFamily(name, metric.help, labels=metric.labels)
    for _, labels, value in samples:
        assert isinstance(value, Observed)
        summary.add_metric(labels, value.count, value.total)
        histogram.add_metric(labels, _buckets(value), value.total)
    return histogram if metric.kind == HISTOGRAM else summary


def _buckets(observed: Observed) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    bounds = [*map(str, observed.bounds), "+Inf"]
    counts = zip(bounds, map(float, accumulate(observed.counts)), strict=True)
    return [
        (*bucket, _exemplar(observed.exemplars[at])) if at in observed.exemplars else bucket
        for at, bucket in enumerate(counts)
    ]


def _exemplar(traced: TracedValue) -> Exemplar:
    return Exemplar({"trace_id": traced.trace}, traced.value, traced.at_s)
