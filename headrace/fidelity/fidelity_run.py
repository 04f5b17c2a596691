"""``headrace fidelity``: run the same arrivals live and simulated, and make the certificate."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from msgspec import structs

from control.policies import policy_named, selections
from headrace.arrivals.arrival_processes import Recorded, Times, read_arrivals
from headrace.atomic_file import write_whole
from headrace.broker.jar_lock import ROOTS
from headrace.config.pipeline_file import PipelineFile, load_profile
from headrace.errors import CertificateError, PipelineError
from headrace.fidelity.certificate import Certificate, Conditions, certified
from headrace.fidelity.delay_trace import delay_text as told_of
from headrace.fidelity.delay_trace import seen
from headrace.fidelity.live_run import LiveEnvironment, answers, number_of, play, staged
from headrace.machine import machine
from headrace.results.figures import Figures, figures
from headrace.results.latency_steps import StepTimes
from headrace.roles.wiring import accuracies
from headrace.simulation.run_input import Run, devices
from headrace.simulation.simulation_run import simulated
from headrace.simulation.warm_start import Start, start_of
from headrace.terminal import progress
from schemas.records import Plan
from streams.observers.run_metrics import RunMetrics, given_up
from streams.simulated.delays import DelayTrace

SUFFIX = ".fidelity.json"
LIBRARIES = ("headrace", "confluent-kafka", "faust-streaming", "numpy", "pulp", "highspy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """The runs to certify. ``until_s`` cuts the arrivals; ``warm_up_s`` of them are not counted."""

    file: PipelineFile
    arrivals: Path
    policy: str
    seed: int = 0
    dilate: float = 1.0
    warm_up_s: float = 0.0
    until_s: float | None = None
    simulations: int = 1


def asked(
    file: PipelineFile,
    arrivals: Path,
    *,
    policy: str | None = None,
    seed: int = 0,
    dilate: float = 1.0,
    warm_up_s: float = 0.0,
    until_s: float | None = None,
    simulations: int = 1,
) -> CertificateRequest:
    """Return the request of the options; raises ``PipelineError`` for an unknown policy."""
    name = policy or file.pipeline.policy
    if policy_named(file.pipeline, name) is None:
        raise PipelineError(f"{file.path}: there is no policy {name!r}; name one of the file's")
    return CertificateRequest(
        file=file, arrivals=arrivals, policy=name, seed=seed, dilate=dilate, warm_up_s=warm_up_s,
        until_s=until_s, simulations=simulations,
    )  # fmt: skip


def certify(wish: CertificateRequest) -> Certificate:
    """Run live, simulate, compare and return the certificate. Raises as ``staged`` does."""
    times = drawn(wish)
    _rehearse(wish, times)
    with (
        staged(wish.file, wish.policy, wish.dilate) as stage,
        progress("live", len(times)) as advance,
    ):
        play(stage, times, lambda at, sent: advance(sent, f"{len(at.answers)} answers"), wish.seed)
    world = machine_seen(wish, times, stage)
    seeds = range(wish.seed, wish.seed + wish.simulations)
    start = start_seen(wish, stage.plans, stage.began_s)
    simulations = [foretold(replace(wish, seed=seed), times, world, start) for seed in seeds]
    return certified(
        conditions(wish, times, stage, world), live_figures(wish, times, stage), *simulations
    )


def _rehearse(wish: CertificateRequest, times: Times) -> None:
    """Simulate the first query, to fail before the live run if the simulation cannot run."""
    run = Run(file=wish.file, policy=wish.policy, seed=wish.seed, arrivals=Recorded(times[:1]))
    simulated(run, lambda sent: None)


def drawn(wish: CertificateRequest) -> Times:
    """Return the arrivals, s from the start; raises ``ArrivalsError`` and ``PipelineError``."""
    times = read_arrivals(wish.arrivals, np.random.default_rng(wish.seed))
    if wish.until_s is not None:
        times = times[times < wish.until_s]
    if not (times >= wish.warm_up_s).any():
        raise PipelineError(
            f"{wish.arrivals} has no arrival behind the warm-up of {wish.warm_up_s:g} s; shorten "
            "--warm-up or give longer arrivals"
        )
    return times


def machine_seen(wish: CertificateRequest, times: Times, stage: LiveEnvironment) -> DelayTrace:
    """Return the machine's delays during the arrivals, from the answers."""
    from_s, until_s = stage.began_s, stage.began_s + float(times[-1])
    known = (each for each in answers(stage) if each.answered_s < until_s)
    profile = load_profile(wish.file)
    return seen(known, profile, devices(wish.file), wish.dilate, from_s, until_s)


