"""Run 20 emulated devices live on a local broker: scaling, and the loss of a device.

    python -m benchmarks.emulated_cluster [DATA_DIR] [--pipeline traffic|social] [--dilate X]
        [--until S] [--policy NAME] [--kill-at S --back-at S] [--json]

With Loki's data (DATA_DIR, by default ../shared/data/loki), run the paper's traffic pipeline on the
stand-in trace of 288 s, or the authors' social pipeline on their trace; without the data, run the
shipped postcode pipeline, emulated by its CPU profile, on a day of the same shape. All roles run in
time dilated by ``--dilate`` (docs/explanation/certificate.md). 19 devices share a process; the last
one has its own process, which is killed (SIGKILL) and restarted during the run.

Prints branch violation, query violation, accuracy, devices and mode of the plans over time, the
delay from the kill to the new plans, and the number of lost queries. Times are in the pipeline's
dilated time unless marked as wall.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from msgspec.structs import replace

from control.controller.membership import DEAD_AFTER_S
from control.problem.plan_reasons import solved_for
from headrace.arrivals.arrival_processes import Recorded, Times
from headrace.arrivals.arrivals_file import read_workload
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.fidelity.live_run import LiveEnvironment, answers, live_environment, number_of, play
from headrace.machine import machine
from headrace.processes import end_session, environment
from headrace.results.figures import Figures, figures
from headrace.results.latency_steps import StepTimes
from headrace.roles.profile_lookups import accuracies
from headrace.terminal import progress
from schemas.enumerations import PlanCause
from schemas.records import Plan
from streams.observers.run_metrics import RunMetrics, given_up

DEVICES = 20
APART = "apart"  # the worker with its own process
WINDOW_S = 12.0
DATA = Path("../shared/data/loki")
SHIPPED = Path(__file__).parents[1] / "examples" / "postcode" / "pipeline.yaml"
PAPER = {
    "traffic": ("traffic.yaml", "traffic-288s-arrivals.txt.gz"),
    "social": ("social-as-coded.yaml", "social-291s-arrivals.txt.gz"),
}
# Without the paper's data: queries/s at night and at noon of the shipped pipeline's day.
NIGHT_QPS, NOON_QPS, DAY_S = 250.0, 2000.0, 288


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time window of the run: demand, results and plan."""

    from_s: float
    demand_qps: float
    mode: str  # of the plan in force at its end
    devices: float
    branch_violation: float | None
    violation: float | None
    accuracy: float | None


@dataclass(slots=True, kw_only=True)
class Outage:
    """The separate worker: killed ``kill_s`` after the start of the arrivals, back at ``back_s``.

    Recorded times are in dilated time, as in plans.
    """

    kill_s: float
    back_s: float
    process: "subprocess.Popen[bytes] | None" = None
    killed_s: float = math.inf
    started_s: float = math.inf

    def start(self, system: LiveEnvironment) -> None:
        """Start the worker."""
        command = [sys.executable, "-m", "headrace", "worker", str(system.file.path), "--name"]
        command += [APART, "--device", "emulated", "--bootstrap", system.kafka.bootstrap]
        self.started_s = system.now_s
        with (system.run.directory / f"{APART}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env=environment(os.environ, os.getpid()),
            )  # fmt: skip

    def look(self, system: LiveEnvironment) -> None:
        """Kill or restart the worker when due."""
        at_s = system.now_s - system.began_s
        if self.killed_s == math.inf and at_s >= self.kill_s:
            self.end()
            self.killed_s = system.now_s
        elif self.process is None and at_s >= self.back_s:
            self.start(system)

    def end(self) -> None:
        """Kill the worker with SIGKILL."""
        if self.process is not None:
            end_session(self.process.pid)
            self.process.wait()
            self.process = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Delays of the plans' reactions to the outage, in dilated seconds; None: never.

    ``detected_s``: from the kill to the plan that reassigns the worker's slots; a worker counts as
    dead after ``DEAD_AFTER_S`` without a report. ``solved_s``: from that plan to the solver's first
    plan without the worker. ``back_s``: from its restart to a plan with it.
    """

    detected_s: float | None
    solved_s: float | None
    solved_wall_s: float | None
    back_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The figures of a run."""

    pipeline: str
    policy: str
    dilate: float
    seconds: float
    machine: str
    host_cpu_share: float | None
    own_cpu_share: float | None
    behind_ms: float
    lost: int
    whole: Figures
    windows: tuple[Window, ...]
    recovery: Recovery | None
    modes: tuple[str, ...]  # of the plans, in order, each once


# ---------------------------------------------------------------------- the run


