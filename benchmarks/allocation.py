"""Measure planning: CPU milliseconds per solve, child processes included, by demand.

    python -m benchmarks.allocation [--data ../shared/data/loki] [--json]

Loki's problems as its code plans them (18 devices) and its full trees (20), over demands from 200
queries/s to the largest served, in steps of 100, with both solvers; then with HiGHS' default
presolve and heuristics, as the baseline for our options.
The authors' code with a commercial solver was measured elsewhere (147 / 115 / 429 ms mean, median
and largest on traffic, 54 / 45 / 105 ms on social).
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.papers.loki import write
from control.policies.loki.allocate import allocate
from control.policies.option_fields import with_options
from control.problem import mip
from control.problem.problem import Problem
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.dry_run import PlanRequest, problem
from streams.cpu_seconds import spent

DATA = Path(__file__).parents[2] / "shared" / "data" / "loki"
CASES = (  # file, devices, largest demand
    ("traffic-as-coded", 18, 2000),
    ("social-as-coded", 18, 2000),
    ("traffic", 20, 2000),
    ("social", 20, 1000),
)
STEP = 100
REPEATS = 3
OURS: Mapping[str, Any] = mip.HIGHS
AS_IT_COMES = {"output_flag": False, "threads": 1}


def problems(folder: Path, name: str, devices: int, largest: int) -> list[Problem]:
    """Return the problem at every demand in accuracy mode."""
    file = read_pipeline_file(folder / f"{name}.yaml")
    asked = PlanRequest(demands_qps=(), devices=devices, comm_s=0.0, policy="loki-paper")
    first = problem(file, asked)
    found = [replace(first, demand_qps=float(d)) for d in range(200, largest + 1, STEP)]
    return [each for each in found if allocate(each).mode == "accuracy"]


def solves_ms(each: list[Problem], solver: str) -> dict[str, float]:
    """Return CPU ms of the solves (per demand the median of the repeats), and of whole plans."""
    alone, whole = [], []
    for one in each:
        asked = replace(one, policy=with_options(one.policy, solver=solver))
        times = [_timed_ms(asked) for _ in range(REPEATS)]
        alone.append(statistics.median(solve for solve, _ in times))
        whole.append(statistics.median(total for _, total in times))
    return {
        "demands": len(each),
        "mean_ms": statistics.mean(alone),
        "median_ms": statistics.median(alone),
        "max_ms": max(alone),
        "with_building_median_ms": statistics.median(whole),
    }


def _timed_ms(asked: Problem) -> tuple[float, float]:
    began, _ = spent()
    plan = allocate(asked)
    ended, _ = spent()
    assert plan.solved is not None
    return plan.solved.cpu_s * 1e3, (ended - began) * 1e3


def figures(data: Path) -> dict[str, Any]:
    """Measure every case with both solvers."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        write(data, Path(folder))
        for name, devices, largest in CASES:
            each = problems(Path(folder), name, devices, largest)
            rows = {solver: solves_ms(each, solver) for solver in ("highs", "cbc")}
            try:
                mip.HIGHS = AS_IT_COMES
                rows["highs as it comes"] = solves_ms(each, "highs")
            finally:
                mip.HIGHS = OURS
            ours, plain = rows["highs"]["median_ms"], rows["highs as it comes"]["median_ms"]
            found[name] = {"devices": devices, "solvers": rows, "ratio": ours / plain}
    return found


def told(found: Mapping[str, Any]) -> str:
    """Return the figures as a table."""
    lines = [f"{'':18} {'solver':18} {'mean':>7} {'median':>7} {'max':>7}  CPU ms"]
    for name, case in found.items():
        for solver, row in case["solvers"].items():
            lines.append(
                f"{name:18} {solver:18} {row['mean_ms']:7.1f} {row['median_ms']:7.1f} "
                f"{row['max_ms']:7.1f}  ({row['with_building_median_ms']:.1f} with building; "
                f"{row['demands']} demands)"
            )
    return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, metavar="DATA_DIR")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"Loki's data is not in {options.data}; name its folder with --data")
    found = figures(options.data)
    print(json.dumps(found) if options.json else told(found))


if __name__ == "__main__":
    main()
