"""Measure the simulator: events, stage queries and queries per CPU second, and memory.

    python -m benchmarks.simulator [DATA_DIR] [--ramsis DATA_DIR] [--rounds N] [--json]

Each round runs in a process of pure Python and, if there is a compiler, in one with compiled nodes
(docs/decisions/0007):

* one stage on one worker, Poisson arrivals at a load of 0.6, batches of one: node events per CPU
  second, and a bare heap loop that pops as many events and calls an empty function;
* two stages without fan-out at 500 queries/s: queries per CPU second, and CPU seconds per hour
  simulated;
* with DATA_DIR (Loki's data), 60 s of its traffic pipeline under `loki-paper`: stage queries and
  items that ran per CPU second, without solves (stage queries also count items dropped unserved,
  twenty of them in one event, so two policies or versions compare by the items that ran);
* with --ramsis (RAMSIS's data), its image task at 3000 queries/s on 60 workers that follow a table:
  queries per CPU second, without solves.

Memory is the peak of a process that simulates the two stages for 30 s, and of one for 300 s.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.small_cluster import a_cluster
from benchmarks.twins import NotCompiled, compiled_copy, printed, pure_copy
from control.policies import POLICIES
from control.policies.option_fields import with_options
from headrace.arrivals.arrival_processes import Arrivals, Rates, Renewal
from headrace.arrivals.arrivals_file import read_workload
from headrace.config.pipeline_file import read_pipeline_file
from headrace.roles.heap import collect_seldom
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated

BATCH_S = 0.01
HOUR_QUERIES = 500 * 3600
TRAFFIC_S = 60
TASK_QPS, TASK_S = 3000.0, 20.0


def one_stage(folder: Path) -> Ended:
    """Simulate a queue with one server."""
    policy = {"replicas": {"read/small": 1}, "batch": {"read/small": 1}}
    file = a_cluster(
        folder, children={"read": ()}, fan_out=0, batch_s=BATCH_S, devices=1, slo="10s",
        admission=False, policies={"one": policy},
    )  # fmt: skip
    return played(file, "one", Renewal(0.6 / BATCH_S, 300.0))


def two_stages(folder: Path, seconds: float = 30.0) -> Ended:
    """Simulate 500 queries/s through two tasks, one item each."""
    file = a_cluster(
        folder, fan_out=1, batch_s=BATCH_S, devices=12, admission=False,
        policies={"two": {"replicas": {"detect/small": 6, "read/small": 6}}},
    )  # fmt: skip
    return played(file, "two", Renewal(500.0, seconds))


def traffic(data: Path, folder: Path) -> Ended:
    """Simulate Loki's traffic pipeline from its own files."""
    from benchmarks.papers.loki import main as write

    arguments, sys.argv = sys.argv, ["loki", str(data), str(folder)]
    try:
        write()
    finally:
        sys.argv = arguments
    rates = read_workload(folder / "traffic-288s.csv")
    assert isinstance(rates, Rates)
    return played(folder / "traffic.yaml", "loki-paper", Rates(rates.rates_qps[:TRAFFIC_S]))


def one_task(data: Path, folder: Path) -> Ended:
    """Simulate RAMSIS's image task on 60 workers with a table."""
    from benchmarks.papers.ramsis import write

    write(data, folder)
    file = read_pipeline_file(folder / "image.yaml")
    policy = with_options(POLICIES["ramsis-paper"].usual, loads=(TASK_QPS,))
    file = replace(file, pipeline=replace(file.pipeline, policies=(policy,), admission=False))
    arrivals = Renewal(TASK_QPS, TASK_S)
    run = Run(file=file, policy=policy.name, seed=0, arrivals=arrivals, latency="p95")
    return simulated(run, lambda sent: None)


def played(file: Path, policy: str, arrivals: Arrivals) -> Ended:
    """Run one simulation."""
    run = Run(file=read_pipeline_file(file), policy=policy, seed=0, arrivals=arrivals)
    return simulated(run, lambda sent: None)


def heap_s(events: int) -> float:
    """Return CPU seconds of a loop that pops and pushes ``events`` events on a heap of 50."""
    heap: list[tuple[float, float, int, Callable[[Any, Any], None], Any, Any]] = []
    for number in range(50):
        heappush(heap, (number * 0.01, 0.0, number, _nothing, None, None))
    began = process_time()
    for number in range(50, 50 + events):
        now, _, _, action, one, other = heappop(heap)
        action(one, other)
        heappush(heap, (now + 0.5 + number % 7 * 0.01, 0.0, number, action, one, other))
    return process_time() - began