def start_seen(wish: CertificateRequest, plans: Iterable[Plan], began_s: float) -> Start | None:
    """Return the state of the live run at the end of its warm-up.

    None if workers select by tables: the tables are computed before the arrivals begin and do not
    belong to a given plan.
    """
    pipeline = wish.file.pipeline
    policy = policy_named(pipeline, wish.policy)
    if policy is None or selections(pipeline, policy):
        return None
    return start_of(plans, began_s, wish.warm_up_s, policy.interval_s)


def foretold(
    wish: CertificateRequest, times: Times, world: DelayTrace, start: Start | None
) -> Figures:
    """Simulate with the request's seed and return the figures.

    The plan after a cold start depends on chance and stays for minutes, so simulations start with
    the plan that the live run had reached.
    """
    run = Run(
        file=wish.file,
        policy=wish.policy,
        seed=wish.seed,
        arrivals=Recorded(times),
        warm_up_s=wish.warm_up_s,
        dilate=wish.dilate,
        replay=world,
        start=start,
    )
    watches: list[StepTimes] = []

    def watch(metrics: RunMetrics) -> StepTimes:
        watches.append(StepTimes(metrics))
        return watches[-1]

    with progress(f"simulated with seed {wish.seed}", len(times)) as advance:
        ended = simulated(run, lambda sent: advance(sent, ""), watch=watch)
    return figures(ended.account, watches[0], ended.last_s)


def live_figures(wish: CertificateRequest, times: Times, stage: LiveEnvironment) -> Figures:
    """Return the figures of the live run."""
    since_s = stage.began_s + wish.warm_up_s
    metrics = RunMetrics(wish.file.pipeline, accuracies(load_profile(wish.file)), since_s)
    steps = StepTimes()
    for plan in sorted(stage.plans, key=lambda each: each.epoch):
        metrics.plan(plan, plan.issued_s)
    first = len(times) - _counted(wish, times)
    for answer in answers(stage):
        if number_of(answer) >= first:
            # CreateTime is truncated to whole ms, so the first query's may be before ``since_s``.
            counted = structs.replace(answer, created_s=max(answer.created_s, since_s))
            metrics.take(counted, given_up(counted), answer.answered_s)
            steps.take(counted)
    metrics.close(_counted(wish, times))
    return figures(metrics, steps, stage.began_s + float(times[-1]))


def _counted(wish: CertificateRequest, times: Times) -> int:
    return int(len(times) - np.searchsorted(times, wish.warm_up_s))


def conditions(
    wish: CertificateRequest, times: Times, stage: LiveEnvironment, world: DelayTrace
) -> Conditions:
    """Return the conditions of the runs."""
    file = wish.file
    return Conditions(
        pipeline=file.pipeline.name,
        file=file.path.name,
        file_sha256=sha256(file.path),
        profiles_sha256={path.name: sha256(path) for path in file.profiles},
        arrivals=wish.arrivals.name,
        arrivals_sha256=sha256(wish.arrivals),
        queries=_counted(wish, times),
        seconds=round(float(times[-1]), 3),
        warm_up_s=wish.warm_up_s,
        policy=wish.policy,
        seed=wish.seed,
        dilate=wish.dilate,
        devices=dict(file.cluster.devices),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        versions={**{name: version(name) for name in LIBRARIES}, "kafka": ", ".join(ROOTS)},
        host_cpu_share=stage.host_cpu_share,
        behind_ms=round(stage.behind_s * 1e3, 3),
        own_cpu_share=stage.own_cpu_share,
        **told_of(world),
        slo_ms=file.pipeline.slo_s * 1e3,
        simulations=wish.simulations,
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def place(file: Path) -> Path:
    """Return the path of a pipeline file's certificate."""
    return file.with_name(file.stem + SUFFIX)


def store(certificate: Certificate, path: Path) -> None:
    """Write the certificate atomically."""
    write_whole(path, json.dumps(certificate.as_json(), indent=1) + "\n")


def stored(file: Path) -> Certificate | None:
    """Return the certificate beside a pipeline file, None without one; raises
    ``CertificateError``."""
    path = place(file)
    try:
        return Certificate.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(
            f"the certificate {path} cannot be read; run `headrace fidelity` again"
        ) from error


def stale(certificate: Certificate, file: PipelineFile) -> tuple[str, ...]:
    """Return the names of the files that changed after the certificate was made."""
    known = {
        certificate.conditions.file: certificate.conditions.file_sha256,
        **certificate.conditions.profiles_sha256,
    }
    return tuple(each.name for each in _files(file) if known.get(each.name) != sha256(each))


def _files(file: PipelineFile) -> Iterable[Path]:
    return (file.path, *file.profiles)
