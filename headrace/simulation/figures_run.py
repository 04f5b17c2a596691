"""Simulate a run and return its figures, as a live run has them."""

from headrace.results.figures import Figures, figures
from headrace.results.latency_steps import StepTimes
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Advance, simulated
from streams.observers.run_metrics import RunMetrics


def figures_of(run: Run, advance: Advance) -> Figures:
    """Play a run to its end; raises ``PipelineError`` if a variant has no profile."""
    watches: list[StepTimes] = []

    def watch(metrics: RunMetrics) -> StepTimes:
        watches.append(StepTimes(metrics))
        return watches[-1]

    ended = simulated(run, advance, watch=watch)
    return figures(ended.account, watches[0], ended.last_s)