def prepared(data: Path, folder: Path, which: str) -> tuple[Path, Path]:
    """Write and return the pipeline file and its arrivals."""
    if not data.is_dir():
        return _shipped(folder), _day(folder)
    from benchmarks.papers.loki import write

    write(data, folder)
    name, trace = PAPER[which]
    file = folder / name
    described = yaml.safe_load(file.read_text())
    described["cluster"] = {"devices": {"emulated": DEVICES - 1}}
    file.write_text(yaml.safe_dump(described, sort_keys=False))
    return file, folder / trace


def _shipped(folder: Path) -> Path:
    """Write the shipped pipeline for emulated devices into another folder."""
    shipped = SHIPPED
    described: dict[str, Any] = yaml.safe_load(shipped.read_text())
    for name in ("combine", "workload", "policies"):
        described.pop(name, None)  # an emulated device has placeholders for outputs
    for task in described["tasks"].values():
        for variant in task["variants"].values():
            variant["arguments"] = _absolute(variant.get("arguments", {}), shipped.parent)
    described["policy"] = "loki"
    described["cluster"] = {"devices": {"emulated": DEVICES - 1}}
    described["profiles"] = [str(shipped.parent / each) for each in described["profiles"]]
    file = folder / "postcode.yaml"
    file.write_text(yaml.safe_dump(described, sort_keys=False))
    return file


def _absolute(arguments: dict[str, Any], folder: Path) -> dict[str, Any]:
    if "weights" not in arguments:
        return arguments
    return {**arguments, "weights": str(folder / arguments["weights"])}


def _day(folder: Path) -> Path:
    """Write rates that rise to noon and fall again."""
    wave = [(1 - math.cos(2 * math.pi * second / DAY_S)) / 2 for second in range(DAY_S)]
    rates = [NIGHT_QPS + (NOON_QPS - NIGHT_QPS) * each for each in wave]
    path = folder / "day.csv"
    lines = "".join(f"{second},{rate:.1f}\n" for second, rate in enumerate(rates))
    path.write_text("second,qps\n" + lines)
    return path


def shown(
    file: PipelineFile, times: Times, policy: str, dilate: float, outage: Outage | None
) -> Shown:
    """Run the pipeline; return the figures."""
    with live_environment(file, policy, dilate) as system, progress("live", len(times)) as advance:
        try:
            if outage is not None:
                outage.start(system)

            def each(at: LiveEnvironment, sent: int) -> None:
                if outage is not None:
                    outage.look(at)
                advance(sent, f"{len(at.answers)} answers")

            play(system, Recorded(times), each)
        finally:
            if outage is not None:
                outage.end()
        return told(system, times, policy, outage, dilate)


# ---------------------------------------------------------------------- results


