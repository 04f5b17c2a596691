"""``headrace demo``: the whole of Headrace in two minutes, from an empty machine and back to one.

Broker, control app, ingress, workers, egress; warm-up; Poisson load with a change of policy by
command half-way; the report; and everything it started gone.
"""

import contextlib
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import headrace
from headrace.broker import borrow
from headrace.cli_options import reached
from headrace.clients import Commander, new_id
from headrace.config import PipelineFile, load_workload, read_pipeline_file
from headrace.demo_report import Change, Conditions, DemoReport, report
from headrace.demo_screen import Screen, screen
from headrace.kafka_options import KAFKA_CONFIG, kafka_config
from headrace.keeper import kept
from headrace.loading import made
from headrace.open_loop import OpenLoop, run_to_end
from headrace.profiling import cpu_model
from headrace.run_state import Process
from headrace.running import Run, Told
from headrace.sharing import cores
from headrace.terminal import Unfeasible, progress, say, waiting
from headrace.workload import poisson
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.kafka import KafkaConfig

DISTINCT = 400  # inputs; made ahead
WARM_UP_QUERIES = 60
WARM_UP_QPS = 15.0
# Of what the plan says it can serve: broker, load and demo share the cores with the workers.
LOAD = 0.5
LEAST_QPS, MOST_QPS = 2.0, 40.0
UNMEASURED_QPS = 20.0  # where no profile tells a capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line asks for."""

    file: PipelineFile
    bootstrap: str | None
    seconds: float
    rate_qps: float | None
    seed: int


def shipped_pipeline() -> Path:
    """The postcode pipeline of the repository that this code lies in."""
    return Path(headrace.__file__).parents[1] / "examples" / "postcode" / "pipeline.yaml"


def wished(
    file: Path | None, bootstrap: str | None, seconds: float, rate_qps: float | None, seed: int
) -> Wish:
    """The wish of a command line; raises ``PipelineError``."""
    return Wish(
        file=read_pipeline_file(file or shipped_pipeline()),
        bootstrap=bootstrap,
        seconds=seconds,
        rate_qps=rate_qps,
        seed=seed,
    )


def show(wish: Wish) -> DemoReport:
    """Run the demo; the report is complete once everything it started is gone.

    Raises what bringing a pipeline up raises, and ``Unfeasible`` if the plan cannot serve.
    """
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    started: list[Process] = []
    try:
        with _ending_on_sigterm(), _broker(wish, directory / "broker", started) as kafka:
            found = _shown(wish, kafka, directory / "run", started)
    except BaseException:
        say(f"the logs are in {directory}")
        raise
    shutil.rmtree(directory)
    left = tuple(f"{p.name} (process {p.pid})" for p in started if p.alive)
    return replace(found, conditions=replace(found.conditions, left=left))


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: by way of every clean-up."""

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _broker(wish: Wish, home: Path, started: list[Process]) -> Iterator[KafkaConfig]:
    """The brokers asked for, else one of the demo's own."""
    if kafka_config(wish.bootstrap).bootstrap:
        yield reached(wish.bootstrap)
        return
    os.environ.pop(KAFKA_CONFIG, None)  # its own broker knows no passwords
    with contextlib.ExitStack() as stack:
        started.append(stack.enter_context(kept(home)))
        with waiting("starting a broker for the demo; the first one downloads 44 MB"):
            running = stack.enter_context(borrow(home))
        started.append(Process.found("broker", running.pid))
        yield KafkaConfig(running.bootstrap)
        with waiting("stopping the broker"):
            stack.close()


def _shown(wish: Wish, kafka: KafkaConfig, directory: Path, started: list[Process]) -> DemoReport:
    run = Run(wish.file, kafka, directory)
    try:
        run.start()
        plan = run.await_ready(Told())
        if not plan.feasible:
            raise Unfeasible(f"the plan is not feasible: {plan.binding}")
        found = _load(wish, kafka, run, plan)
    except BaseException:
        run.kill()
        raise
    else:
        with waiting("stopping ingress, control, workers, egress"):
            run.stop()
    finally:
        started += run.supervisor.started
    return found


