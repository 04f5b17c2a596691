"""Measure tables of model selection, against a straightforward solution of the same process.

    python -m benchmarks.selection [--data ../shared/data/ramsis] [--json] [--rounds 7]
        [--no-reference]

On the RAMSIS artifact's models: one table at 2000 queries/s with its 9 models and with 60
interpolated ones, tables for 20 loads, finer levels, a thousand workers. Figures are CPU seconds of
one thread: median over the rounds and interquartile range. ``reference`` is
``selection_reference``, which keeps all transitions in a dense array; it runs once. Finally, the
error of expected accuracy and violation for gamma distributed gaps between queries: planned as
Poisson, and as counts with independent increments of the same dispersion, against a simulation of
one worker.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# Before NumPy starts its threads: they slow down operations on matrices as small as these.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.papers.ramsis import entries
from benchmarks.selection_reference import dense, iterate, worth
from benchmarks.selection_worker import decisions, follow, with_gamma_gaps
from control.policies.ramsis.arrival_counts import ArrivalCounts
from control.policies.ramsis.mdp import Setting, fixed_levels, whole_queue
from control.policies.ramsis.mdp_solver import Objective, value_iteration
from control.policies.ramsis.pareto_models import CandidateModel, monotone, worthwhile_alone
from control.policies.ramsis.tables import OPTIONS, Ask, SelectionPlan, solved

DATA = Path(__file__).parents[2] / "shared/data/ramsis"
LOADS = tuple(range(200, 4001, 200))
SQUARED_VARIATION = 4.0
QUERIES = 20_000
RUNS = 10


def image(data: Path) -> tuple[CandidateModel, ...]:
    """Return the artifact's 9 image models."""
    return tuple(
        CandidateModel(entry.variant, entry.accuracy, tuple(row.p95_s for row in entry.latency))
        for entry in entries(data, "image")
    )


def between(models: tuple[CandidateModel, ...], count: int) -> tuple[CandidateModel, ...]:
    """Return ``count`` models that interpolate accuracy and log latency of the given ones."""
    known = sorted(models, key=lambda model: model.accuracy)
    at, wanted = np.arange(len(known)), np.linspace(0, len(known) - 1, count)
    accuracy = np.interp(wanted, at, [model.accuracy for model in known])
    logs = np.log([model.latency_s for model in known])
    latency = np.exp([np.interp(wanted, at, column) for column in logs.T]).T
    return tuple(
        CandidateModel(f"model-{n}", float(accuracy[n]), tuple(latency[n].tolist()))
        for n in range(count)
    )


def many(policy: str, ask: Ask) -> list[SelectionPlan]:
    """Solve a table for each of 20 loads, starting from the values of the previous one."""
    plans: list[SelectionPlan] = []
    for qps in LOADS:
        near = plans[-1] if plans else None
        plans.append(solved(OPTIONS[policy], replace(ask, qps=float(qps)), near))
    return plans


def cases(models: tuple[CandidateModel, ...]) -> dict[str, Callable[[], Any]]:
    """Return the timed calls by name."""
    ask = Ask(models=models, slo_s=0.15, workers=60, qps=2000.0)
    sixty = replace(ask, models=between(models, 60))
    thousand = replace(ask, workers=1000, qps=2000 / 60 * 1000)
    finer = replace(OPTIONS["ramsis"], steps=400)
    timed: dict[str, Callable[[], Any]] = {}
    for policy in ("ramsis-paper", "ramsis"):
        options = OPTIONS[policy]
        timed[f"{policy}, 9 models"] = lambda options=options: solved(options, ask)
        timed[f"{policy}, 60 models"] = lambda options=options: solved(options, sixty)
        timed[f"{policy}, 20 loads"] = lambda policy=policy: many(policy, ask)
    timed["ramsis-variable, 9 models"] = lambda: solved(OPTIONS["ramsis-variable"], ask)
    timed["ramsis-variable, 20 loads"] = lambda: many("ramsis-variable", ask)
    timed["ramsis, 9 models, D 400"] = lambda: solved(finer, ask)
    timed["ramsis, 9 models, 1000 workers"] = lambda: solved(OPTIONS["ramsis"], thousand)
    return timed


