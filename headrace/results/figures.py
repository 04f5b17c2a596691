"""Compute the figures of a run, live or simulated, from its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.results.latency_steps import StepTimes
from streams.observers.run_metrics import RunMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run. Fractions are 0..1; None: no data.

    ``drops`` is the share of queries not answered complete and in time, by the class of the
    reason. ``steps_ms`` is the mean time of each step of the answered queries, along the branch
    that ended last. ``replicas`` is the time average of the workers that the plans in force gave
    each variant ("task/variant"); if it differs between two runs, they followed different plans.
    """

    queries: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    branch_violation: float | None
    violation: float | None
    accuracy: float | None
    devices_mean: float | None
    drops: Mapping[str, float] = field(default_factory=dict)
    steps_ms: Mapping[str, float] = field(default_factory=dict)
    replicas: Mapping[str, float] = field(default_factory=dict)


def figures(metrics: RunMetrics, steps: StepTimes, until_s: float) -> Figures:
    """Return the figures of closed metrics; the last query was created at ``until_s``."""
    queries = metrics.queries
    return Figures(
        queries=queries,
        p50_ms=metrics.latency_ms(0.5),
        p95_ms=metrics.latency_ms(0.95),
        p99_ms=metrics.latency_ms(0.99),
        branch_violation=metrics.branch_violation,
        violation=metrics.violation,
        accuracy=metrics.accuracy,
        devices_mean=metrics.devices_mean(until_s),
        drops={why: count / queries for why, count in metrics.causes.items()},
        steps_ms=steps.mean_ms,
        replicas=metrics.usage.replicas_mean(metrics.since_s, until_s),
    )
