"""Candidate models and their planning latencies.

Planning needs two times per model and batch: the latency, which decides whether a batch is late,
and the time that its worker is busy, which decides how queues grow. They are two quantiles of one
measurement, or the same quantile if the policy plans both by one, as the paper does. Neither may
fall as the batch grows: from the largest batch down, each value is lowered to the next one's if
that is smaller. Unmeasured batches are not used, except for the full queue, one query longer than
the longest batch: its times are extrapolated linearly from the measured ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from control.problem.problem import SelectionError


@dataclass(frozen=True, slots=True)
class CandidateModel:
    """A model that every worker holds.

    ``latency_s[b - 1]`` is the planning latency of batch b, ``occupied_s[b - 1]`` how long it keeps
    its worker busy; if that is empty, the latency applies.
    """

    name: str
    accuracy: float  # 0..1
    latency_s: tuple[float, ...]
    occupied_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``SelectionError`` for an impossible latency or accuracy."""
        if not 0 <= self.accuracy <= 1:
            raise SelectionError(
                f"the accuracy of {self.name} is {self.accuracy:g}; it must lie in 0..1"
            )
        seconds = (*self.latency_s, *self.occupied_s)
        if not self.latency_s or not all(0 < s < math.inf for s in seconds):
            raise SelectionError(
                f"{self.name} has latencies of {list(self.latency_s)} s; it needs one above 0 "
                "for every batch from 1, so profile it again"
            )
        assert len(self.occupied_s) in (0, len(self.latency_s))

    @property
    def busy_s(self) -> tuple[float, ...]:
        """How long each batch from 1 keeps its worker busy, in seconds."""
        return self.occupied_s or self.latency_s


def monotone(model: CandidateModel) -> CandidateModel:
    """Return the model with times that never fall as the batch grows."""
    latency_s, occupied_s = _never_falling(model.latency_s), _never_falling(model.occupied_s)
    return replace(model, latency_s=latency_s, occupied_s=occupied_s)


def _never_falling(seconds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(accumulate(reversed(seconds), min))[::-1]


def extrapolated_s(batches_s: Sequence[float]) -> float:
    """Return the seconds of a batch beyond the largest: least squares of seconds on batch, from
    those of every batch from 1."""
    count = len(batches_s)
    middle, mean = (count + 1) / 2, math.fsum(batches_s) / count
    spread = math.fsum((b - middle) ** 2 for b in range(1, count + 1))
    if spread == 0:
        return mean
    slope = math.fsum((b - middle) * s for b, s in enumerate(batches_s, start=1)) / spread
    return mean + slope * (count + 1 - middle)


def worthwhile(models: Sequence[CandidateModel]) -> tuple[CandidateModel, ...]:
    """Return the Pareto-optimal models, fastest first.

    A model is dominated if another is at least as accurate and takes at most as long for each of
    its batches, by both times; of equal ones the first stays.
    """
    return _front(models, max((len(model.latency_s) for model in models), default=0))


def worthwhile_alone(models: Sequence[CandidateModel]) -> tuple[CandidateModel, ...]:
    """Return the paper's front (section 4.3.3): accuracy against the latency of a single query."""
    return _front(models, 1)


def _front(models: Sequence[CandidateModel], batches: int) -> tuple[CandidateModel, ...]:
    def times(model: CandidateModel) -> tuple[float, ...]:
        missing = (math.inf,) * (batches - len(model.latency_s))
        return (*model.latency_s[:batches], *missing, *model.busy_s[:batches], *missing)

    kept: list[CandidateModel] = []
    for model in sorted(models, key=lambda m: (times(m), -m.accuracy)):
        mine = times(model)
        beaten = (
            other.accuracy >= model.accuracy
            and all(a <= b for a, b in zip(times(other), mine, strict=True))
            for other in kept
        )
        if not any(beaten):
            kept.append(model)
    return tuple(kept)