def measured(call: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Return CPU seconds of a call after a warm-up: median and interquartile range."""
    readings = []
    for _ in range(rounds + 1):
        start = time.process_time()
        call()
        readings.append(time.process_time() - start)
    low, middle, high = statistics.quantiles(readings[1:], n=4)
    return {"seconds": round(middle, 4), "spread": round(high - low, 4)}


def reference(models: tuple[CandidateModel, ...]) -> dict[str, float]:
    """Return the reference's CPU seconds, accuracy and violation (``ramsis-paper``, 2000/s)."""
    front = worthwhile_alone([monotone(model) for model in models])
    setting = Setting(
        models=front,
        slo_s=0.15,
        workers=60,
        arrivals=ArrivalCounts(2000.0),
        levels_s=fixed_levels(0.15),
    )
    start = time.process_time()
    plain = dense(setting)
    accuracy, violation = worth(plain, iterate(plain))
    seconds = time.process_time() - start
    ours = solved(OPTIONS["ramsis-paper"], Ask(models=models, slo_s=0.15, workers=60, qps=2000.0))
    return {
        "seconds": round(seconds, 2),
        "accuracy": accuracy,
        "violation": violation,
        "accuracy_difference": abs(accuracy - ours.expected_accuracy),
        "violation_difference": abs(violation - ours.expected_violation),
    }


def burstiness(models: tuple[CandidateModel, ...], qps: float) -> dict[str, float]:
    """Return expected and simulated figures of one of 60 workers under gamma distributed gaps."""
    report: dict[str, float] = {"qps": qps, "squared_variation": SQUARED_VARIATION}
    front = worthwhile_alone([monotone(model) for model in models])
    for name, dispersion in (("poisson", 1.0), ("increments", SQUARED_VARIATION)):
        setting = Setting(
            models=front,
            slo_s=0.15,
            workers=60,
            arrivals=ArrivalCounts(qps, dispersion),
            levels_s=fixed_levels(0.15),
        )
        process = whole_queue(setting)
        found = value_iteration(process, Objective(), None)
        table = decisions(process, found.choice)
        chances = [np.random.default_rng((3, run)) for run in range(RUNS)]
        seen = np.array(
            [
                follow(setting, *table, with_gamma_gaps(setting, SQUARED_VARIATION, QUERIES, rng))
                for rng in chances
            ]
        )
        half = 2.26 * seen.std(axis=0, ddof=1) / RUNS**0.5  # 95 %, Student's t
        report |= {
            f"{name}_accuracy": round(found.worth.accuracy, 5),
            f"{name}_accuracy_seen": round(float(seen[:, 0].mean()), 5),
            f"{name}_accuracy_interval": round(float(half[0]), 5),
            f"{name}_violation": round(found.worth.violation, 6),
            f"{name}_violation_seen": round(float(seen[:, 1].mean()), 6),
            f"{name}_violation_interval": round(float(half[1]), 6),
        }
    return report


def shown(report: dict[str, Any]) -> str:
    """Return the report as text."""
    lines = []
    plain = report.get("reference")
    for case in report["cases"]:
        line = f"{case['case']:32} {case['seconds']:8.3f} ± {case['spread']:.3f} s"
        if plain and case["case"] == "ramsis-paper, 9 models":
            line += f"   reference {plain['seconds']:.1f} s: {case['ratio']:.0f} x"
        lines.append(line)
    for row in report["burstiness"]:
        for law in ("poisson", "increments"):
            lines.append(
                f"gamma gaps, c² {row['squared_variation']:g}, {row['qps']:g}/s, planned as "
                f"{law}: accuracy {row[f'{law}_accuracy']:.4f}, seen "
                f"{row[f'{law}_accuracy_seen']:.4f} ± {row[f'{law}_accuracy_interval']:.4f}; "
                f"violation {row[f'{law}_violation']:.5f}, seen "
                f"{row[f'{law}_violation_seen']:.5f} ± {row[f'{law}_violation_interval']:.5f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the RAMSIS data")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=7, help="readings per figure (7)")
    parser.add_argument("--no-reference", action="store_true", help="not the slow plain way")
    options = parser.parse_args()
    if not options.data.exists():
        parser.exit(2, f"{options.data} is not there; name the RAMSIS data with --data\n")
    models = image(options.data)
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}, one BLAS thread",
        "rounds": options.rounds,
        "cases": [],
    }
    for name, call in cases(models).items():
        print(f"measuring: {name}", file=sys.stderr)
        report["cases"].append({"case": name, **measured(call, max(2, options.rounds))})
    if not options.no_reference:
        print("measuring: reference", file=sys.stderr)
        report["reference"] = reference(models)
        first = report["cases"][0]
        first["ratio"] = round(report["reference"]["seconds"] / first["seconds"], 1)
    report["burstiness"] = [burstiness(models, qps) for qps in (1200.0, 2000.0, 2800.0)]
    print(json.dumps(report) if options.json else shown(report))


if __name__ == "__main__":
    main()
