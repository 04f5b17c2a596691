"""A committee of past searches that predicts one objective until the search's own model is mature.

Each member predicts every point. Its error is the mean distance of its predictions to the
observations of this search; its weight is ``1 / (error^2 + eps)``, or 0 if its error exceeds that
of the search's own model; the five heaviest vote (Compass, Section 4.1: no metadata, only
prediction error). The vote is soft: the probability under the weighted mixture. An objective is
*mature* once its own model's one-step-ahead error is at most the committee's. Circinus v1 takes the
members with the least accumulated error instead (``top-k``).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EPSILON = 1e-4
VOTERS = 5
WINDOW = 6  # one-step-ahead errors of the own model
LEAST = 3


class Committee:
    """Members with ``means[h]`` and ``deviations[h]`` over all points; observations set their
    weights."""

    def __init__(
        self, means: Sequence[Floats], deviations: Sequence[Floats], members: str = "better"
    ) -> None:
        self._means = list(means)
        self._deviations = list(deviations)
        self._gaps = np.zeros(len(means))
        self._observed = 0
        self._own: deque[float] = deque(maxlen=WINDOW)
        self._weigh = WEIGHTS[members]
        self.mature = not means
        self.weights = np.full(len(means), 1 / max(len(means), 1))

    def tell(self, point: int, value: float, own: float | None) -> None:
        """Record an observation; ``own`` is the prediction of the search's own model for it."""
        self._observed += 1
        for member, mean in enumerate(self._means):
            self._gaps[member] += abs(float(mean[point]) - value)
        if own is not None:
            self._own.append(abs(own - value))
        self.weights = self._weigh(self.errors, self.own_error)
        if self.weights.sum() == 0 or self.own_error <= self._weighted_error():
            self.mature = True

    @property
    def errors(self) -> Floats:
        """Every member's mean error so far."""
        errors: Floats = self._gaps / max(self._observed, 1)
        return errors

    @property
    def own_error(self) -> float:
        """The own model's recent one-step-ahead error; infinite below three predictions."""
        return float(np.mean(self._own)) if len(self._own) >= LEAST else float("inf")

    def _weighted_error(self) -> float:
        return float(self.weights @ self.errors)

    def vote(self, probability: Callable[[Floats, Floats], Floats]) -> Floats:
        """Return the weighted mixture of ``probability(mean, deviation)`` over the voters."""
        total: Floats = np.zeros_like(self._means[0])
        for member in np.flatnonzero(self.weights).tolist():
            total += self.weights[member] * probability(
                self._means[member], self._deviations[member]
            )
        return total

    def mean(self) -> Floats:
        """Return the weighted mean of the voters' predictions."""
        total: Floats = np.zeros_like(self._means[0])
        for member in np.flatnonzero(self.weights).tolist():
            total += self.weights[member] * self._means[member]
        return total


def better(errors: Floats, own: float) -> Floats:
    """Return weights of the members whose error is at most the own model's."""
    weights = np.where(errors <= own, 1 / (errors**2 + EPSILON), 0.0)
    return _heaviest(weights)


def top_k(errors: Floats, own: float) -> Floats:
    """Return weights of the members with the least error, regardless of the own model's."""
    return _heaviest(1 / (errors**2 + EPSILON))


def _heaviest(weights: Floats) -> Floats:
    if len(weights) > VOTERS:
        least = np.sort(weights)[-VOTERS]
        weights = np.where(weights >= least, weights, 0.0)
    total = weights.sum()
    return weights / total if total > 0 else weights


WEIGHTS: Mapping[str, Callable[[Floats, float], Floats]] = {"better": better, "top-k": top_k}
