"""Autocorrelation of the sizes of consecutive queries.

An observer of the ingress role. The bounds and estimates of device mixes assume that sizes are
independent (Kairos, HPDC 2023, section 5.2). Where large queries come together, devices carry less.
No decision depends on it.
"""

import logging
from collections.abc import Iterator, Sequence

from schemas.effects import Arrived, Effect, Event
from schemas.records import Query
from streams.observers.journal import tell
from streams.observers.metrics import MetricSample

log = logging.getLogger("headrace.node")

MEMORY = 10_000  # queries behind the figure, about
FEWEST = 1_000  # queries before there is one
ALIKE = 0.2  # autocorrelation from which a line is logged

LEVELS = {"sizes.alike": logging.WARNING}


class SizeSeries:
    """An observer that folds queries; ``samples`` may be called from another thread.

    The figure is the lag-1 autocorrelation. It is logged once when it exceeds ``ALIKE``, and again
    after it has fallen below half of that.
    """

    kinds: frozenset[type] = frozenset((Query,))

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._queries = 0
        self._mean = self._variance = self._covariance = self._last = 0.0
        self._alike = False

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        if type(event) is not Arrived or type(event.record) is not Query:
            return
        self._add(event.record.size)
        figure = self.autocorrelation
        if figure > ALIKE and not self._alike:
            self._warn(node, figure)
        self._alike = figure > (ALIKE / 2 if self._alike else ALIKE)

    def _add(self, size: int) -> None:
        """Update moving averages of the size, and of its variance and covariance with the last."""
        self._queries += 1
        share = 1 / min(self._queries, MEMORY)
        apart = size - self._mean
        self._mean += share * apart
        self._variance += share * (apart * (size - self._mean) - self._variance)
        self._covariance += share * (apart * self._last - self._covariance)
        self._last = apart

    @property
    def autocorrelation(self) -> float:
        """The lag-1 autocorrelation, -1 to 1; 0 for few queries, or for queries of one size."""
        if self._queries < FEWEST or self._variance <= 0:
            return 0.0
        return min(max(self._covariance / self._variance, -1.0), 1.0)

    def _warn(self, node: str, figure: float) -> None:
        text = (
            f"sizes of consecutive queries are correlated ({figure:.2f}): large queries come "
            "together, and devices carry less than planned; raise the policy's headroom"
        )
        fields = {"node": node, "autocorrelation": round(figure, 3)}
        tell(log, LEVELS["sizes.alike"], "sizes.alike", text, pipeline=self._pipeline, **fields)

    def samples(self) -> Iterator[MetricSample]:
        """Yield the autocorrelation once there are ``FEWEST`` queries."""
        if self._queries >= FEWEST:
            yield "size_autocorrelation_ratio", (), self.autocorrelation
