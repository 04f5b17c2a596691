"""The report of a demo: outcomes by phase, and the time of each step.

The score is the share of all parts (digits) that were right and in time: accuracy of the answered
queries x SLO attainment. Unanswered queries are assumed to have as many parts as the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.results.latency_steps import StepTimes
from headrace.results.tally import Score, Sent, Tally, tally
from operators.outcomes import outcome_of
from profiles.measurements import ProfileError
from profiles.path_accuracy import PathGap, path_gap
from profiles.profile_table import ProfileTable
from schemas.records import ANSWERED, Answer, Plan
from streams.observers.plan_usage import PlanUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The policy command: its time (epoch seconds) and its result."""

    before: str
    after: str
    at_s: float
    took_ms: float | None = None  # until its plan was issued; None: no result arrived
    epoch: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConditions:
    """The conditions of a demo. ``warm_up`` queries preceded the load and are not counted."""

    pipeline: str
    machine: str
    seconds: float
    rate_qps: float  # mean
    peak_qps: float
    hardware_qps: float | None  # the capacity of the most accurate variants, by the profile
    seed: int
    warm_up: int
    distinct_inputs: int
    behind_ms: float  # the largest delay of a query behind its arrival time
    left: tuple[str, ...] = ()  # processes alive after the teardown


@dataclass(frozen=True, slots=True)
class MeanStep:
    """A step of a query: its mean time over the answered queries."""

    what: str
    mean_ms: float
    share: float


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of the load under one policy (epoch seconds)."""

    name: str
    policy: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The data of a demo: queries sent, answers, and the plans meanwhile."""

    sent: Sequence[Sent]
    answers: Mapping[str, Answer]
    score: Score
    spans: Sequence[Span]
    plans: Sequence[Plan]
    profile: ProfileTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPart:
    """One phase of the load, or all of it."""

    name: str
    policy: str
    seconds: float
    tally: Tally
    devices: float | None  # mean number in use
    shares: Mapping[str, Mapping[str, float]]  # task -> variant -> share of answered branches

    @property
    def score(self) -> float | None:
        """The share of the parts of all queries that were right and in time."""
        return score(self.tally)

    def as_json(self) -> dict[str, Any]:
        """Return the phase as a JSON row."""
        return {
            "phase": self.name,
            "policy": self.policy,
            "seconds": round(self.seconds, 3),
            "demand_qps": round(self.tally.queries / self.seconds, 3) if self.seconds else None,
            "devices": None if self.devices is None else round(self.devices, 3),
            "score": self.score,
            **_row(self.tally),
            "variant_shares": {task: dict(shares) for task, shares in self.shares.items()},
        }


@dataclass(frozen=True, slots=True)
class ExpectedAccuracy:
    """The accuracy that the profile predicts for the answered branches: by measured paths, and by
    the products of their variants' accuracies."""

    by_paths: float
    by_products: float
    gap: PathGap


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The complete report of a demo."""

    conditions: DemoConditions
    whole: DemoPart
    change: Change | None
    parts: tuple[DemoPart, ...]  # in order of time
    steps: tuple[MeanStep, ...]
    expected: ExpectedAccuracy | None  # None without measured paths

    @property
    def total(self) -> Tally:
        """The outcomes of all queries."""
        return self.whole.tally

    @property
    def sound(self) -> bool:
        """Whether no query was lost and every process has ended."""
        return self.total.counts["lost"] == 0 and not self.conditions.left

    def as_json(self) -> dict[str, Any]:
        """Return the report as one JSON object."""
        conditions = self.conditions
        answered = self.total.counts[ANSWERED]
        return {
            **_row(self.total),
            "score": self.whole.score,
            "devices": self.whole.devices,
            "seconds": round(conditions.seconds, 3),
            "throughput_qps": round(answered / conditions.seconds, 3),
            "pipeline": conditions.pipeline,
            "rate_qps": round(conditions.rate_qps, 3),
            "peak_qps": round(conditions.peak_qps, 3),
            "hardware_qps": conditions.hardware_qps,
            "seed": conditions.seed,
            "warm_up_queries_excluded": conditions.warm_up,
            "distinct_inputs": conditions.distinct_inputs,
            "behind_ms": round(conditions.behind_ms, 3),
            "machine": conditions.machine,
            "policy_change": None if self.change is None else _change_row(self.change),
            "phases": [part.as_json() for part in self.parts],
            "variant_shares": {t: dict(shares) for t, shares in self.whole.shares.items()},
            "path_accuracy": None if self.expected is None else _expected_row(self.expected),
            "time_spent": [
                {"step": s.what, "mean_ms": round(s.mean_ms, 3), "share": round(s.share, 4)}
                for s in self.steps
            ],
            "reasons": dict(self.total.reasons),
            "processes_left": list(conditions.left),
        }


def report(conditions: DemoConditions, seen: Seen, change: Change | None) -> DemoReport:
    """Return the report on a demo's queries and answers."""
    whole = Span("all", "", seen.spans[0].begin_s, seen.spans[-1].end_s)
    good = [a for q in seen.sent if (a := seen.answers.get(q.id)) and outcome_of(a) == ANSWERED]
    return DemoReport(
        conditions=conditions,
        whole=_part(whole, seen.sent, seen),
        change=change,
        parts=_parts(seen),
        steps=time_spent(good),
        expected=expected(good, seen.profile),
    )


