"""What did a demo show? Outcomes before and after the change of policy, and where time was spent.

Time is followed along the branch that finished last, which is the one the answer waited for. Its
steps add up to the query's latency.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.outcomes import Score, Sent, Tally, outcome, tally
from schemas.records import ANSWERED, Answer, Hop


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The policy command: when it was given (epoch seconds) and what came of it."""

    before: str
    after: str
    at_s: float
    took_ms: float | None = None  # until its plan was out; None: no result came
    epoch: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under which the demo ran. ``warm_up`` queries came before the clock and are not counted."""

    pipeline: str
    machine: str
    seconds: float
    rate_qps: float
    seed: int
    warm_up: int
    distinct_inputs: int
    behind_ms: float  # how late a query left at worst
    left: tuple[str, ...] = ()  # processes that did not go


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a query's way: its mean over the answered queries."""

    what: str
    mean_ms: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """Everything a demo has to tell."""

    conditions: Conditions
    total: Tally
    change: Change | None
    phases: tuple[tuple[str, Tally], ...]  # by policy, in order of time
    shares: Mapping[str, Mapping[str, float]]  # task -> variant -> share of answered branches
    steps: tuple[Step, ...]

    @property
    def sound(self) -> bool:
        """Nothing was lost and every process is gone."""
        return self.total.counts["lost"] == 0 and not self.conditions.left

    def as_json(self) -> dict[str, Any]:
        """The report as one object."""
        conditions = self.conditions
        answered = self.total.counts[ANSWERED]
        return {
            **_row(self.total),
            "seconds": round(conditions.seconds, 3),
            "throughput_qps": round(answered / conditions.seconds, 3),
            "pipeline": conditions.pipeline,
            "rate_qps": round(conditions.rate_qps, 3),
            "seed": conditions.seed,
            "warm_up_queries_excluded": conditions.warm_up,
            "distinct_inputs": conditions.distinct_inputs,
            "behind_ms": round(conditions.behind_ms, 3),
            "machine": conditions.machine,
            "policy_change": None if self.change is None else _change_row(self.change),
            "phases": [{"policy": policy, **_row(part)} for policy, part in self.phases],
            "variant_shares": {task: dict(shares) for task, shares in self.shares.items()},
            "time_spent": [
                {"step": s.what, "mean_ms": round(s.mean_ms, 3), "share": round(s.share, 4)}
                for s in self.steps
            ],
            "reasons": dict(self.total.reasons),
            "processes_left": list(conditions.left),
        }


def report(
    conditions: Conditions,
    sent: Sequence[Sent],
    answers: Mapping[str, Answer],
    score: Score,
    change: Change | None,
) -> DemoReport:
    """The report on a demo's queries and answers."""
    good = [a for q in sent if (a := answers.get(q.id)) and outcome(a) == ANSWERED]
    return DemoReport(
        conditions=conditions,
        total=tally(sent, answers, score),
        change=change,
        phases=() if change is None else _phases(sent, answers, score, change),
        shares=variant_shares(good),
        steps=time_spent(good),
    )


def _phases(
    sent: Sequence[Sent], answers: Mapping[str, Answer], score: Score, change: Change
) -> tuple[tuple[str, Tally], ...]:
    before = [query for query in sent if query.created_s < change.at_s]
    after = [query for query in sent if query.created_s >= change.at_s]
    return (
        (change.before, tally(before, answers, score)),
        (change.after, tally(after, answers, score)),
    )


def variant_shares(answers: Iterable[Answer]) -> dict[str, dict[str, float]]:
    """Which variants the branches of these answers went through, as shares of each task."""
    counts: dict[str, dict[str, int]] = {}
    for answer in answers:
        for path in answer.paths:
            for hop in path:
                of_task = counts.setdefault(hop.task, {})
                of_task[hop.variant] = of_task.get(hop.variant, 0) + 1
    return {
        task: {name: n / sum(of_task.values()) for name, n in sorted(of_task.items())}
        for task, of_task in counts.items()
    }


def time_spent(answers: Sequence[Answer]) -> tuple[Step, ...]:
    """The mean of every step over these answers, in order of the way."""
    sums: dict[str, float] = {}
    for answer in answers:
        for what, seconds in steps(answer):
            sums[what] = sums.get(what, 0.0) + seconds
    total = sum(sums.values())
    # The way to the answer is last, also where some branches end earlier than others.
    ordered = sorted(sums, key=lambda what: what == LAST)
    return tuple(
        Step(what, sums[what] / len(answers) * 1e3, sums[what] / total if total else 0.0)
        for what in ordered
    )


LAST = "to the answer: Kafka, egress"


def steps(answer: Answer) -> list[tuple[str, float]]:
    """The steps of the branch that finished last, in seconds; they sum to the latency."""
    path = max(answer.paths, key=_finished_s, default=())
    at_s, found = answer.created_s, []
    for depth, hop in enumerate(path):
        way = "Kafka, ingress" if depth == 0 else "Kafka"
        found += [
            (f"to {hop.task}: {way}", hop.received_s - at_s),
            (f"{hop.task}: queue", hop.started_s - hop.received_s),
            (f"{hop.task}: compute", hop.finished_s - hop.started_s),
        ]
        at_s = hop.finished_s
    return [*found, (LAST, answer.answered_s - at_s)]


def _finished_s(path: Sequence[Hop]) -> float:
    return path[-1].finished_s if path else float("-inf")


def _row(part: Tally) -> dict[str, Any]:
    row = part.as_json()
    row["postcode_accuracy"] = row.pop("accuracy_whole", None)
    return row


def _change_row(change: Change) -> dict[str, Any]:
    return {
        "before": change.before,
        "after": change.after,
        "took_ms": None if change.took_ms is None else round(change.took_ms, 3),
        "epoch": change.epoch,
        "message": change.message,
    }
