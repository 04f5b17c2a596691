"""Tally a load: the metrics of its queries and the accuracy of their results."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.drop_reasons import counted_as
from operators.outcomes import LATE, LOST, outcome_of
from schemas.records import ANSWERED, Answer
from streams.observers.run_metrics import QueryMetrics

# A workload's judge of (result, truth): parts right, parts.
Score = Callable[[Any, Any], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Sent:
    """A query that the broker accepted, with its true answer (None: unknown)."""

    id: str
    created_s: float
    truth: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """``parts``: share of parts (digits) that are right; ``whole``: share of results all right.

    Over answered queries; both None if no query was answered.
    """

    parts: float | None
    whole: float | None
    of: int  # queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The metrics of a load and the accuracy of its answers."""

    metrics: QueryMetrics
    accuracy: Accuracy | None  # None if the true answers are unknown
    reasons: Mapping[str, int]  # reasons for queries without an answer, most frequent first

    @property
    def queries(self) -> int:
        """Number of queries that the broker accepted."""
        return self.metrics.queries

    @property
    def counts(self) -> Mapping[str, int]:
        """Queries by outcome."""
        return self.metrics.counts

    @property
    def slo_attainment(self) -> float | None:
        """Share of the queries answered complete and in time."""
        return self.counts[ANSWERED] / self.queries if self.queries else None

    def as_json(self) -> dict[str, Any]:
        """Return the tally with the keys of the command line."""
        row: dict[str, Any] = {"queries": self.queries, **self.counts}
        row["slo_attainment"] = self.slo_attainment
        row |= {f"p{n}_ms": self.metrics.latency_ms(n / 100) for n in (50, 95, 99)}
        if self.accuracy is not None:
            row |= {"accuracy": self.accuracy.parts, "accuracy_whole": self.accuracy.whole}
        return row


def tally(sent: Sequence[Sent], answers: Mapping[str, Answer], score: Score | None = None) -> Tally:
    """Return the tally of ``sent``; ``answers`` by query id may hold those of other queries."""
    metrics, reasons = QueryMetrics(), Counter[str]()
    for query in sent:
        answer = answers.get(query.id)
        metrics.count(answer)
        if outcome_of(answer) not in (ANSWERED, LATE):
            reasons[_why(answer)] += 1
    return Tally(
        metrics=metrics,
        accuracy=None if score is None else measured_accuracy(sent, answers, score),
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )


def latency_ms(answer: Answer) -> float:
    """Return the time from the query's CreateTime to its answer, ms."""
    return (answer.answered_s - answer.created_s) * 1e3


def outcome_text(answer: Answer) -> str:
    """Return the outcome of an answer, with a note if a result without some of its parts exists."""
    partial = answer.outcome == ANSWERED and answer.incomplete
    return outcome_of(answer) + (", answered with a part missing" if partial else "")


def measured_accuracy(
    sent: Sequence[Sent], answers: Mapping[str, Answer], score: Score
) -> Accuracy:
    """Return the accuracy of the answered queries."""
    answered = [(q, a) for q in sent if (a := answers.get(q.id)) and outcome_of(a) == ANSWERED]
    scores = [score(answer.result, query.truth) for query, answer in answered]
    of = sum(parts for _, parts in scores)
    return Accuracy(
        parts=sum(right for right, _ in scores) / of if of else None,
        whole=sum(right == parts for right, parts in scores) / len(scores) if scores else None,
        of=len(scores),
    )


def _why(answer: Answer | None) -> str:
    if answer is None:
        return f"{LOST}: no answer came"
    where = f" at {answer.task}" if answer.task else ""
    return f"{outcome_of(answer)}{where}: {counted_as(answer.reason_code, answer.reason)}"
