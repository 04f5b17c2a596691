"""One load through a pipeline that is up: warm-up, the script with its command, the report."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from headrace.arrivals.arrival_processes import Times
from headrace.client.load import made
from headrace.client.open_loop import OpenLoop, run_to_end
from headrace.client.topic_clients import Commander, new_id
from headrace.config.pipeline_file import load_profile, load_workload
from headrace.demo.demo_report import Change, DemoConditions, DemoReport, Seen, Span, report
from headrace.demo.environment import DemoEnvironment
from headrace.demo.plan_log import PlanLog, devices
from headrace.demo.screen import Screen, outcomes_text, screen
from headrace.demo.script import Script
from headrace.errors import Unsuccessful
from headrace.machine import machine
from headrace.terminal import progress
from schemas.records import CommandResult

DISTINCT = 400  # inputs; made ahead
WARM_UP_QUERIES = 60
WARM_UP_QPS = 15.0
RESULT_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Material:
    """What a load is made of, the same for every run with the same seed."""

    workload: Any
    inputs: list[tuple[bytes, Any]]
    times: Times


def material(stage: DemoEnvironment, script: Script) -> Material:
    """Inputs and arrival times, drawn with the wish's seed; raises ``PipelineError``."""
    rng = np.random.default_rng(stage.wish.seed)
    workload = load_workload(stage.wish.file)
    inputs = made(workload.queries(rng), DISTINCT)
    return Material(workload, inputs, script.arrivals(rng))


def loaded(stage: DemoEnvironment, script: Script, of: Material, title: str = "") -> DemoReport:
    """Run a script and report. ``title`` stands before every line of progress."""
    kafka, pipeline = stage.kafka, stage.pipeline
    with (
        closing(Commander(kafka, pipeline.name)) as commander,
        closing(PlanLog(kafka, pipeline)) as log,
    ):
        _begin_with(script.policy, stage, commander, log)
        _warm_up(stage, of)
        with _loop(stage, "demo") as loop:
            with screen(kafka, pipeline, lambda: _where(loop, script, log, title)) as shown:
                loop.start(of.times.tolist(), cycle(of.inputs))
                change = _Drive(stage, script, commander, log, shown).run(loop)
            sent, answers = loop.accounts()
            log.feed()
    table = load_profile(stage.wish.file)
    seen = Seen(
        sent=sent,
        answers=answers,
        score=of.workload.score,
        spans=spans(script, loop.began_s, change),
        plans=log.plans,
        profile=table if table.entries else None,
    )
    return report(_conditions(stage, script, of, loop), seen, change)


def _conditions(
    stage: DemoEnvironment, script: Script, of: Material, loop: OpenLoop
) -> DemoConditions:
    return DemoConditions(
        pipeline=stage.pipeline.name,
        machine=machine(),
        seconds=script.seconds,
        rate_qps=script.mean_qps,
        peak_qps=script.peak_qps,
        hardware_qps=script.hardware_qps,
        seed=stage.wish.seed,
        warm_up=WARM_UP_QUERIES,
        distinct_inputs=len(of.inputs),
        behind_ms=loop.behind_s * 1e3,
    )


def spans(script: Script, began_s: float, change: Change | None) -> list[Span]:
    """The phases by the clock (epoch seconds), split where the policy changed."""
    found = []
    for name, begin, end in script.spans():
        begin_s, end_s = began_s + begin, began_s + end
        if change is not None and begin_s < change.at_s < end_s:
            found.append(Span(name, change.before, begin_s, change.at_s))
            begin_s = change.at_s
        changed = change is not None and begin_s >= change.at_s
        policy = change.after if changed and change is not None else script.policy
        found.append(Span(name, policy, begin_s, end_s))
    return found


def _where(loop: OpenLoop, script: Script, log: PlanLog, title: str) -> str:
    """How far the load is and what has become of it."""
    elapsed_s = min(loop.elapsed_s, script.seconds)
    phase, rate = script.at(elapsed_s)
    used = f", {devices(log.plans[-1])} devices" if log.plans else ""
    return (
        f"{title}{elapsed_s:.0f} of {script.seconds:.0f} s, {phase}: load {rate:.0f}/s{used}; "
        f"{loop.sent} sent, {outcomes_text(loop)}"
    )


@contextlib.contextmanager
def _loop(stage: DemoEnvironment, what: str) -> Iterator[OpenLoop]:
    loop = OpenLoop(stage.kafka, stage.pipeline, new_id(what))
    try:
        yield loop
    finally:
        loop.close()


def _begin_with(policy: str, stage: DemoEnvironment, commander: Commander, log: PlanLog) -> None:
    """Put the policy in force, unless it is."""
    log.feed()
    if log.plans and log.plans[-1].settings.policy == policy:
        return
    command = commander.give("apply-policy", {"policy": policy})
    until = time.monotonic() + RESULT_WITHIN_S
    while time.monotonic() < until:
        stage.run.tend()
        for result in commander.results(0.1):
            if result.id == command and result.ok:
                return
            if result.id == command:
                raise Unsuccessful(f"policy {policy} was not applied: {result.message}")
    raise Unsuccessful(f"the command to apply policy {policy} had no result; see the logs")


def _warm_up(stage: DemoEnvironment, of: Material) -> None:
    """The first records through a fresh broker are slow: classes load, segments are made."""
    times = [number / WARM_UP_QPS for number in range(WARM_UP_QUERIES)]
    with (
        _loop(stage, "warm-up") as loop,
        progress("warming up", len(times)) as advance,
    ):
        loop.start(times, cycle(of.inputs))

        def each() -> None:
            stage.run.tend()
            advance(len(loop.answers), "")

        run_to_end(loop, each)


class _Drive:
    """Steps a load to its end, and gives the script's command on the way."""

    def __init__(
        self,
        stage: DemoEnvironment,
        script: Script,
        commander: Commander,
        log: PlanLog,
        shown: Screen,
    ) -> None:
        self._stage = stage
        self._script = script
        self._commander = commander
        self._log = log
        self._shown = shown
        self._command = ""
        self._change: Change | None = None

    def run(self, loop: OpenLoop) -> Change | None:
        """The change of policy, None where the script has none."""

        def each() -> None:
            self._stage.run.tend()
            self._log.feed()
            self._shown.show()
            self._steer(loop.elapsed_s)

        run_to_end(loop, each)
        return self._change

    def _steer(self, elapsed_s: float) -> None:
        script = self._script
        if self._change is None and script.then is not None and elapsed_s >= script.then_s:
            self._change = Change(before=script.policy, after=script.then, at_s=time.time())
            self._command = self._commander.give("apply-policy", {"policy": script.then})
            self._shown.note(f"applying policy {script.then} by command")
        elif self._change is not None and self._change.took_ms is None:
            for result in self._commander.results(0):
                if result.id == self._command:
                    self._heard(result, self._change)

    def _heard(self, result: CommandResult, change: Change) -> None:
        self._shown.note(f"{result.message} (plan {result.epoch})")
        self._change = replace(
            change,
            took_ms=(result.finished_s - change.at_s) * 1e3,
            epoch=result.epoch,
            message=result.message,
        )
