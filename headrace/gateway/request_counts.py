"""The gateway's requests as metrics: endings, times, queries in flight."""

from collections import Counter
from collections.abc import Iterator, Mapping

from headrace.gateway.model import Model
from headrace.gateway.protocol.statuses import Ending
from streams.observers.metrics import BOUNDS_S, MetricSample, Observed

HTTP, GRPC = "http", "grpc"


class RequestCounts:
    """Counts of inference requests; ``samples`` may be called from another thread."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = models
        self._ended: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[tuple[str, str], Observed] = {}

    def ended(self, model: str, protocol: str, ending: Ending, seconds: float) -> None:
        """Count an inference request; models that do not exist are counted under ""."""
        named = model if model in self._models else ""
        self._ended[named, protocol, str(ending.http)] += 1
        times = self._seconds.get((named, protocol))
        if times is None:
            times = self._seconds[named, protocol] = Observed(BOUNDS_S)
        times.add(seconds)

    def samples(self) -> Iterator[MetricSample]:
        """Yield the samples of ``streams/observers/metric_table.py``."""
        for labels, count in list(self._ended.items()):
            yield "gateway_requests_total", labels, float(count)
        for labels_of_times, times in list(self._seconds.items()):
            yield "gateway_request_seconds", labels_of_times, times
        for model in self._models.values():
            yield "gateway_queries_open", (model.name,), float(model.open)
            yield "gateway_queries_limit", (model.name,), model.limit
            yield "gateway_requests_joined_total", (model.name,), float(model.joined)
            yield "gateway_ready", (model.name,), 0.0 if model.fault() else 1.0
