"""Outcomes and latencies of queries by the variants that they passed through, and the accuracy that
a profile predicts for those variants."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.results.tally import latency_ms
from operators.outcomes import outcome_of
from profiles.measurements import ProfileError
from profiles.path_accuracy import PathGap, path_gap
from profiles.profile_table import ProfileTable
from schemas.records import ANSWERED, Answer
from streams.observers.quantiles import Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOutcomes:
    """The queries with at least one branch through a variant ("task/variant").

    ``outcomes`` counts them by outcome, ``expected_accuracy`` is the mean of those that have one.
    """

    variant: str
    queries: int
    outcomes: dict[str, int]
    p50_ms: float
    p95_ms: float
    expected_accuracy: float | None


def by_variant(answers: Iterable[Answer]) -> tuple[VariantOutcomes, ...]:
    """Return the outcomes of every variant on the answers' paths, by name.

    Answers without paths (``answer_paths: none``) count under no variant.
    """
    passed: dict[str, list[Answer]] = {}
    for answer in answers:
        for variant in sorted({hop.key for path in answer.paths for hop in path}):
            passed.setdefault(variant, []).append(answer)
    return tuple(_outcomes(variant, passed[variant]) for variant in sorted(passed))


def _outcomes(variant: str, answers: list[Answer]) -> VariantOutcomes:
    counts: dict[str, int] = {}
    for answer in answers:
        outcome = str(outcome_of(answer))
        counts[outcome] = counts.get(outcome, 0) + 1
    latencies = Quantiles()
    for answer in answers:
        latencies.add(latency_ms(answer))
    known = [a.expected_accuracy for a in answers if a.expected_accuracy is not None]
    return VariantOutcomes(
        variant=variant,
        queries=len(answers),
        outcomes=dict(sorted(counts.items())),
        p50_ms=round(latencies.at(0.5) or 0.0, 3),
        p95_ms=round(latencies.at(0.95) or 0.0, 3),
        expected_accuracy=sum(known) / len(known) if known else None,
    )


@dataclass(frozen=True, slots=True)
class ExpectedAccuracy:
    """The accuracy that the profile predicts for the answered branches: by measured paths, and by
    the products of their variants' accuracies."""

    by_paths: float
    by_products: float
    gap: PathGap

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as a JSON row."""
        return {
            "by_paths": round(self.by_paths, 6),
            "by_products": round(self.by_products, 6),
            "paths": self.gap.paths,
            "mean_difference": round(self.gap.mean, 6),
            "largest_difference": round(self.gap.largest, 6),
            "largest_path": list(self.gap.where),
        }


def profiled_accuracy(answers: Iterable[Answer], table: ProfileTable) -> ExpectedAccuracy | None:
    """Return the accuracy that the profile predicts for the answered queries among these; None
    without measured paths."""
    gap = path_gap(table)
    if gap is None:
        return None
    answered = (answer for answer in answers if outcome_of(answer) == ANSWERED)
    counts = Counter(tuple(hop.key for hop in path) for answer in answered for path in answer.paths)
    try:
        known = [(table.along(key), table.product(key), n) for key, n in counts.items()]
    except ProfileError:  # a path that ended early, or a variant without a profile
        known = [(a, a, n) for key, n in counts.items() if (a := table.path_accuracy.get(key))]
    total = sum(n for *_, n in known)
    if not total:
        return None
    by_paths = sum(along * n for along, _, n in known) / total
    return ExpectedAccuracy(by_paths, sum(product * n for _, product, n in known) / total, gap)
