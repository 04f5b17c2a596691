"""Candidate models and their planning latencies.

Planning needs one latency per model and batch that never falls as the batch grows, so from the
largest batch down each value is lowered to the next one's where that is smaller. Unmeasured batches
are not used, except for the full queue, one query longer than the longest batch: its latency lies
on the straight line through the measured ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from control.problem.problem import SelectionError


@dataclass(frozen=True, slots=True)
class CandidateModel:
    """A model that every worker holds. ``latency_s[b - 1]`` is the planning latency of batch b."""

    name: str
    accuracy: float  # 0..1
    latency_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise ``SelectionError`` for an impossible latency or accuracy."""
        if not 0 <= self.accuracy <= 1:
            raise SelectionError(
                f"the accuracy of {self.name} is {self.accuracy:g}; it must lie in 0..1"
            )
        if not self.latency_s or not all(0 < s < math.inf for s in self.latency_s):
            raise SelectionError(
                f"{self.name} has latencies of {list(self.latency_s)} s; it needs one above 0 "
                "for every batch from 1, so profile it again"
            )


def planned(model: CandidateModel) -> CandidateModel:
    """Return the model with latencies that never fall as the batch grows."""
    lowered = list(model.latency_s)
    for at in range(len(lowered) - 2, -1, -1):
        lowered[at] = min(lowered[at], lowered[at + 1])
    return CandidateModel(model.name, model.accuracy, tuple(lowered))


def extrapolated_s(model: CandidateModel) -> float:
    """Return the seconds of a batch beyond the largest: least squares of latency on batch."""
    count = len(model.latency_s)
    middle, mean = (count + 1) / 2, math.fsum(model.latency_s) / count
    spread = math.fsum((b - middle) ** 2 for b in range(1, count + 1))
    if spread == 0:
        return mean
    slope = math.fsum((b - middle) * s for b, s in enumerate(model.latency_s, start=1)) / spread
    return mean + slope * (count + 1 - middle)


def worthwhile(models: Sequence[CandidateModel]) -> tuple[CandidateModel, ...]:
    """Return the Pareto-optimal models, fastest first.

    A model is dominated if another is at least as accurate and at most as slow for each of its
    batches; of equal ones the first stays.
    """
    return _front(models, max((len(model.latency_s) for model in models), default=0))


def worthwhile_alone(models: Sequence[CandidateModel]) -> tuple[CandidateModel, ...]:
    """Return the paper's front (section 4.3.3): accuracy against the latency of a single query."""
    return _front(models, 1)


def _front(models: Sequence[CandidateModel], batches: int) -> tuple[CandidateModel, ...]:
    def latencies(model: CandidateModel) -> tuple[float, ...]:
        known = model.latency_s[:batches]
        return known + (math.inf,) * (batches - len(known))

    kept: list[CandidateModel] = []
    for model in sorted(models, key=lambda m: (latencies(m), -m.accuracy)):
        mine = latencies(model)
        beaten = (
            other.accuracy >= model.accuracy
            and all(a <= b for a, b in zip(latencies(other), mine, strict=True))
            for other in kept
        )
        if not any(beaten):
            kept.append(model)
    return tuple(kept)
