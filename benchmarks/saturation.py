"""Count false deaths of workers while other processes saturate every core.

    python -m benchmarks.saturation [--minutes 10] [--quiet-minutes 1] [--burners N] [--json]

A pipeline runs under load: first alone, then beside busy-looping processes, one per core by
default. No role is killed, so each plan with the cause "worker lost" is a false death; the exit
code is 1 if there is one. The longest time between two reports of a worker, in both parts of the
run, shows the margin: a worker counts as dead after ``DEAD_AFTER_S`` without a report.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.chaos import a_rig, say
from benchmarks.machine_speed import machine
from benchmarks.received_answers import ends
from benchmarks.rig import Rig, Stuck
from control.controller.membership import DEAD_AFTER_S
from schemas.enumerations import PlanCause

BURN = "while True: pass"
ACCOUNT_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Figures of one part of the run. ``busy`` is the share of all cores in use."""

    minutes: float
    busy: float
    queries: int
    outcomes: str
    reports: int  # of workers
    silence_p50_ms: float
    silence_max_ms: float
    deaths: tuple[str, ...]  # reasons of the plans after a lost worker


def measured(rig: Rig, minutes: float) -> Part:
    """Run under load for ``minutes``; return the figures."""
    rig.reports.silences.clear()
    plans, answers, began_s = len(rig.plans), len(rig.answers), time.monotonic()
    psutil.cpu_percent()
    while (left_s := began_s + 60 * minutes - time.monotonic()) > 0:
        rig.pass_time(min(left_s, ACCOUNT_EVERY_S))
        say(f"{(time.monotonic() - began_s) / 60:.1f} min: {len(_deaths(rig, plans))} deaths")
    busy = psutil.cpu_percent() / 100
    workers = [name for name in rig.reports.silences if name.startswith("cpu")]
    silences_ms = [1e3 * s for name in workers for s in rig.reports.silences[name]]
    return Part(
        minutes=minutes,
        busy=round(busy, 3),
        queries=len(rig.answers) - answers,
        outcomes=ends(rig.answers[answers:]),
        reports=len(silences_ms),
        silence_p50_ms=round(statistics.median(silences_ms), 1),
        silence_max_ms=round(max(silences_ms), 1),
        deaths=tuple(_deaths(rig, plans)),
    )


def _deaths(rig: Rig, since: int) -> list[str]:
    return [plan.reason for plan in rig.plans[since:] if PlanCause.WORKER_LOST in plan.causes]


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Run ``count`` busy-looping processes during the block."""
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def measure(
    folder: Path, minutes: float, quiet_minutes: float, burners: int, rate: float
) -> tuple[Part, Part]:
    """Measure the pipeline alone and beside burners. Raises ``Stuck`` if it does not start."""
    with a_rig(folder) as (rig, _):
        say(f"up after {rig.up():.1f} s")
        rig.offer(rate)
        rig.pass_time(3)
        quiet = measured(rig, quiet_minutes)
        with burning(burners):
            busy = measured(rig, minutes)
        rig.settle()
    return quiet, busy


def report(quiet: Part, busy: Part) -> str:
    """Return the figures as text."""
    lines = []
    for name, part in (("alone", quiet), ("saturated", busy)):
        lines.append(
            f"{name}: {part.minutes:g} min, cores {part.busy:.0%} busy, {part.queries} queries: "
            f"{part.outcomes}; {part.reports} reports of workers, {part.silence_p50_ms:.0f} ms "
            f"apart (median), {part.silence_max_ms:.0f} ms at most; {len(part.deaths)} deaths"
        )
    ratio = busy.silence_max_ms / quiet.silence_max_ms
    lines.append(
        f"the longest silence is {ratio:.2f} of that alone; "
        f"death is after {1e3 * DEAD_AFTER_S:.0f} ms"
    )
    lines += [f"false death: {reason}" for part in (quiet, busy) for reason in part.deaths]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if there was a false death."""
    parser = argparse.ArgumentParser(description="False deaths while every core is busy.")
    parser.add_argument("--minutes", type=float, default=10.0, help="beside the burners")
    parser.add_argument("--quiet-minutes", type=float, default=1.0, help="alone, before that")
    parser.add_argument("--burners", type=int, default=os.cpu_count(), help="one a core by default")
    parser.add_argument("--rate", type=float, default=50.0, help="queries/s")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-saturation-") as folder:
        try:
            quiet, busy = measure(
                Path(folder), asked.minutes, asked.quiet_minutes, asked.burners, asked.rate
            )
        except Stuck as stuck:
            print(f"no measurement: {stuck}", file=sys.stderr)
            return 1
    deaths = len(quiet.deaths) + len(busy.deaths)
    if asked.json:
        row = {"alone": asdict(quiet), "saturated": asdict(busy), "deaths": deaths}
        print(json.dumps({**row, "burners": asked.burners, "machine": machine()}))
    else:
        print(report(quiet, busy))
    return 1 if deaths else 0


if __name__ == "__main__":
    sys.exit(main())
