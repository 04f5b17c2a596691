"""``headrace calibrate``: measure the machine on a live run of its own, apart from judged runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from control.problem.problem import PlanError
from headrace.arrivals.arrival_processes import Recorded, poisson
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import CalibrationError, Unsuccessful
from headrace.fidelity.live_phase import live_phase
from headrace.fidelity.live_run import (
    live_environment,
    live_figures,
    play,
    run_versions,
    sized,
)
from headrace.fidelity.variant_file import as_asked
from headrace.fidelity.world_fit import broker_quantiles
from headrace.machine import machine
from headrace.machine_look import MachineLook, look
from headrace.results.figures import Figures
from headrace.simulation.experiments import plannable_demand
from headrace.simulation.world_file import Calibration, profiles_sha256, tasks_sha256
from headrace.terminal import progress
from streams.simulated.world import Phase, World

LOADS = (0.25, 0.5)  # of the planned capacity, without --rate
HALF = 0.5  # with one --rate: also this part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """The measurements to take: every rate (queries/s of the pipeline's time) for ``seconds``, in
    each of ``passes``, upwards and downwards in turn."""

    file: PipelineFile
    rates_qps: tuple[float, ...] = ()
    seconds: float = 20.0
    passes: int = 2
    dilate: float = 1.0
    policy: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What one run at one rate shows."""

    phase: Phase
    figures: Figures
    round_trips_s: Sequence[float]
    host_cpu_share: float | None


def calibrate(request: CalibrationRequest) -> Calibration:
    """Run live, and return the calibration.

    Every rate has a cold start of its own, as the runs that are predicted have: a pipeline's first
    minute is slower than the later ones. Raises as ``live_environment`` does, and ``Unsuccessful``
    if too few queries were answered to measure.
    """
    rates, seen = rates_in_turn(rates_of(request), request.passes), look()
    rng = np.random.default_rng(request.seed)
    arrivals = [Recorded(poisson(rate, request.seconds, rng)) for rate in rates]
    with as_asked(request.file, request.policy) as file:
        runs = [
            _measured(replace(request, file=file, seed=request.seed + at), rate, arrivals[at])
            for at, rate in enumerate(rates)
        ]
    return calibration_of(request, runs, sum(len(each.times_s) for each in arrivals), seen)


def _measured(request: CalibrationRequest, rate_qps: float, arrivals: Recorded) -> MeasuredRun:
    file, queries = request.file, sized(request.file, arrivals, request.seed)
    with (
        live_environment(file, file.pipeline.policy, request.dilate) as system,
        progress(f"calibrating at {rate_qps:g}/s", len(arrivals.times_s)) as advance,
    ):
        play(
            system,
            queries,
            lambda at, sent: advance(sent, f"{len(at.answers)} answers"),
            request.seed,
        )
    return MeasuredRun(
        live_phase(system, 0.0, request.seconds, rate_qps, request.dilate),
        live_figures(system, arrivals.times_s),
        system.round_trips_s,
        system.host_cpu_share,
    )


def rates_of(request: CalibrationRequest) -> tuple[float, ...]:
    """Return the rates to measure, ascending; without any, parts of the planned capacity.

    Raises ``CalibrationError`` if they are not given and nothing can be planned.
    """
    if request.rates_qps:
        rates = request.rates_qps if len(request.rates_qps) > 1 else (HALF * request.rates_qps[0],)
        return tuple(sorted({*rates, *request.rates_qps}))
    try:
        found = plannable_demand(
            request.file, policies=[request.policy or request.file.pipeline.policy]
        )
    except PlanError as error:
        raise CalibrationError(f"no rate to measure at is known ({error}); give --rate") from error
    most = float(found[0]["demand_qps"])
    if most <= 0:
        raise CalibrationError("no demand can be planned for; give --rate, in queries/s")
    return tuple(float(f"{load * most:.3g}") for load in LOADS)


def rates_in_turn(rates_qps: Sequence[float], passes: int) -> tuple[float, ...]:
    """Return the rates of all runs, ascending and descending in turn, so that a drift of the
    machine is not taken for an effect of the rate."""
    return tuple(
        rate
        for number in range(passes)
        for rate in (rates_qps if number % 2 == 0 else rates_qps[::-1])
    )


def calibration_of(
    request: CalibrationRequest, runs: Sequence[MeasuredRun], queries: int, seen: MachineLook
) -> Calibration:
    """Return the calibration that finished runs show; ``seen``: the machine before them.

    Raises ``Unsuccessful`` if too few of their ``queries`` were answered to measure.
    """
    file = request.file
    shares = [each.host_cpu_share for each in runs if each.host_cpu_share is not None]
    busiest = max(shares, default=None)
    phases = tuple(each.phase for each in runs)
    if not any(phase.ways_in for phase in phases):
        share = "unknown" if busiest is None else f"{busiest:.0%}"
        raise Unsuccessful(
            f"too few of {queries} queries passed their first task to measure (host busy: "
            f"{share}); stop other work, give a lower --rate or more --seconds, or --dilate with "
            "emulated devices"
        )
    return Calibration(
        world=World(phases, broker_quantiles([x for each in runs for x in each.round_trips_s])),
        figures=tuple(each.figures for each in runs),
        pipeline=file.pipeline.name,
        tasks_sha256=tasks_sha256(file),
        profiles_sha256=profiles_sha256(file),
        devices=dict(file.cluster.devices),
        policy=request.policy or file.pipeline.policy,
        dilate=request.dilate,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        versions=run_versions(),
        host_cpu_share=busiest,
        look=seen,
    )
