"""The environment of a demo: a broker and a running pipeline, with full teardown."""

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from headrace.broker.connect import kafka_config, reached
from headrace.broker.watchdog import temporary_broker
from headrace.cluster.local_run import LocalRun, ReceivedSignal
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import Unfeasible
from headrace.processes import Process
from headrace.terminal import say, waiting
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.kafka.kafka_config import KafkaConfig

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOptions:
    """The options of a demo; ``rate_qps`` None: derived from the profile."""

    file: PipelineFile
    bootstrap: str | None
    seconds: float
    rate_qps: float | None
    seed: int


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """A running pipeline with its first plan."""

    wish: EnvironmentOptions
    kafka: KafkaConfig
    run: LocalRun
    plan: Plan

    @property
    def pipeline(self) -> Pipeline:
        """The running pipeline."""
        return self.wish.file.pipeline


def shipped_pipeline() -> Path:
    """Return the path of the postcode pipeline in this code's repository."""
    return Path(__file__).parents[2] / "examples" / "postcode" / "pipeline.yaml"


def demo_environment(
    wish: EnvironmentOptions, act: Callable[[DemoEnvironment], T]
) -> tuple[T, tuple[str, ...]]:
    """Run ``act`` on a running pipeline; return its result and the processes alive after teardown.

    Raises the errors of ``LocalRun.start`` and ``LocalRun.await_ready``, and ``Unfeasible`` if the
    plan is infeasible.
    """
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    started: list[Process] = []
    try:
        with _ending_on_sigterm(), _broker(wish, directory / "broker", started) as kafka:
            found = _acted(wish, kafka, directory / "run", started, act)
    except BaseException:
        say(f"the logs are in {directory}")
        raise
    shutil.rmtree(directory)
    return found, tuple(f"{p.name} (process {p.pid})" for p in started if p.alive)


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does, with every clean-up."""

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _broker(wish: EnvironmentOptions, home: Path, started: list[Process]) -> Iterator[KafkaConfig]:
    """Yield the named brokers, else a temporary one."""
    if kafka_config(wish.bootstrap).bootstrap:
        yield reached(wish.bootstrap)
        return
    what = "starting a broker for the demo; the first one downloads 44 MB"
    with temporary_broker(home, what) as (running, processes):
        started.extend(processes)
        yield KafkaConfig(running.bootstrap)


def _acted(
    wish: EnvironmentOptions,
    kafka: KafkaConfig,
    directory: Path,
    started: list[Process],
    act: Callable[[DemoEnvironment], T],
) -> T:
    run = LocalRun(wish.file, kafka, directory)
    try:
        with waiting("making the topics"):
            run.start()
        plan = run.await_ready(ReceivedSignal())
        if not plan.feasible:
            raise Unfeasible(f"the plan is not feasible: {plan.binding}")
        found = act(DemoEnvironment(wish, kafka, run, plan))
    except BaseException:
        run.kill()
        raise
    else:
        with waiting("stopping ingress, control, workers, egress"):
            run.stop()
    finally:
        started += run.supervisor.started
    return found
