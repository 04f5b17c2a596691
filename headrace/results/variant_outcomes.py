"""Outcomes and latencies of queries by the variants that they passed through."""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.results.tally import latency_ms
from operators.outcomes import outcome_of
from schemas.records import Answer
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
