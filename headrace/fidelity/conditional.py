"""The conditional comparison: simulate with the delays and the plan of the live run itself.

The comparison tests queueing and control logic on a known machine, and predicts nothing. Each ten
seconds are simulated with the delays of the neighbouring ten seconds, under the plan that the live
run had reached when its warm-up ended.
"""

from collections.abc import Iterable

from control.policies import policy_named, selections
from headrace.arrivals.arrival_processes import Recorded, Times
from headrace.config.profile_files import load_profile
from headrace.fidelity.delay_trace import seen
from headrace.fidelity.live_run import LiveEnvironment, answers, reports
from headrace.results.figures import Figures
from headrace.simulation.paid_batches import own_rates
from headrace.simulation.run_input import Run, Start, real_workers
from headrace.simulation.simulation_run import figures_of
from headrace.simulation.warm_start import start_of
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.simulated.delays import DelayTrace


def conditional(
    system: LiveEnvironment, arrivals: Recorded, *, policy: str, warm_up_s: float, seed: int,
    dilate: float,
) -> Figures:  # fmt: skip
    """Return the figures of a simulation that replays a finished live run's delays and plan."""
    start = start_seen(system.file.pipeline, policy, system.plans, system.began_s, warm_up_s)
    run = Run(
        file=system.file, policy=policy, seed=seed, arrivals=arrivals, warm_up_s=warm_up_s,
        dilate=dilate, replay=machine_seen(system, arrivals.times_s, dilate), start=start,
    )  # fmt: skip
    return figures_of(run, lambda sent: None)


def machine_seen(system: LiveEnvironment, times: Times, dilate: float) -> DelayTrace:
    """Return the machine's delays during the arrivals, from the answers."""
    from_s, until_s = system.began_s, system.began_s + float(times[-1])
    known = (each for each in answers(system) if each.answered_s < until_s)
    profile = load_profile(system.file)
    workers = real_workers(system.file)
    rates = own_rates(system.file, workers)
    return seen(
        known, profile, workers, dilate, from_s, until_s, system.size_of, rates, reports(system)
    )


def start_seen(
    pipeline: Pipeline, policy: str, plans: Iterable[Plan], began_s: float, warm_up_s: float
) -> Start | None:
    """Return the state of the live run at the end of its warm-up.

    None without a warm-up: the plan is then one for no load, which the live run left at once. None
    if workers select by tables: the tables are computed before the arrivals begin and do not
    belong to a given plan.
    """
    found = policy_named(pipeline, policy)
    if found is None or not warm_up_s or selections(pipeline, found):
        return None
    return start_of(plans, began_s, warm_up_s, found.interval_s)