def _load(wish: Wish, kafka: KafkaConfig, run: Run, plan: Plan) -> DemoReport:
    rng = np.random.default_rng(wish.seed)
    workload = load_workload(wish.file)
    inputs = made(workload.queries(rng), DISTINCT)
    rate = wish.rate_qps or rate_for(plan)
    _warm_up(kafka, wish.file.pipeline, inputs, run)
    times = poisson(rate, wish.seconds, rng).tolist()
    with _loop(kafka, wish.file.pipeline, "demo") as loop:
        with screen(kafka, wish.file.pipeline, wish.seconds) as shown:
            loop.start(times, cycle(inputs))
            change = _drive(loop, kafka, run, plan, wish, shown)
        sent, answers = loop.accounts()
        conditions = Conditions(
            pipeline=wish.file.pipeline.name,
            machine=machine(),
            seconds=wish.seconds,
            rate_qps=rate,
            seed=wish.seed,
            warm_up=WARM_UP_QUERIES,
            distinct_inputs=len(inputs),
            behind_ms=loop.behind_s * 1e3,
        )
    return report(conditions, sent, answers, workload.score, change)


@contextlib.contextmanager
def _loop(kafka: KafkaConfig, pipeline: Pipeline, what: str) -> Iterator[OpenLoop]:
    loop = OpenLoop(kafka, pipeline, new_id(what))
    try:
        yield loop
    finally:
        loop.close()


def rate_for(plan: Plan) -> float:
    """Queries/s that show the pipeline at work without flooding a laptop."""
    if plan.capacity_qps is None:
        return UNMEASURED_QPS
    return round(min(MOST_QPS, max(LEAST_QPS, LOAD * plan.capacity_qps)), 1)


def _warm_up(
    kafka: KafkaConfig, pipeline: Pipeline, inputs: list[tuple[bytes, Any]], run: Run
) -> None:
    """The first records through a fresh broker are slow: classes load, segments are made."""
    times = [number / WARM_UP_QPS for number in range(WARM_UP_QUERIES)]
    with (
        _loop(kafka, pipeline, "warm-up") as loop,
        progress("warming up", len(times)) as advance,
    ):
        loop.start(times, cycle(inputs))

        def each() -> None:
            run.tend()
            advance(len(loop.answers), "")

        run_to_end(loop, each)


def other_policy(pipeline: Pipeline, in_force: str) -> str | None:
    """The policy to change to: the file's next one, None where it has no other."""
    others = [p.name for p in pipeline.policies if p.name not in (in_force, "static")]
    return others[0] if others else None


def _drive(
    loop: OpenLoop, kafka: KafkaConfig, run: Run, plan: Plan, wish: Wish, shown: Screen
) -> Change | None:
    before = plan.settings.policy
    after = other_policy(wish.file.pipeline, before)
    with Commander(kafka, wish.file.pipeline.name) as commander:
        command = ""
        change: Change | None = None

        def each() -> None:
            nonlocal command, change
            run.tend()
            shown.show(loop)
            if change is None and after and loop.elapsed_s >= wish.seconds / 2:
                change = Change(before=before, after=after, at_s=time.time())
                command = commander.give("apply-policy", {"policy": after})
                shown.note(f"applying policy {after}")
            elif change is not None and change.took_ms is None:
                change = _heard(commander, command, change, shown)

        run_to_end(loop, each)
    return change


def _heard(commander: Commander, command: str, change: Change, shown: Screen) -> Change:
    for result in commander.results(0):
        if result.id == command:
            shown.note(f"{result.message} (plan {result.epoch})")
            return replace(
                change,
                took_ms=(result.finished_s - change.at_s) * 1e3,
                epoch=result.epoch,
                message=result.message,
            )
    return change


def machine() -> str:
    """The machine in a few words."""
    return f"{cpu_model()}, {cores()} cores, Python {platform.python_version()}"
