"""Run simulations from Python: functions that return records, one dict per row, for pandas.

    import headrace, pandas as pd
    runs = headrace.simulate("pipeline.yaml", policies=["loki", "static"], rate_qps=200, seconds=60)
    pd.DataFrame(runs)

Times are in seconds and keys carry their unit; a run's keys are those of ``simulate --json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.arrivals.arrival_processes import Recorded, Times
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import ArrivalsError, Unfeasible
from headrace.planning.dry_run import PlanRequest, as_json, plans
from headrace.simulation import comparison
from headrace.simulation.batch_runs import Row, on_all_cores, rows, runs
from headrace.simulation.overrides import Devices, changed
from headrace.simulation.run_details import Details, detailed
from headrace.simulation.simulation_run import Run
from headrace.simulation.static_best import NAME as STATIC_BEST
from headrace.simulation.world_file import chosen

__all__ = ["capacity", "compare", "simulate", "simulated_queries", "simulated_seconds"]

Source = str | Path | PipelineFile
PRECISION = 0.01  # of a capacity, relative
MOST_DOUBLINGS = 30


def simulate(file: Source, **asked: Any) -> list[Row]:
    """Play arrivals through the pipeline in virtual time; return a record per policy and seed.

    ``policies`` and ``seeds`` are lists (default: the file's policy, seed 0). Arrivals are either
    ``arrivals``, a file or ascending times in seconds, or ``rate_qps`` with ``seconds`` and
    optionally ``cv`` or ``burst``. ``devices`` (a number, or numbers by device) and ``slo_s``
    override the file's; ``warm_up_s``, ``latency``, ``solve_s`` and ``world`` are those of
    ``headrace simulate``.

    Raises ``PipelineError``, ``ArrivalsError`` or ``PlanError``.
    """
    return rows(_runs(_read(file, asked), asked))


def simulated_queries(file: Source, **asked: Any) -> list[Row]:
    """Simulate as ``simulate`` does; return a record per query.

    Keys: policy, seed, id, created_s and answered_s (virtual seconds since the first arrival),
    latency_ms, outcome, late, task, reason, expected_accuracy, variants.
    """
    return [row for each in _details(file, asked) for row in each.queries]


def simulated_seconds(file: Source, **asked: Any) -> list[Row]:
    """Simulate as ``simulate`` does; return a record per second.

    Keys: policy, seed, second, demand_qps, capacity_qps, devices, accuracy, violation.
    """
    return [row for each in _details(file, asked) for row in each.seconds]


def compare(file: Source, **asked: Any) -> list[Row]:
    """Compare policies on the same arrivals; return a record per policy and figure.

    Arguments are those of ``simulate``; ``static-best`` may be among the policies. Keys: policy,
    figure, mean, low, high (95 % interval over seeds; None with one seed), and difference,
    difference_low, difference_high from the first policy, paired by seed.
    """
    read = _read(file, asked)
    names = tuple(asked.get("policies") or (read.pipeline.policy,))
    given = [name for name in names if name != STATIC_BEST]
    wanted = _runs(read, {**asked, "policies": given or ["static"]})
    document = comparison.as_json(comparison.compared(wanted, names))
    differences = {each["policy"]: each for each in document["differences"]}
    return [
        {"policy": each["policy"], "figure": figure, **_interval(each[figure], ""),
         **_interval(differences.get(each["policy"], {}).get(figure), "difference")}
        for each in document["policies"] for figure in comparison.FIGURES
    ]  # fmt: skip


def capacity(
    file: Source,
    *,
    policies: Sequence[str] = (),
    devices: Sequence[int] = (),
    slos_s: Sequence[float] = (),
) -> list[Row]:
    """Return the largest demand for which each policy has a feasible plan, to within 1 %.

    A record per policy, number of devices and SLO (default: the file's) with the keys policy,
    devices, slo_s, demand_qps (0: none), accuracy, mode. The figures follow from the profile and
    ignore queueing. Raises ``PlanError`` for a policy that plans no replicas.
    """
    read = _read(file, {})
    return [
        _capacity(read, policy, count, slo_s)
        for policy in policies or (read.pipeline.policy,)
        for count in devices or (None,)
        for slo_s in slos_s or (None,)
    ]


def _capacity(file: PipelineFile, policy: str, devices: int | None, slo_s: float | None) -> Row:
    def planned(demand_qps: float) -> Mapping[str, Any]:
        asked = PlanRequest(demands_qps=(demand_qps,), policy=policy, devices=devices, slo_s=slo_s)
        return next(as_json(each) for each in plans(file, asked))

    best: Mapping[str, Any] = {"feasible": False}
    low, high = 0.0, 1.0
    try:
        for _ in range(MOST_DOUBLINGS):
            found = planned(high)
            if not found["feasible"]:
                break
            best, low, high = found, high, 2 * high
        while high - low > PRECISION * high:
            middle = (low + high) / 2
            found = planned(middle)
            if found["feasible"]:
                best, low = found, middle
            else:
                high = middle
            if high < PRECISION:
                break
    except Unfeasible:
        low = 0.0
    return {
        "policy": policy,
        "devices": len(file.cluster.workers) if devices is None else devices,
        "slo_s": file.pipeline.slo_s if slo_s is None else slo_s,
        "demand_qps": round(low, 3),
        "accuracy": best.get("accuracy") if low else None,
        "mode": best.get("mode") if low else None,
    }


def _interval(found: Mapping[str, Any] | None, name: str) -> Row:
    found = found or {"mean": None, "low": None, "high": None}
    if not name:
        return dict(found)
    return {name: found["mean"], f"{name}_low": found["low"], f"{name}_high": found["high"]}


def _details(file: Source, asked: Mapping[str, Any]) -> list[Details]:
    return on_all_cores(detailed, _runs(_read(file, asked), asked), "simulating")


def _read(file: Source, asked: Mapping[str, Any]) -> PipelineFile:
    read = file if isinstance(file, PipelineFile) else read_pipeline_file(Path(file))
    devices: Devices = asked.get("devices")
    return changed(read, devices, asked.get("slo_s"))


NAMES = {
    "policies": "policy", "seeds": "seed", "rate_qps": "rate", "seconds": "seconds", "cv": "cv",
    "burst": "burst", "warm_up_s": "warm_up", "latency": "latency", "solve_s": "solve_time",
    "arrivals": "arrivals", "devices": "", "slo_s": "", "world": "world",
}  # fmt: skip
USUAL = {
    "policy": (), "seed": (), "rate": None, "seconds": None, "cv": 1.0, "burst": None,
    "warm_up": None, "latency": None, "solve_time": None, "arrivals": None, "from_topic": None,
    "faults": None, "random_faults": 0, "bootstrap": None, "world": None,
}  # fmt: skip


def _runs(file: PipelineFile, asked: Mapping[str, Any]) -> list[Run]:
    unknown = [name for name in asked if name not in NAMES]
    if unknown:
        raise TypeError(f"there is no argument {unknown[0]!r}; there are {', '.join(NAMES)}")
    options = USUAL | {NAMES[name]: value for name, value in asked.items() if NAMES[name]}
    world = options["world"]
    options["world"] = chosen(file, None if world is None else str(world)).world
    times = options["arrivals"]
    if times is None or isinstance(times, (str, Path)):
        options["arrivals"] = None if times is None else Path(times)
        return runs(file, options)
    options |= {"arrivals": None, "rate": 1.0, "seconds": 1.0}  # replaced by the recorded times
    recorded = Recorded(_ascending(times))
    return [replace(run, arrivals=recorded) for run in runs(file, options)]


def _ascending(times: Sequence[float]) -> Times:
    found = np.asarray(times, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all() or found[0] < 0:
        raise ArrivalsError("arrivals must be finite seconds from 0 on, one at least")
    if (np.diff(found) < 0).any():
        raise ArrivalsError("arrivals must ascend; sort them")
    return found
