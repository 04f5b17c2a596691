"""What became of the queries? Outcomes, latencies and accuracy of a load, from its answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from operators.outcomes import LATE, LOST, OUTCOMES, outcome_of
from schemas.records import ANSWERED, Answer

# How a workload judges a result: (right, of).
Score = Callable[[Any, Any], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Sent:
    """A query that the broker took, with what is known of its right answer (None: nothing)."""

    id: str
    created_s: float
    truth: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """``parts``: share of parts (digits) right at their place; ``whole``: of results all right.

    Over answered queries; both None where there is none.
    """

    parts: float | None
    whole: float | None
    of: int  # queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A load's account. Latency is from CreateTime to answer, over all queries with a result:
    answered, late and incomplete ones."""

    queries: int
    counts: Mapping[str, int]
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    accuracy: Accuracy | None  # None where nobody knows the truth
    reasons: Mapping[str, int]  # why queries were not answered, commonest first

    def as_json(self) -> dict[str, Any]:
        """The account under the names of the command line."""
        row: dict[str, Any] = {"queries": self.queries, **self.counts}
        answered = self.counts[ANSWERED]
        row["slo_attainment"] = answered / self.queries if self.queries else None
        row |= {"p50_ms": self.p50_ms, "p95_ms": self.p95_ms, "p99_ms": self.p99_ms}
        if self.accuracy is not None:
            row |= {"accuracy": self.accuracy.parts, "accuracy_whole": self.accuracy.whole}
        return row


def tally(sent: Sequence[Sent], answers: Mapping[str, Answer], score: Score | None = None) -> Tally:
    """The account of some queries; ``answers`` by query id, of whatever queries."""
    ended = [(query, answers.get(query.id)) for query in sent]
    counts = dict.fromkeys(OUTCOMES, 0)
    reasons: dict[str, int] = {}
    for _, answer in ended:
        what = outcome_of(answer)
        counts[what] += 1
        if what not in (ANSWERED, LATE):
            why = _why(what, answer)
            reasons[why] = reasons.get(why, 0) + 1
    p50, p95, p99 = _percentiles([latency_ms(a) for _, a in ended if a and a.outcome == ANSWERED])
    return Tally(
        queries=len(sent),
        counts=counts,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        accuracy=None if score is None else measured_accuracy(sent, answers, score),
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )


def latency_ms(answer: Answer) -> float:
    """From the query's CreateTime to its answer."""
    return (answer.answered_s - answer.created_s) * 1e3


def measured_accuracy(
    sent: Sequence[Sent], answers: Mapping[str, Answer], score: Score
) -> Accuracy:
    """How right the answered queries are."""
    answered = [(q, a) for q in sent if (a := answers.get(q.id)) and outcome_of(a) == ANSWERED]
    scores = [score(answer.result, query.truth) for query, answer in answered]
    of = sum(parts for _, parts in scores)
    return Accuracy(
        parts=sum(right for right, _ in scores) / of if of else None,
        whole=sum(right == parts for right, parts in scores) / len(scores) if scores else None,
        of=len(scores),
    )


def _why(what: str, answer: Answer | None) -> str:
    if answer is None:
        return f"{LOST}: no answer came"
    where = f" at {answer.task}" if answer.task else ""
    return f"{what}{where}: {_numberless(answer.reason)}"


def _numberless(reason: str) -> str:
    """Reasons that differ by a measured time only are one reason."""
    words = reason.split()
    return " ".join(
        "N" if word.removeprefix("-").replace(".", "", 1).isdigit() else word for word in words
    )


def _percentiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values:
        return None, None, None
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return round(float(p50), 3), round(float(p95), 3), round(float(p99), 3)
