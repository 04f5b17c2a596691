"""The outcomes of a load by phase, and in all.

The score is the share of all parts (digits) that were right and in time: accuracy of the answered
queries x SLO attainment. Unanswered queries are assumed to have as many parts as the others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.results.tally import Score, Sent, Tally, tally
from operators.outcomes import outcome_of
from schemas.records import ANSWERED, Answer, Plan
from streams.observers.plan_usage import PlanUsage

ALL = "all"


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of the load under one policy (epoch seconds)."""

    name: str
    policy: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The data of a load: queries sent, answers, and the plans meanwhile."""

    sent: Sequence[Sent]
    answers: Mapping[str, Answer]
    score: Score | None
    plans: Sequence[Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A policy and the time at which it came into force, seconds since the epoch."""

    since_s: float
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOutcomes:
    """The outcomes of one phase of the load, or of all of it."""

    name: str
    policy: str
    seconds: float
    tally: Tally
    devices: float | None  # mean number in use
    shares: Mapping[str, Mapping[str, float]]  # task -> variant -> share of answered branches

    @property
    def demand_qps(self) -> float | None:
        """The mean rate of the queries sent."""
        return self.tally.queries / self.seconds if self.seconds else None

    @property
    def score(self) -> float | None:
        """The share of the parts of all queries that were right and in time; None if the accuracy
        is unknown."""
        part = self.tally
        if part.accuracy is None or not part.queries:
            return None
        return (part.accuracy.parts or 0.0) * part.counts[ANSWERED] / part.queries

    def as_json(self) -> dict[str, Any]:
        """Return the phase as a JSON row."""
        demand_qps = self.demand_qps
        return {
            "phase": self.name,
            "policy": self.policy,
            "seconds": round(self.seconds, 3),
            "demand_qps": None if demand_qps is None else round(demand_qps, 3),
            "devices": None if self.devices is None else round(self.devices, 3),
            "score": self.score,
            **self.tally.as_json(),
            "variant_shares": {task: dict(shares) for task, shares in self.shares.items()},
        }


def by_phase(spans: Sequence[Span], seen: Seen) -> tuple[PhaseOutcomes, ...]:
    """Return the outcomes of each span, in order of time, and last those of all queries."""
    begins = [span.begin_s for span in spans[1:]]
    of_span: list[list[Sent]] = [[] for _ in spans]
    for query in seen.sent:
        of_span[sum(query.created_s >= begin for begin in begins)].append(query)
    parts = [_outcomes(span, sent, seen) for span, sent in zip(spans, of_span, strict=True)]
    whole = Span(ALL, "", spans[0].begin_s, spans[-1].end_s)
    return (*parts, _outcomes(whole, seen.sent, seen))


def by_policy(
    phases: Iterable[tuple[str, float, float]], in_force: Sequence[InForce]
) -> Iterator[Span]:
    """Yield phases (name, begin, end), split where another policy came into force."""
    for name, begin_s, end_s in phases:
        policy = next((p.policy for p in reversed(in_force) if p.since_s <= begin_s), "")
        for change in in_force:
            if begin_s < change.since_s < end_s:
                yield Span(name, policy, begin_s, change.since_s)
                begin_s, policy = change.since_s, change.policy
        yield Span(name, policy, begin_s, end_s)


def _outcomes(span: Span, sent: Sequence[Sent], seen: Seen) -> PhaseOutcomes:
    good = [a for q in sent if (a := seen.answers.get(q.id)) and outcome_of(a) == ANSWERED]
    usage = PlanUsage()
    for plan in sorted(seen.plans, key=lambda each: each.epoch):
        usage.plan(plan, plan.issued_s)
    return PhaseOutcomes(
        name=span.name,
        policy=span.policy,
        seconds=span.end_s - span.begin_s,
        tally=tally(sent, seen.answers, seen.score),
        devices=usage.devices_mean(span.begin_s, span.end_s),
        shares=variant_shares(good),
    )


def variant_shares(answers: Iterable[Answer]) -> dict[str, dict[str, float]]:
    """Return each variant's share of its task's hops in these answers: task -> variant -> share."""
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


def policies_in_force(history: Sequence[Plan], first_s: float, last_s: float) -> Iterator[InForce]:
    """Yield the policies that were in force between two times, each with its start."""
    in_force = ""
    for plan in sorted(history, key=lambda each: each.epoch):
        if plan.issued_s > last_s:
            return
        following = [p for p in history if p.epoch > plan.epoch and p.issued_s <= first_s]
        if following or plan.settings.policy == in_force:
            continue
        in_force = plan.settings.policy
        yield InForce(since_s=plan.issued_s, policy=in_force)
