"""Play a load that rises while variants load slowly, in virtual time.

    nice -n 10 python -m benchmarks.load_times [--load-s 0.5 5 10] [--seeds 4] [--json]

Five emulated devices serve a line of two tasks (``benchmarks/small_cluster.py``) under ``loki``;
demand rises from 30 to 120 queries/s within 45 s, so that workers have to change to faster variants
in time. Every load time is played with the same arrivals.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Rates
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated

CALM_QPS, RISE_S, TOP_QPS, HOLD_S = 30.0, 45, 120.0, 15
RATES = (
    (CALM_QPS,) * HOLD_S
    + tuple(CALM_QPS + (TOP_QPS - CALM_QPS) * s / RISE_S for s in range(RISE_S))
    + (TOP_QPS,) * HOLD_S
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run: the part of the queries that was not answered in time, and the answers' accuracy."""

    load_s: float
    seed: int
    violation: float
    accuracy: float


def risen(folder: Path, load_s: float, seed: int = 0) -> Row:
    """Play the rising load with variants that take ``load_s`` to load."""
    path = a_cluster(folder, batch_s=0.02, devices=5, load_s=load_s, slo="1s")
    run = Run(file=read_pipeline_file(path), policy="loki", seed=seed, arrivals=Rates(RATES))
    metrics = simulated(run, lambda sent: None).metrics
    return Row(
        load_s=load_s, seed=seed, violation=metrics.violation or 0.0,
        accuracy=metrics.accuracy or 0.0,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print the runs; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--load-s", type=float, nargs="+", default=[0.5, 5.0, 10.0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-load-times-") as folder:
        for load_s in asked.load_s:
            for seed in range(asked.seeds):
                row = risen(Path(folder), load_s, seed)
                text = f"{load_s:g} s to load, seed {seed}: {row.violation:.1%} missed"
                print(json.dumps(asdict(row)) if asked.json else text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
