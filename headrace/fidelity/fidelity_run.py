"""``headrace fidelity``: predict, keep the prediction, run live, and judge it."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from control.policies import policy_named
from headrace.arrivals.arrival_processes import Recorded, Times
from headrace.arrivals.arrivals_file import read_workload
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import CalibrationError, PipelineError
from headrace.fidelity.certificate import (
    METRICS,
    Certificate,
    Conditions,
    Predicted,
    judged,
    predicted,
    values_of,
)
from headrace.fidelity.certificate_store import keep_prediction, sha256, store_certificate
from headrace.fidelity.conditional import conditional
from headrace.fidelity.drift import DelayDrift, drifts
from headrace.fidelity.live_phase import live_phase
from headrace.fidelity.live_run import (
    LiveEnvironment,
    answers,
    check_emulated,
    live_environment,
    live_figures,
    play,
    run_versions,
    sized,
)
from headrace.fidelity.null_models import null_models
from headrace.fidelity.slow_queries import slowest
from headrace.fidelity.variant_file import as_asked
from headrace.machine import machine
from headrace.machine_look import MachineLook, changes, look
from headrace.results.figures import Figures
from headrace.simulation.overrides import Devices, overridden
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import figures_of
from headrace.simulation.world_file import (
    Calibration,
    ChosenWorld,
    beyond,
    chosen_world,
    profiles_sha256,
)
from headrace.terminal import progress, say
from operators.reporter import INTERVAL_S
from streams.simulated.world import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """The runs to certify. ``until_s`` cuts the arrivals; ``warm_up_s`` of them are not counted.

    ``file`` has the workers of the runs, ``original`` is the file beside which the certificate is
    kept. Simulations have seeds from ``seed`` on.
    """

    file: PipelineFile
    original: PipelineFile
    arrivals: Path
    policy: str
    world: ChosenWorld
    seed: int = 0
    dilate: float = 1.0
    warm_up_s: float = 0.0
    until_s: float | None = None
    simulations: int = 8
    repeats: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A prediction before the live runs: its metrics, null models and conditions."""

    at: datetime
    metrics: tuple[Predicted, ...]
    nulls: dict[str, Any]
    conditions: Conditions
    world: dict[str, Any] | None

    @property
    def name(self) -> str:
        """The common name of the files that keep it: the time."""
        return self.at.strftime("%Y%m%dT%H%M%S.%fZ")

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as it is kept and hashed."""
        return {
            "predicted_at": _iso(self.at),
            "world": self.world,
            "metrics": [asdict(metric) for metric in self.metrics],
            "nulls": self.nulls,
            "conditions": asdict(self.conditions),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """The figures of one live run and of the simulation that replays it, its delays and its slowest
    queries."""

    figures: Figures
    conditional: Figures
    phase: Phase
    slowest: list[dict[str, Any]]
    host_cpu_share: float | None
    behind_s: float


def certificate_request(
    file: PipelineFile,
    arrivals: Path,
    *,
    policy: str | None = None,
    devices: Devices = None,
    world: str | None = None,
    **options: Any,
) -> CertificateRequest:
    """Return the request of the options.

    Raises ``PipelineError`` for an unknown policy or impossible workers, ``CalibrationError`` for
    a calibration that cannot be used, and ``Unsuccessful`` for real devices that are dilated.
    """
    name = policy or file.pipeline.policy
    if policy_named(file.pipeline, name) is None:
        raise PipelineError(f"{file.path}: there is no policy {name!r}; name one of the file's")
    wanted = overridden(file, devices)
    request = CertificateRequest(
        file=wanted, original=file, arrivals=arrivals, policy=name,
        world=chosen_world(wanted, world), **options,
    )  # fmt: skip
    check_emulated(wanted, request.dilate)
    return request


def certify(request: CertificateRequest) -> tuple[Certificate, Path]:
    """Predict, run live, judge and keep the certificate; return it with its path.

    Raises as ``live_environment`` does; the prediction is kept also then.
    """
    queries, seen = drawn_arrivals(request), look()
    notes = changed_machine(request.world, seen)
    for note in notes:
        say(note)
    prediction = predict(request, queries)
    before = prediction.conditions
    conditions = replace(before, look=asdict(seen), notes=(*before.notes, *notes))
    prediction = replace(prediction, conditions=conditions)
    kept = keep_prediction(request.original.path, prediction.name, prediction.as_json())
    say(f"prediction stored as {kept}, SHA-256 {(digest := sha256(kept))}")
    started = datetime.now(UTC)
    live = [_live_run(request, queries, number) for number in range(request.repeats)]
    certificate = certified(prediction, digest, started, live, request.world.calibration)
    return certificate, store_certificate(request.original.path, prediction.name, certificate)


def certified(
    prediction: Prediction,
    digest: str,
    started: datetime,
    live: Sequence[LiveRun],
    calibration: Calibration | None,
) -> Certificate:
    """Return the certificate of a prediction with a ``calibration``, whose file has the
    SHA-256 ``digest``, by live runs from ``started`` on."""
    figures = [values_of(each.figures) for each in live]
    shares = [each.host_cpu_share for each in live]
    busiest = max((share for share in shares if share is not None), default=None)
    return Certificate(
        predicted_at=_iso(prediction.at),
        sha256=digest,
        live_started_at=_iso(started),
        world=prediction.world,
        metrics=tuple(judged(prediction.metrics, figures, prediction.nulls)),
        conditions=replace(
            prediction.conditions,
            host_cpu_share=None if None in shares else busiest,
            behind_ms=round(max(each.behind_s for each in live) * 1e3, 3),
        ),
        live_runs=tuple(figures),
        conditional=_means([values_of(each.conditional) for each in live]),
        nulls=prediction.nulls,
        slowest=tuple(each.slowest for each in live),
        drift=_drift(prediction.conditions.policy, calibration, live),
    )


def _drift(
    policy: str, calibration: Calibration | None, live: Sequence[LiveRun]
) -> tuple[DelayDrift, ...]:
    if calibration is None:
        return ()
    runs = [each.phase for each in live]
    return drifts(calibration.world, runs, batches=calibration.policy == policy)


# ---------------------------------------------------------------------- before the live runs


def drawn_arrivals(request: CertificateRequest) -> Recorded:
    """Return the arrivals, s from the start, with the sizes of the queries if they have some.

    Raises ``ArrivalsError``, ``PipelineError`` and ``SizesError``.
    """
    found = read_workload(request.arrivals)
    times = found.drawn(np.random.default_rng(request.seed))
    if request.until_s is not None:
        times = times[times < request.until_s]
    if not (times >= request.warm_up_s).any():
        raise PipelineError(
            f"{request.arrivals} has no arrival behind the warm-up of {request.warm_up_s:g} s; "
            "shorten --warm-up or give longer arrivals"
        )
    recorded = found.sizes[: len(times)] if isinstance(found, Recorded) else ()
    return sized(request.file, Recorded(times, recorded), request.seed)


def changed_machine(chosen: ChosenWorld, seen: MachineLook) -> tuple[str, ...]:
    """Return a sentence if the machine is no longer as the calibration's look has it.

    Raises ``CalibrationError`` instead unless the user named the calibration.
    """
    before = None if chosen.calibration is None else chosen.calibration.look
    if before is None or chosen.path is None or not (found := tuple(changes(before, seen))):
        return ()
    told = f"the machine has changed since {chosen.path.name} was calibrated: {'; '.join(found)}"
    if chosen.named:
        return (told,)
    raise CalibrationError(
        f"{told}; run `headrace calibrate` again, or predict with it nevertheless by "
        f"--world {chosen.path}"
    )


def predict(request: CertificateRequest, queries: Recorded) -> Prediction:
    """Simulate from a cold start, once for each seed, and return the prediction.

    Demand is counted by seconds of the clock, and a live run's arrivals begin anywhere in a second,
    so the simulations begin at evenly spread fractions of one. Ticks and reports are out of step,
    as those of processes that start one after the other.
    """
    times = queries.times_s
    runs = [
        Run(
            file=request.file, policy=request.policy, seed=request.seed + number, arrivals=queries,
            warm_up_s=request.warm_up_s, dilate=request.dilate, world=request.world.world,
            phase_s=(number + 0.5) / request.simulations, apart_s=INTERVAL_S,
        )
        for number in range(request.simulations)
    ]  # fmt: skip
    with progress("predicting", len(times) * len(runs)) as advance:
        found = [figures_of(run, _offset(advance, at * len(times))) for at, run in enumerate(runs)]
    rate_qps = mean_rate_qps(times)
    calibration, rng = request.world.calibration, np.random.default_rng(request.seed)
    nulls = null_models(request.file, request.policy, calibration, rate_qps, request.dilate, rng)
    world = request.world
    return Prediction(
        at=datetime.now(UTC),
        metrics=predicted(found),
        nulls={name: dict(values) for name, values in nulls.items()},
        conditions=_conditions(request, times, rate_qps),
        world=None if world.calibration is None or world.path is None else {
            "path": world.path.name, "sha256": world.sha256, "date": world.calibration.date,
        },
    )  # fmt: skip


def mean_rate_qps(times: Times) -> float:
    """Return the mean rate of arrivals from 0 to the last one."""
    return len(times) / float(times[-1]) if times[-1] > 0 else 0.0


def _offset(advance: Callable[[int, str], None], before: int) -> Callable[[int], None]:
    return lambda sent: advance(before + sent, "")


def _conditions(request: CertificateRequest, times: Times, rate_qps: float) -> Conditions:
    file, world = request.file, request.world.world
    outside = "" if world is None else beyond(world, rate_qps / request.dilate)
    return Conditions(
        pipeline=file.pipeline.name,
        file=file.path.name,
        file_sha256=sha256(file.path),
        profiles_sha256=profiles_sha256(file),
        arrivals=request.arrivals.name,
        arrivals_sha256=sha256(request.arrivals),
        queries=int(len(times) - np.searchsorted(times, request.warm_up_s)),
        seconds=round(float(times[-1]), 3),
        warm_up_s=request.warm_up_s,
        policy=request.policy,
        seed=request.seed,
        simulations=request.simulations,
        dilate=request.dilate,
        devices=dict(file.cluster.devices),
        machine=machine(),
        versions=run_versions(),
        notes=tuple(filter(None, (request.world.sentence, outside))),
    )


# ---------------------------------------------------------------------- live


def _live_run(request: CertificateRequest, queries: Recorded, number: int) -> LiveRun:
    """Run live from a cold start, with a broker of its own."""
    what = f"live, {number + 1} of {request.repeats}"
    with ExitStack() as stack:
        devices = dict(request.file.cluster.devices)
        file = stack.enter_context(as_asked(request.original, request.policy, devices))
        system = stack.enter_context(live_environment(file, request.policy, request.dilate))
        advance = stack.enter_context(progress(what, len(queries.times_s)))

        def each(at: LiveEnvironment, sent: int) -> None:
            advance(sent, f"{len(at.answers)} answers")

        play(system, queries, each, request.seed + number)
        found = live_figures(system, queries.times_s, request.warm_up_s)
        again = conditional(
            system, queries, policy=request.policy, warm_up_s=request.warm_up_s,
            seed=request.seed + number, dilate=request.dilate,
        )  # fmt: skip
        times = queries.times_s
        phase = live_phase(
            system, request.warm_up_s, float(times[-1]), mean_rate_qps(times), request.dilate
        )
    return LiveRun(
        figures=found, conditional=again, host_cpu_share=system.host_cpu_share,
        behind_s=system.behind_s, phase=phase, slowest=slowest(answers(system), system.began_s),
    )  # fmt: skip


def _means(runs: list[dict[str, float | None]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in METRICS:
        values = [run[name] for run in runs]
        known = [value for value in values if value is not None]
        found[name] = sum(known) / len(known) if len(known) == len(values) else None
    return found


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