def score(part: Tally) -> float | None:
    """Return the share of the parts of all queries that were right and in time; None if the
    accuracy is unknown."""
    if part.accuracy is None or not part.queries:
        return None
    return (part.accuracy.parts or 0.0) * part.counts[ANSWERED] / part.queries


def _parts(seen: Seen) -> tuple[DemoPart, ...]:
    begins = [span.begin_s for span in seen.spans[1:]]
    of_span: list[list[Sent]] = [[] for _ in seen.spans]
    for query in seen.sent:
        of_span[sum(query.created_s >= begin for begin in begins)].append(query)
    return tuple(_part(span, sent, seen) for span, sent in zip(seen.spans, of_span, strict=True))


def _part(span: Span, sent: Sequence[Sent], seen: Seen) -> DemoPart:
    good = [a for q in sent if (a := seen.answers.get(q.id)) and outcome_of(a) == ANSWERED]
    usage = PlanUsage()
    for plan in sorted(seen.plans, key=lambda each: each.epoch):
        usage.plan(plan, plan.issued_s)
    return DemoPart(
        name=span.name,
        policy=span.policy,
        seconds=span.end_s - span.begin_s,
        tally=tally(sent, seen.answers, seen.score),
        devices=usage.devices_mean(span.begin_s, span.end_s),
        shares=variant_shares(good),
    )


def expected(answers: Iterable[Answer], profile: ProfileTable | None) -> ExpectedAccuracy | None:
    """Return the accuracy that the profile predicts for these answers; None without measured
    paths."""
    gap = None if profile is None else path_gap(profile)
    if profile is None or gap is None:
        return None
    counts: dict[tuple[str, ...], int] = {}
    for answer in answers:
        for path in answer.paths:
            key = tuple(hop.key for hop in path)
            counts[key] = counts.get(key, 0) + 1
    try:
        known = [(profile.along(key), profile.product(key), n) for key, n in counts.items()]
    except ProfileError:  # a path that ended early, or a variant without a profile
        known = [(a, a, n) for key, n in counts.items() if (a := profile.path_accuracy.get(key))]
    total = sum(n for *_, n in known)
    if not total:
        return None
    by_paths = sum(along * n for along, _, n in known) / total
    return ExpectedAccuracy(by_paths, sum(product * n for _, product, n in known) / total, gap)


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


def time_spent(answers: Sequence[Answer]) -> tuple[MeanStep, ...]:
    """Return the mean time of every step over these answers, in step order."""
    steps = StepTimes()
    for answer in answers:
        steps.take(answer)
    total_ms = sum(steps.mean_ms.values())
    return tuple(
        MeanStep(what, mean_ms, mean_ms / total_ms if total_ms else 0.0)
        for what, mean_ms in steps.mean_ms.items()
    )


def _row(part: Tally) -> dict[str, Any]:
    row = part.as_json()
    row["postcode_accuracy"] = row.pop("accuracy_whole", None)
    return row


def _expected_row(expected: ExpectedAccuracy) -> dict[str, Any]:
    return {
        "by_paths": round(expected.by_paths, 6),
        "by_products": round(expected.by_products, 6),
        "paths": expected.gap.paths,
        "mean_difference": round(expected.gap.mean, 6),
        "largest_difference": round(expected.gap.largest, 6),
        "largest_path": list(expected.gap.where),
    }


def _change_row(change: Change) -> dict[str, Any]:
    return {
        "before": change.before,
        "after": change.after,
        "took_ms": None if change.took_ms is None else round(change.took_ms, 3),
        "epoch": change.epoch,
        "message": change.message,
    }
