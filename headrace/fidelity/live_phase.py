"""Fit the delays of a live run, or of a part of it, as a phase of a calibration."""

from headrace.config.profile_files import load_profile
from headrace.fidelity.live_run import LiveEnvironment, answers, reports
from headrace.fidelity.world_fit import fitted
from headrace.simulation.paid_batches import own_rates
from headrace.simulation.run_input import real_workers
from streams.simulated.world import Phase


def live_phase(
    system: LiveEnvironment, from_s: float, until_s: float, rate_qps: float, dilate: float
) -> Phase:
    """Return the phase that the queries show which were sent in a span of the run's arrivals.

    ``from_s`` and ``until_s`` are seconds since the arrivals began and ``rate_qps`` is their rate,
    in the pipeline's time.
    """
    file, since_s, end_s = system.file, system.began_s + from_s, system.began_s + until_s
    workers = real_workers(file)
    return fitted(
        (each for each in answers(system) if since_s <= each.created_s < end_s),
        load_profile(file), workers, dilate=dilate, from_s=since_s, until_s=end_s,
        rate_qps=rate_qps, size_of=system.size_of, rates=own_rates(file, workers),
        reports=reports(system),
    )  # fmt: skip
