"""Null models: predictions that a simulator must beat to be worth its cost.

- ``calibration``: the figures of the calibration run itself, at the nearest rate.
- ``M/D/c``: each task of the plan for the mean rate as one queue with c servers and constant
  service, in closed form; no hops, no batching delay, no control.
"""

from collections.abc import Mapping
from math import fsum

import numpy as np

from control.policies.kairos.queueing import erlang_c
from control.problem.problem import Allocation, PlanError
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import Unfeasible
from headrace.fidelity.certificate import values_of
from headrace.planning.dry_run import Planned, PlanRequest, dry_run_plans
from headrace.planning.table_plans import selects
from headrace.simulation.world_file import Calibration
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline

SAMPLES = 20_000
CALIBRATION, QUEUES = "calibration", "M/D/c"


def null_models(
    file: PipelineFile,
    policy: str,
    calibration: Calibration | None,
    rate_qps: float,
    dilate: float,
    rng: np.random.Generator,
) -> dict[str, Mapping[str, float | None]]:
    """Return the predictions of every null model that has one, by name of the model.

    ``rate_qps`` is the mean rate in the pipeline's time.
    """
    found: dict[str, Mapping[str, float | None]] = {}
    if calibration is not None:
        found[CALIBRATION] = at_nearest_rate(calibration, rate_qps / dilate)
    queues = queueing(file, policy, rate_qps, rng)
    if queues:
        found[QUEUES] = queues
    return found


def at_nearest_rate(calibration: Calibration, rate_qps: float) -> dict[str, float | None]:
    """Return the mean figures of the phases at the rate nearest to ``rate_qps`` (of the wall)."""
    phases = calibration.world.phases
    nearest = min(calibration.world.rates_qps, key=lambda rate: abs(rate - rate_qps))
    there = [
        values_of(figures)
        for phase, figures in zip(phases, calibration.figures, strict=True)
        if phase.rate_qps == nearest
    ]
    return {name: _mean([values[name] for values in there]) for name in there[0]}


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if len(known) == len(values) else None


def queueing(
    file: PipelineFile, policy: str, rate_qps: float, rng: np.random.Generator
) -> dict[str, float | None]:
    """Return the M/D/c model's prediction; empty without a plan of replicas or above capacity."""
    asked = PlanRequest(demands_qps=(rate_qps,), policy=policy)
    try:
        if selects(file, asked):
            return {}
        planned = next(dry_run_plans(file, asked))
    except (PlanError, Unfeasible):
        return {}
    table = planned.problem.profile
    if table is None or not planned.allocation.replicas:
        return {}
    taken = _latencies(file.pipeline, planned, table, rate_qps, rng)
    if taken is None:
        return {}
    p50, p95, p99 = (float(np.quantile(taken, share)) * 1e3 for share in (0.5, 0.95, 0.99))
    late = float(np.mean(taken > planned.problem.slo_s))
    return {
        "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "violation": late, "branch_violation": late,
        "accuracy": planned.allocation.accuracy,
    }  # fmt: skip


def _latencies(
    pipeline: Pipeline, planned: Planned, table: ProfileTable, rate_qps: float,
    rng: np.random.Generator,
) -> "np.ndarray[tuple[int], np.dtype[np.float64]] | None":  # fmt: skip
    """Return sampled latencies of queries in seconds; None if some task is above its capacity."""
    found: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    rates = {pipeline.root.name: rate_qps}
    for task in pipeline.tasks:  # parents precede children
        servers, service_s, latency_s = _server(planned.allocation, task.name, table)
        rate = rates.get(task.name, 0.0)
        load = rate * service_s / servers if servers else 1.0
        if load >= 1:
            return None
        waits = rng.random(SAMPLES) < erlang_c(servers, rate * service_s)
        wait_s = rng.exponential(service_s / (2 * servers * (1 - load)), SAMPLES)
        found[task.name] = np.where(waits, wait_s, 0.0) + latency_s
        for child in task.children:
            rates[child] = rate * _fan_out(planned.allocation, task.name, child, table)
    return _slowest(pipeline, found, pipeline.root.name)


def _slowest(
    pipeline: Pipeline, found: Mapping[str, "np.ndarray[tuple[int], np.dtype[np.float64]]"],
    task: str,
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":  # fmt: skip
    """Return the samples of the slowest path from a task to its leaves."""
    below = [_slowest(pipeline, found, child) for child in pipeline.task(task).children]
    if not below:
        return found[task]
    longest: np.ndarray[tuple[int], np.dtype[np.float64]] = np.max(np.stack(below), axis=0)
    return found[task] + longest


def _server(plan: Allocation, task: str, table: ProfileTable) -> tuple[int, float, float]:
    """Return a task's servers, seconds of a server per item, and seconds of a planned batch."""
    there = [each for each in plan.replicas if each.task == task]
    servers = sum(each.count for each in there)
    if not servers:
        return 0, 0.0, 0.0
    rate = latency_s = 0.0
    for each in there:
        seconds = table.latency_s(
            task, each.variant, each.device or table.entries[0].device, each.batch, "mean"
        )
        rate += each.count * each.batch / seconds
        latency_s += each.count * seconds
    return servers, servers / rate, latency_s / servers


def _fan_out(plan: Allocation, task: str, child: str, table: ProfileTable) -> float:
    there = [each for each in plan.replicas if each.task == task]
    whole = sum(each.count for each in there)
    items = fsum(each.count * table.children_mean(task, each.variant, child) for each in there)
    return items / whole if whole else 0.0
