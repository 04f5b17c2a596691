"""``headrace calibrate``: measure the machine on a live run of its own, apart from judged runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from control.problem.problem import PlanError
from headrace.arrivals.arrival_processes import Recorded, Times, poisson
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import CalibrationError, Unsuccessful
from headrace.fidelity.live_phase import live_phase
from headrace.fidelity.live_run import (
    LiveEnvironment,
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
from headrace.simulation.experiments import plannable_demand
from headrace.simulation.world_file import Calibration, profiles_sha256, tasks_sha256
from headrace.terminal import progress
from streams.simulated.world import World

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
class CalibrationStep:
    """A part of the calibration's arrivals with one rate, in seconds from their start."""

    rate_qps: float
    from_s: float
    until_s: float


def calibrate(request: CalibrationRequest) -> Calibration:
    """Run live, and return the calibration.

    Raises as ``live_environment`` does, and ``Unsuccessful`` if too few queries were answered to
    measure.
    """
    steps = steps_of(rates_of(request), request.seconds, request.passes)
    times = arrivals(steps, np.random.default_rng(request.seed))
    queries = sized(request.file, Recorded(times), request.seed)
    seen = look()
    with (
        as_asked(request.file, request.policy) as file,
        live_environment(file, file.pipeline.policy, request.dilate) as system,
        progress("calibrating", len(times)) as advance,
    ):
        play(
            system,
            queries,
            lambda at, sent: advance(sent, f"{len(at.answers)} answers"),
            request.seed,
        )
    return calibration_of(request, steps, times, system, seen)


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


def steps_of(
    rates_qps: Sequence[float], seconds: float, passes: int
) -> tuple[CalibrationStep, ...]:
    """Return the parts of the run: rates ascending and descending in turn, so that a drift of the
    machine is not taken for an effect of the rate."""
    order = [
        rate
        for number in range(passes)
        for rate in (rates_qps if number % 2 == 0 else rates_qps[::-1])
    ]
    return tuple(
        CalibrationStep(rate, at * seconds, (at + 1) * seconds) for at, rate in enumerate(order)
    )


def arrivals(steps: Sequence[CalibrationStep], rng: np.random.Generator) -> Times:
    """Return Poisson arrivals of every step."""
    parts = [
        step.from_s + poisson(step.rate_qps, step.until_s - step.from_s, rng) for step in steps
    ]
    return np.concatenate(parts)


def calibration_of(
    request: CalibrationRequest,
    steps: Sequence[CalibrationStep],
    times: Times,
    system: LiveEnvironment,
    seen: MachineLook,
) -> Calibration:
    """Return the calibration that a finished run shows; ``seen``: the machine before it."""
    file = request.file
    phases = tuple(
        live_phase(system, step.from_s, step.until_s, step.rate_qps, request.dilate)
        for step in steps
    )
    if not any(phase.ways_in for phase in phases):
        share = "unknown" if system.host_cpu_share is None else f"{system.host_cpu_share:.0%}"
        raise Unsuccessful(
            f"too few of {len(times)} queries passed their first task to measure (host busy: "
            f"{share}); stop other work, give a lower --rate or more --seconds, or --dilate with "
            "emulated devices"
        )
    return Calibration(
        world=World(phases, broker_quantiles(system.round_trips_s)),
        figures=tuple(live_figures(system, times, step.from_s, step.until_s) for step in steps),
        pipeline=file.pipeline.name,
        tasks_sha256=tasks_sha256(file),
        profiles_sha256=profiles_sha256(file),
        devices=dict(file.cluster.devices),
        policy=request.policy or file.pipeline.policy,
        dilate=request.dilate,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        versions=run_versions(),
        host_cpu_share=system.host_cpu_share,
        look=seen,
    )