def _nothing(one: Any, other: Any) -> None:
    pass


def measured(folder: Path, data: Path | None, ramsis: Path | None) -> dict[str, float]:
    """Measure one round."""
    single, double = one_stage(folder), two_stages(folder)
    heap = single.events / heap_s(single.events)
    figures = {
        "events_per_cpu_s": single.events / single.cpu_s,
        "heap_events_per_cpu_s": heap,
        "ratio_to_heap": single.events / single.cpu_s / heap,
        "two_stage_queries_per_cpu_s": double.queries / double.cpu_s,
        "hour_at_500_s": HOUR_QUERIES * double.cpu_s / double.queries,
    }
    if data is not None:
        full = traffic(data, folder)
        figures["traffic_stage_queries_per_cpu_s"] = full.metrics.stage_queries / full.cpu_s
        figures["traffic_items_run_per_cpu_s"] = full.metrics.finished / full.cpu_s
        figures["traffic_events_per_cpu_s"] = full.events / full.cpu_s
    if ramsis is not None:
        task = one_task(ramsis, folder)
        figures["one_task_queries_per_cpu_s"] = task.queries / task.cpu_s
    return figures


def own_peak_mb(seconds: float) -> float:
    """Simulate two stages in this process; return its peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        two_stages(Path(folder), seconds)
    # Not ru_maxrss: a child inherits its parent's value.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def figures(rounds: int, data: Path | None, ramsis: Path | None) -> dict[str, Any]:
    """Return median, minimum and maximum of every figure, and memory, for both copies."""
    options = ([str(data.absolute())] if data else []) + (
        ["--ramsis", str(ramsis.absolute())] if ramsis else []
    )
    with tempfile.TemporaryDirectory() as folder:
        twins = copies(Path(folder))
        found: dict[str, list[dict[str, float]]] = {name: [] for name in twins}
        for _ in range(rounds):
            for name, copy in twins.items():
                found[name].append(json.loads(asked_of(copy, "--round", *options)))
        memory = {
            name: {
                f"peak_mb_{length}_s": float(asked_of(copy, "--memory-of", length))
                for length in ("30", "300")
            }
            for name, copy in twins.items()
        }
    return {
        "rounds": rounds,
        **{name: {**spread(rows), **memory[name]} for name, rows in found.items()},
    }


def copies(folder: Path) -> dict[str, Path]:
    """Return a pure copy of the source and, if this machine can compile, a compiled one."""
    twins = {"pure_python": pure_copy(folder / "pure")}
    try:
        twins["compiled"] = compiled_copy(folder / "compiled", 3)
    except NotCompiled as error:
        print(f"pure Python only: {error}", file=sys.stderr)
    return twins


def asked_of(copy: Path, *options: str) -> str:
    """Run this program in a process with the modules of a copy; return its output."""
    return printed(copy, "-m", "benchmarks.simulator", *options)


def spread(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Return median, minimum and maximum of each figure."""
    values = {key: [row[key] for row in rows] for key in rows[0]}
    return {
        key: {"median": statistics.median(v), "min": min(v), "max": max(v)}
        for key, v in values.items()
    }


def one_round(data: Path | None, ramsis: Path | None) -> dict[str, float]:
    """Measure one round in this process."""
    collect_seldom()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        return measured(Path(folder), data, ramsis)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="The speed of the simulator.")
    parser.add_argument("data", nargs="?", type=Path, help="Loki's data")
    parser.add_argument("--ramsis", type=Path, metavar="DATA_DIR", help="RAMSIS's data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--round", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.round:
        print(json.dumps(one_round(asked.data, asked.ramsis)))
        return
    if asked.memory_of is not None:
        print(own_peak_mb(asked.memory_of))
        return
    found = figures(asked.rounds, asked.data, asked.ramsis)
    if asked.json:
        print(json.dumps(found))
        return
    print(f"{found.pop('rounds')} rounds: median (least to most)")
    for twin, values in found.items():
        print(twin)
        for key, value in values.items():
            print(f"  {key}: {told(value)}")


def told(value: Any) -> str:
    """Return a figure as text, with its spread if it has one."""
    if not isinstance(value, dict):
        return f"{value:,.0f}"
    return f"{value['median']:,.3g} ({value['min']:,.3g} to {value['max']:,.3g})"


if __name__ == "__main__":
    main()
