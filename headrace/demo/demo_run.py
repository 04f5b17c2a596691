"""Run the demo: `up`, `policy apply`, `load`, `status`, `report` and `down`, as a user gives them.

Each command is printed before it runs, and is the code behind the command of that name. Only the
broker and the run directory are the demo's own, so that it disturbs nothing on this machine.
"""

import contextlib
import math
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TypeVar

from control.policies import fixed_policies
from headrace.broker.connect import kafka_config, reached
from headrace.broker.watchdog import temporary_broker
from headrace.client.topic_clients import Commander, retained_plans
from headrace.cluster.local_run import LocalRun, ReceivedSignal
from headrace.cluster.up import up_row, up_text
from headrace.config.pipeline_file import PipelineFile
from headrace.demo.demo_load import DemoLoad, demo_load
from headrace.demo.demo_results import DemoResult, PolicyChange
from headrace.errors import PipelineError, Unfeasible
from headrace.load.load import LoadOptions, loaded
from headrace.load.load_result import LoadResult, load_text
from headrace.processes import Process
from headrace.report.live_report import live_report
from headrace.report.report_text import report_text
from headrace.status.watch import show_status
from headrace.terminal import print_text, say, waiting
from schemas.records import Plan
from streams.kafka.kafka_config import KafkaConfig

T = TypeVar("T")
WARM_UP_S = 4.0
LINE = 80  # characters; a longer command goes on in the next line
ANOTHER_TERMINAL = "# to use it from another terminal: export HEADRACE_BOOTSTRAP="


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of a demo; ``rate_qps`` None: derived from the profile."""

    file: PipelineFile
    bootstrap: str | None
    seconds: float
    rate_qps: float | None
    seed: int
    as_json: bool = False  # print no more than the commands, on stderr

    def show_command(self, command: str, *options: str) -> None:
        """Print a command as a user types it."""
        line = self.command_line(command, *options)
        say(line) if self.as_json else print_text(f"\n{line}")

    def command_line(self, command: str, *options: str) -> str:
        """Return a command as a user types it."""
        path = shlex.quote(os.path.relpath(self.file.path))
        words = (f"$ headrace {command} {path}", *options)
        line = " ".join(words)
        return line if len(line) <= LINE else " \\\n    ".join(words)

    def shown(self) -> PipelineFile:
        """Return the file with a dashboard, unless the output is JSON or the file has one."""
        cluster = self.file.cluster
        if self.as_json or cluster.dashboard_port is not None:
            return self.file
        return replace(self.file, cluster=replace(cluster, dashboard_port=0))

    def show(self, text: str) -> None:
        """Print the output of a command."""
        if not self.as_json:
            print_text(text)


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """A running pipeline with its first plan."""

    options: DemoOptions
    kafka: KafkaConfig
    run: LocalRun
    plan: Plan


def shipped_pipeline() -> Path:
    """Return the path of the postcode pipeline in this code's repository."""
    return Path(__file__).parents[2] / "examples" / "postcode" / "pipeline.yaml"


def run_demo(options: DemoOptions) -> tuple[DemoResult, tuple[str, ...]]:
    """Run the demo; return its result and the processes alive after it. Raises as ``_staged``."""

    def act(environment: DemoEnvironment) -> DemoResult:
        load = demo_load(options.file, environment.plan, options.seconds, options.rate_qps)
        return _run_load(environment, load)

    return _staged(options, act)


def run_comparison(options: DemoOptions) -> tuple[list[tuple[str, DemoResult]], tuple[str, ...]]:
    """Run the load under the file's policy and under every fixed plan, the file's policy first in
    the result.

    Raises as ``_staged`` does, and ``PipelineError`` without fixed plans.
    """
    fixed = [policy.name for policy in fixed_policies(options.file.pipeline)]
    own = options.file.pipeline.policy
    if not fixed or own in fixed:
        raise PipelineError(
            f"{options.file.path}: --compare sets the file's policy {own!r} against its "
            "fixed plans; name one that scales (loki) under policy and fixed ones, with replicas, "
            "under policies"
        )

    def act(environment: DemoEnvironment) -> list[tuple[str, DemoResult]]:
        load = demo_load(options.file, environment.plan, options.seconds, options.rate_qps)
        # The file's own policy runs last, so that it stays in force on a permanent broker.
        found = [(policy, _run_load(environment, load.only(policy))) for policy in (*fixed, own)]
        return found[::-1]

    return _staged(options, act)


# ---------------------------------------------------------------------- the commands


