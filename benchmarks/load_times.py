"""Play a rise of load, and a restart of all workers, while variants load slowly (virtual time).

    nice -n 10 python -m benchmarks.load_times [--scene rise|restart] [--policy loki]
        [--load-s 0.5 5 10] [--seeds 4] [--json]

Emulated devices serve a line of two tasks (``benchmarks/small_cluster.py``). ``rise``: demand rises
from 30 to 120 queries/s within 45 s on five devices, so that workers have to change to faster
variants in time. ``restart``: at 20 queries/s all of six devices are lost after 20 s and come back
after 3 s; the fast variants load in 0.5 s. All load times are played with the same arrivals.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Rates
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import DEATH, Fault
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated

CALM_QPS, RISE_S, TOP_QPS, HOLD_S = 30.0, 45, 120.0, 15
RATES = (
    (CALM_QPS,) * HOLD_S
    + tuple(CALM_QPS + (TOP_QPS - CALM_QPS) * s / RISE_S for s in range(RISE_S))
    + (TOP_QPS,) * HOLD_S
)
EVEN_QPS, LOST_AT_S, LOST_FOR_S, EVEN_S = 20.0, 20.0, 3.0, 70
EVERY_DEVICE = 6
SOON_S = 0.5  # the fast variants' load after a restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run: the part of the queries that was not answered in time, and the answers' accuracy."""

    load_s: float
    seed: int
    violation: float
    accuracy: float


def risen(folder: Path, load_s: float, seed: int = 0, policy: str = "loki") -> Row:
    """Play the rising load with variants that take ``load_s`` to load."""
    path = a_cluster(folder, batch_s=0.02, devices=5, load_s=load_s, slo="1s")
    return _played(
        Run(file=read_pipeline_file(path), policy=policy, seed=seed, arrivals=Rates(RATES)), load_s
    )


def restarted(folder: Path, load_s: float, seed: int = 0, policy: str = "loki") -> Row:
    """Play the loss of all devices, whose accurate variants take ``load_s`` to load."""
    path = a_cluster(
        folder, batch_s=0.02, devices=EVERY_DEVICE, load_s=load_s, small_load_s=SOON_S, slo="1s"
    )
    faults = tuple(
        Fault(at_s=LOST_AT_S, kind=DEATH, device=f"emulated-{at}", for_s=LOST_FOR_S)
        for at in range(EVERY_DEVICE)
    )
    even = Rates((EVEN_QPS,) * EVEN_S)
    file = read_pipeline_file(path)
    return _played(Run(file=file, policy=policy, seed=seed, arrivals=even, faults=faults), load_s)


def _played(run: Run, load_s: float) -> Row:
    metrics = simulated(run, lambda sent: None).metrics
    return Row(
        load_s=load_s, seed=run.seed, violation=metrics.violation or 0.0,
        accuracy=metrics.accuracy or 0.0,
    )  # fmt: skip


SCENES: Mapping[str, Callable[[Path, float, int, str], Row]] = {
    "rise": risen, "restart": restarted,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print the runs; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scene", choices=tuple(SCENES), default="rise")
    parser.add_argument("--policy", default="loki")
    parser.add_argument("--load-s", type=float, nargs="+", default=[0.5, 5.0, 10.0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-load-times-") as folder:
        for load_s in asked.load_s:
            for seed in range(asked.seeds):
                row = SCENES[asked.scene](Path(folder), load_s, seed, asked.policy)
                text = (
                    f"{load_s:g} s to load, seed {seed}: {row.violation:.1%} missed, "
                    f"accuracy {row.accuracy:.1%}"
                )
                print(json.dumps(asdict(row)) if asked.json else text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