def told(
    system: LiveEnvironment, times: Times, policy: str, outage: Outage | None, dilate: float
) -> Shown:
    """Return the figures of a finished run."""
    known = accuracies(load_profile(system.file))
    edges = np.arange(0.0, float(times[-1]), WINDOW_S)
    begins_s = [system.began_s + start_s for start_s in (0.0, *edges.tolist())]
    every = [RunMetrics(system.file.pipeline, known, since_s) for since_s in begins_s]
    for metrics in every:
        for plan in _in_order(system.plans):
            metrics.plan(plan, plan.issued_s)
    whole, *parts = every
    steps = StepTimes()
    for answer in answers(system):
        part = int(times[number_of(answer)] // WINDOW_S)
        # CreateTime has whole ms, so it may be just before the window.
        from_s = system.began_s + part * WINDOW_S
        counted = replace(answer, created_s=max(answer.created_s, from_s))
        steps.take(counted)
        for metrics in (whole, parts[part]):
            metrics.take(counted, given_up(counted), answer.answered_s)
    whole.close(len(times))
    found = figures(whole, steps, system.began_s + float(times[-1]))
    return Shown(
        pipeline=system.file.pipeline.name,
        policy=policy,
        dilate=dilate,
        seconds=round(float(times[-1]), 1),
        machine=machine(),
        host_cpu_share=system.host_cpu_share,
        own_cpu_share=system.own_cpu_share,
        behind_ms=round(system.behind_s * 1e3, 3),
        lost=len(times) - len(system.answers),
        whole=found,
        windows=tuple(_windows(system, times, edges, parts)),
        recovery=None if outage is None else recovery(system.plans, outage, dilate),
        modes=tuple(dict.fromkeys(plan.mode for plan in _in_order(system.plans) if plan.mode)),
    )


def _windows(
    system: LiveEnvironment, times: Times, edges: Times, parts: Sequence[RunMetrics]
) -> list[Window]:
    found = []
    for start_s, part in zip(edges.tolist(), parts, strict=True):
        end_s = min(start_s + WINDOW_S, float(times[-1]))
        came = int(np.searchsorted(times, start_s + WINDOW_S) - np.searchsorted(times, start_s))
        part.close(came)
        plan = _in_force(system.plans, system.began_s + end_s)
        found.append(
            Window(
                from_s=start_s,
                demand_qps=round(came / max(end_s - start_s, 1e-9), 1),
                mode=plan.mode if plan else "",
                devices=round(part.devices_mean(system.began_s + end_s), 2),
                branch_violation=part.branch_violation,
                violation=part.violation,
                accuracy=part.accuracy,
            )
        )
    return found


def _in_order(plans: Sequence[Plan]) -> list[Plan]:
    return sorted(plans, key=lambda plan: plan.epoch)


def _in_force(plans: Sequence[Plan], at_s: float) -> Plan | None:
    return next((p for p in reversed(_in_order(plans)) if p.issued_s <= at_s), None)


def recovery(made: Sequence[Plan], outage: Outage, dilate: float) -> Recovery:
    """Return the delays of the plans' reactions to the outage."""
    plans = _in_order(made)
    without = [p for p in plans if p.issued_s >= outage.killed_s and not _uses(p)]
    solved = [p for p in without[1:] if PlanCause.WORKER_LOST in p.causes and solved_for(p)]
    back = [p for p in plans if p.issued_s >= outage.started_s > outage.killed_s and _uses(p)]
    after = solved[0].issued_s - without[0].issued_s if solved else None
    return Recovery(
        detected_s=_rounded(without[0].issued_s - outage.killed_s if without else None),
        solved_s=_rounded(after),
        solved_wall_s=_rounded(None if after is None else after * dilate),
        back_s=_rounded(back[0].issued_s - outage.started_s if back else None),
    )


def _uses(plan: Plan) -> bool:
    return any(lease.worker == APART and lease.open_slot >= 0 for lease in plan.leases)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


# ---------------------------------------------------------------------- output


def text(it: Shown) -> str:
    """Return the figures as text."""
    load = "unknown" if it.host_cpu_share is None else f"{it.host_cpu_share:.0%}"
    own = "" if it.own_cpu_share is None else f" ({it.own_cpu_share:.0%} by the run itself)"
    whole = it.whole
    lines = [
        f"{it.pipeline}, {it.policy}, {it.seconds:g} s, time {it.dilate:g} times slower; "
        f"{it.machine}, {load} busy{own}; a query left {it.behind_ms:.1f} ms late at worst",
        "   s  queries/s  devices  branch viol.  query viol.  accuracy  mode",
    ]
    lines += [
        f"{w.from_s:4.0f}  {w.demand_qps:9.0f}  {w.devices:7.1f}  {_share(w.branch_violation)}"
        f"  {_share(w.violation)[1:]}  {_share(w.accuracy)[4:]}  {w.mode}"
        for w in it.windows
    ]
    lines += [
        f"all: {whole.queries} queries, branch violation {_share(whole.branch_violation).strip()}, "
        f"query violation {_share(whole.violation).strip()}, accuracy "
        f"{_share(whole.accuracy).strip()}, devices {whole.devices_mean or 0:.1f}, "
        f"p50 {whole.p50_ms} ms, p99 {whole.p99_ms} ms; lost {it.lost}",
    ]
    return "\n".join(lines + ([_recovery_text(it.recovery)] if it.recovery else []))


def _share(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.2%'):>12}"


def _recovery_text(it: Recovery) -> str:
    return (
        f"a device was killed: after {it.detected_s} s it was missed ({DEAD_AFTER_S:g} s of "
        f"silence) and its slots were handed on; the solver's plan came {it.solved_s} s later "
        f"({it.solved_wall_s} s of the wall); started again it was used after {it.back_s} s"
    )


def main() -> None:
    """Run and print the figures."""
    parser = argparse.ArgumentParser(description="A live cluster of emulated devices.")
    parser.add_argument("data", nargs="?", type=Path, default=DATA, help="Loki's data")
    parser.add_argument("--pipeline", choices=sorted(PAPER), default="traffic")
    parser.add_argument("--policy", default="loki")
    parser.add_argument("--dilate", type=float, default=8.0)
    parser.add_argument("--until", type=float, help="cut the arrivals there, in seconds")
    parser.add_argument("--kill-at", type=float, help="seconds from the first arrival")
    parser.add_argument("--back-at", type=float)
    parser.add_argument("--keep", type=Path, help="write the pipeline and its arrivals there")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-cluster-") as temporary:
        folder = asked.keep or Path(temporary)
        path, trace = prepared(asked.data, folder, asked.pipeline)
        times = read_workload(trace).drawn(np.random.default_rng(0))
        times = times if asked.until is None else times[times < asked.until]
        kill_s = asked.kill_at if asked.kill_at is not None else float(times[-1]) * 0.6
        back_s = asked.back_at if asked.back_at is not None else float(times[-1]) * 0.75
        outage = Outage(kill_s=kill_s, back_s=back_s)
        found = shown(read_pipeline_file(path), times, asked.policy, asked.dilate, outage)
    print(json.dumps(asdict(found)) if asked.json else text(found))


if __name__ == "__main__":
    main()