def _run_load(environment: DemoEnvironment, load: DemoLoad) -> DemoResult:
    """Send the load under its policies, and show status and report."""
    options, kafka = environment.options, environment.kafka
    name = options.file.pipeline.name
    with closing(Commander(kafka, name)) as commander:
        if retained_plans(kafka, name)[-1].settings.policy != load.policy:
            options.show_command("policy apply", load.policy)
            commander.apply_policy(load.policy)
        change = _PolicyChange(options, commander, load)

        def each(elapsed_s: float) -> None:
            environment.run.tend()
            change.step(elapsed_s)

        sent = _load(environment, load, each)
    if not options.as_json:
        options.show_command("status", "--once")
        show_status(options.file.pipeline.name, options.file, kafka, once=True, as_json=False)
    now = time.time()
    last_s = math.ceil((now - sent.began_s) * 10) / 10
    options.show_command("report", f"--last {last_s:g}s")
    report = live_report(options.file, kafka, now, last_s)
    options.show(report_text(report))
    return DemoResult(sent, report, change.made, load.hardware_qps)


def _load(
    environment: DemoEnvironment, load: DemoLoad, each: Callable[[float], None]
) -> LoadResult:
    options = environment.options
    options.show_command(
        "load",
        f"--phases {load.phases}",
        f"--warm-up {WARM_UP_S:g}s",
        f"--seed {options.seed} --watch",
    )
    if load.then is not None:
        options.show(
            f"# {load.then_s:g} s later, as if in another terminal: policy apply {load.then}"
        )
    sent = LoadOptions(
        arrivals=load.phases, seed=options.seed, warm_up_s=WARM_UP_S, watch=not options.as_json
    )
    found = loaded(options.file, environment.kafka, sent, each)
    options.show(load_text(found))
    return found


@dataclass(slots=True)
class _PolicyChange:
    """Applies the policy of a demo's command at its time, without delaying the load."""

    options: DemoOptions
    commander: Commander
    load: DemoLoad
    made: PolicyChange | None = None
    _command: str = field(default="")

    def step(self, elapsed_s: float) -> None:
        load = self.load
        if self.made is None and load.then is not None and elapsed_s >= load.then_s:
            say(self.options.command_line("policy apply", load.then))
            self.made = PolicyChange(before=load.policy, after=load.then, at_s=time.time())
            self._command = self.commander.give("apply-policy", {"policy": load.then})
        elif self.made is not None and self.made.took_ms is None:
            for result in self.commander.results(0):
                if result.id == self._command:
                    self.made = self.made.done(result)
                    say(f"{result.message} (plan {result.epoch})")


# ---------------------------------------------------------------------- up and down


def _staged(options: DemoOptions, act: Callable[[DemoEnvironment], T]) -> tuple[T, tuple[str, ...]]:
    """Run ``act`` on a running pipeline; return its result and the processes alive after it.

    Raises the errors of ``LocalRun.start`` and ``LocalRun.await_ready``, and ``Unfeasible`` if the
    plan is infeasible.
    """
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    started: list[Process] = []
    try:
        with _ending_on_sigterm(), _broker(options, directory / "broker", started) as kafka:
            found = _up(options, kafka, directory / "run", started, act)
    except BaseException:
        if any(directory.iterdir()):
            say(f"the logs are in {directory}")
        else:
            directory.rmdir()
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
def _broker(options: DemoOptions, home: Path, started: list[Process]) -> Iterator[KafkaConfig]:
    """Yield the named brokers, else a temporary one."""
    if kafka_config(options.bootstrap).bootstrap:
        yield reached(options.bootstrap)
        return
    what = "starting a broker for the demo (the first start downloads 44 MB)"
    with temporary_broker(home, what) as (running, processes):
        started.extend(processes)
        yield KafkaConfig(running.bootstrap)


def _up(
    options: DemoOptions,
    kafka: KafkaConfig,
    directory: Path,
    started: list[Process],
    act: Callable[[DemoEnvironment], T],
) -> T:
    options.show_command("up")
    run, began = LocalRun(options.shown(), kafka, directory), time.monotonic()
    try:
        run.start()
        plan = run.await_ready(ReceivedSignal())
        options.show(up_text(up_row(run, plan, time.monotonic() - began)))
        options.show(ANOTHER_TERMINAL + kafka.bootstrap)
        if not plan.feasible:
            raise Unfeasible(f"the plan is not feasible: {plan.binding}")
        found = act(DemoEnvironment(options, kafka, run, plan))
    except BaseException:
        run.kill()
        raise
    else:
        options.show_command("down")
        with waiting("stopping ingress, workers, egress, control"):
            run.stop()
    finally:
        started += run.supervisor.started
    return found


def left_text(left: Sequence[str]) -> str:
    """Return what the demo left running, in a sentence."""
    if left:
        return f"still running: {', '.join(left)}"
    return "all demo processes have stopped and their files are deleted"
