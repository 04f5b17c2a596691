"""Run a demo: `up`, a warm-up, a scripted load with a policy command, the report."""

import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from headrace.arrivals.arrival_processes import Times
from headrace.client.load import made
from headrace.client.open_loop import OpenLoop, run_to_end
from headrace.client.topic_clients import Commander, new_id, plans
from headrace.config.pipeline_file import load_profile, load_workload
from headrace.demo.demo_report import Change, DemoConditions, DemoReport, Seen, Span, report
from headrace.demo.environment import DemoEnvironment, EnvironmentOptions, demo_environment
from headrace.demo.screen import Screen, outcomes_text, screen
from headrace.demo.script import Script, scripted
from headrace.machine import machine
from headrace.terminal import progress
from schemas.records import CommandResult

DISTINCT = 400  # inputs, generated in advance
WARM_UP_QUERIES = 60
WARM_UP_QPS = 15.0


@dataclass(frozen=True, slots=True)
class Material:
    """Workload, inputs and arrival times of a load; the same for every run with the same seed."""

    workload: Any
    inputs: list[tuple[bytes, Any]]
    times: Times


def material(stage: DemoEnvironment, script: Script) -> Material:
    """Draw inputs and arrival times with the options' seed; raises ``PipelineError``."""
    rng = np.random.default_rng(stage.wish.seed)
    workload = load_workload(stage.wish.file)
    inputs = made(workload.queries(rng), DISTINCT)
    return Material(workload, inputs, script.arrivals(rng))


def show(wish: EnvironmentOptions) -> DemoReport:
    """Run the demo, tear it down and return the report.

    Raises as ``demo_environment`` does.
    """

    def act(stage: DemoEnvironment) -> DemoReport:
        script = scripted(wish.file, stage.plan, wish.seconds, wish.rate_qps)
        return loaded(stage, script, material(stage, script))

    found, left = demo_environment(wish, act)
    return replace(found, conditions=replace(found.conditions, left=left))


def loaded(stage: DemoEnvironment, script: Script, of: Material, title: str = "") -> DemoReport:
    """Run a script and return the report. ``title`` prefixes every progress line."""
    kafka, pipeline = stage.kafka, stage.pipeline
    with closing(Commander(kafka, pipeline.name)) as commander:
        if plans(kafka, pipeline.name)[-1].settings.policy != script.policy:
            commander.apply_policy(script.policy)
        _warm_up(stage, of)
        with closing(OpenLoop(kafka, pipeline, new_id("demo"))) as loop:
            with screen(kafka, pipeline, lambda: _where(loop, script, title)) as shown:
                loop.start(of.times.tolist(), cycle(of.inputs))
                change = _Drive(stage, script, commander, shown).run(loop)
            sent, answers = loop.accounts()
    table = load_profile(stage.wish.file)
    seen = Seen(
        sent=sent,
        answers=answers,
        score=of.workload.score,
        spans=spans(script, loop.began_s, change),
        plans=plans(kafka, pipeline.name),
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
    """Return the phases in epoch seconds, split where the policy changed."""
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


def _where(loop: OpenLoop, script: Script, title: str) -> str:
    """Return the progress of the load and the outcomes so far as text."""
    elapsed_s = min(loop.elapsed_s, script.seconds)
    phase, rate = script.at(elapsed_s)
    return (
        f"{title}{elapsed_s:.0f} of {script.seconds:.0f} s, {phase}: load {rate:.0f}/s; "
        f"{loop.sent} sent, {outcomes_text(loop)}"
    )


def _warm_up(stage: DemoEnvironment, of: Material) -> None:
    """Send queries before the load: a fresh broker is slow while it loads classes and creates
    segments."""
    times = [number / WARM_UP_QPS for number in range(WARM_UP_QUERIES)]
    with (
        closing(OpenLoop(stage.kafka, stage.pipeline, new_id("warm-up"))) as loop,
        progress("warming up", len(times)) as advance,
    ):
        loop.start(times, cycle(of.inputs))

        def each() -> None:
            stage.run.tend()
            advance(len(loop.answers), "")

        run_to_end(loop, each)


class _Drive:
    """Steps a load to its end and gives the script's command when it is due."""

    def __init__(
        self, stage: DemoEnvironment, script: Script, commander: Commander, shown: Screen
    ) -> None:
        self._stage = stage
        self._script = script
        self._commander = commander
        self._shown = shown
        self._command = ""
        self._change: Change | None = None

    def run(self, loop: OpenLoop) -> Change | None:
        """Run the load; return the change of policy, None if the script has none."""

        def each() -> None:
            self._stage.run.tend()
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
