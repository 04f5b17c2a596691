"""The figures of a live run, or of one part of its arrivals, from its answers and plans."""

import numpy as np
from msgspec import structs

from headrace.arrivals.arrival_processes import Times
from headrace.config.pipeline_file import load_profile
from headrace.fidelity.live_run import LiveEnvironment, answers, number_of
from headrace.results.figures import Figures, figures
from headrace.results.latency_steps import StepTimes
from headrace.roles.profile_lookups import accuracies
from streams.observers.run_metrics import RunMetrics, given_up


def live_figures(
    stage: LiveEnvironment, times: Times, from_s: float = 0.0, until_s: float = float("inf")
) -> Figures:
    """Return the figures of the queries that arrived from ``from_s`` until before ``until_s``.

    Times are seconds from the start of the arrivals, in the pipeline's time.
    """
    first, end = (int(np.searchsorted(times, at_s)) for at_s in (from_s, until_s))
    since_s = stage.began_s + from_s
    last_s = stage.began_s + min(until_s, float(times[-1]))
    metrics = RunMetrics(stage.file.pipeline, accuracies(load_profile(stage.file)), since_s)
    steps = StepTimes()
    for plan in sorted(stage.plans, key=lambda each: each.epoch):
        if plan.issued_s <= last_s:
            metrics.plan(plan, plan.issued_s)
    for answer in answers(stage):
        if first <= number_of(answer) < end:
            # CreateTime is truncated to whole ms, so the first query's may be before ``since_s``.
            counted = structs.replace(answer, created_s=max(answer.created_s, since_s))
            metrics.take(counted, given_up(counted), answer.answered_s)
            steps.take(counted)
    metrics.close(end - first)
    return figures(metrics, steps, last_s)
