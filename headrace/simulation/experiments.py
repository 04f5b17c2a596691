"""Run simulations from Python: functions that return records, one dict per row, for pandas.

    import headrace, pandas as pd
    runs = headrace.simulate("pipeline.yaml", policies=["loki", "static"], rate_qps=200, seconds=60)
    pd.DataFrame(runs)

Times are in seconds and keys carry their unit; a run's keys are those of ``simulate --json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from control.problem.problem import PlanError
from headrace.arrivals.arrival_processes import Recorded, Times
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import ArrivalsError, Unfeasible
from headrace.planning.dry_run import PlanRequest, as_json, dry_run_plans
from headrace.simulation import comparison
from headrace.simulation.batch_runs import Row, SimulationRequest, of_all, on_all_cores, played_rows
from headrace.simulation.capacity_search import CapacityOptions, requests, searched_capacities
from headrace.simulation.comparison import FIGURES, Comparison
from headrace.simulation.comparison import as_json as as_document
from headrace.simulation.run_details import Details, detailed
from headrace.simulation.run_input import Run
from headrace.simulation.sweep import Label, Sweep, labelled, points, swept
from headrace.simulation.world_file import chosen_world

__all__ = [
    "capacity", "compare", "plannable_demand", "simulate", "simulated_queries",
    "simulated_seconds",
]  # fmt: skip

T = TypeVar("T")
Source = str | Path | PipelineFile
PRECISION = 0.01  # of a plannable demand, relative
MOST_DOUBLINGS = 30
_SWEPT = {"rate_qps": "rates_qps", "devices": "devices", "slo_s": "slos_s"}  # may be lists


def simulate(file: Source, **asked: Any) -> list[Row]:
    """Play arrivals through the pipeline in virtual time; return a record per policy and seed.

    ``policies`` and ``seeds`` are lists (default: the file's policy, seed 0). Arrivals are either
    ``arrivals``, a file or ascending times in seconds, or ``rate_qps`` with ``seconds`` and
    optionally ``cv`` or ``burst``. ``devices`` (a number, or numbers by device) and ``slo_s``
    override the file's; where one of these or ``rate_qps`` is a list, every combination is played,
    and records have the keys cluster_devices, slo_ms or rate_qps in front. ``share``,
    ``warm_up_s``, ``latency``, ``solve_s`` and ``world`` are those of ``headrace simulate``.

    Raises ``PipelineError``, ``ArrivalsError`` or ``PlanError``.
    """
    labels, wanted = _swept(file, asked)
    return labelled(labels, played_rows(wanted))


def simulated_queries(file: Source, **asked: Any) -> list[Row]:
    """Simulate as ``simulate`` does; return a record per query.

    Keys: policy, seed, id, created_s and answered_s (virtual seconds since the first arrival),
    latency_ms, outcome, late, task, reason, expected_accuracy, variants.
    """
    labels, found = _details(file, asked)
    return of_all(labels, [each.queries for each in found])


def simulated_seconds(file: Source, **asked: Any) -> list[Row]:
    """Simulate as ``simulate`` does; return a record per second.

    Keys: policy, seed, second, demand_qps, capacity_qps, devices, accuracy, violation.
    """
    labels, found = _details(file, asked)
    return of_all(labels, [each.seconds for each in found])


def compare(file: Source, **asked: Any) -> list[Row]:
    """Compare policies on the same arrivals; return a record per policy and figure.

    Arguments are those of ``simulate``; ``static-best`` may be among the policies. Keys: policy,
    figure, mean, low, high (95 % interval over seeds; None with one seed), and difference,
    difference_low, difference_high from the first policy, paired by seed.
    """
    read = _read(file)
    found = compared_points(read, *_simulation(read, asked))
    return of_all([label for label, _ in found], [_compared(made) for _, made in found])


def _compared(made: Comparison) -> list[Row]:
    document = as_document(made)
    differences = {each["policy"]: each for each in document["differences"]}
    return [
        {"policy": each["policy"], "figure": figure, **_interval(each[figure], ""),
         **_interval(differences.get(each["policy"], {}).get(figure), "difference")}
        for each in document["policies"] for figure in FIGURES
    ]  # fmt: skip


def capacity(file: Source, **asked: Any) -> list[Row]:
    """Search the highest rate that keeps the SLO in virtual time; a record per policy and seed.

    ``policies`` and ``seeds`` are lists, ``mix`` is the devices by type; ``attainment`` (0.99),
    ``queries`` (10,000 a trial), ``warm_up_s`` and ``sizes`` are those of ``headrace capacity``,
    and so are the keys: policy, seed, mix, capacity_qps (0: no rate keeps it), attainment, p99_ms,
    runs, queries, warm_up_s.

    Raises ``PipelineError`` or ``PlanError``.
    """
    options = _request(CapacityOptions, asked)
    return [found.as_json() for found in searched_capacities(requests(_read(file), options))]


def plannable_demand(
    file: Source,
    *,
    policies: Sequence[str] = (),
    devices: Sequence[int] = (),
    slos_s: Sequence[float] = (),
) -> list[Row]:
    """Return the largest demand for which each policy has a feasible plan, to within 1 %.

    It follows from the profile; ``capacity`` is found by simulation, with queues.

    A record per policy, number of devices and SLO (default: the file's) with the keys policy,
    devices, slo_s, demand_qps (0: none), accuracy, mode. The figures follow from the profile and
    ignore queueing. Raises ``PlanError`` for a policy that plans no replicas, or the same ones for
    any demand.
    """
    read = _read(file)
    return [
        _plannable(read, policy, count, slo_s)
        for policy in policies or (read.pipeline.policy,)
        for count in devices or (None,)
        for slo_s in slos_s or (None,)
    ]


def _plannable(file: PipelineFile, policy: str, devices: int | None, slo_s: float | None) -> Row:
    def planned(demand_qps: float) -> Mapping[str, Any]:
        asked = PlanRequest(demands_qps=(demand_qps,), policy=policy, devices=devices, slo_s=slo_s)
        return next(as_json(each) for each in dry_run_plans(file, asked))

    best: Mapping[str, Any] = {"feasible": False}
    low, high = 0.0, 1.0
    try:
        for _ in range(MOST_DOUBLINGS):
            found = planned(high)
            if not found["feasible"]:
                break
            best, low, high = found, high, 2 * high
        else:
            raise PlanError(
                f"policy {policy!r} has a plan for any demand; `headrace capacity` finds the "
                "highest rate by simulation"
            )
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


def _details(file: Source, asked: Mapping[str, Any]) -> tuple[list[Label], list[Details]]:
    labels, wanted = _swept(file, asked)
    return labels, on_all_cores(detailed, wanted, "simulating")


def _read(file: Source) -> PipelineFile:
    return file if isinstance(file, PipelineFile) else read_pipeline_file(Path(file))


def _swept(file: Source, asked: Mapping[str, Any]) -> tuple[list[Label], list[Run]]:
    read = _read(file)
    return swept(read, *_simulation(read, asked))


def _simulation(file: PipelineFile, asked: Mapping[str, Any]) -> tuple[SimulationRequest, Sweep]:
    times = asked.get("arrivals")
    if times is not None:
        path = isinstance(times, (str, Path))
        times = Path(times) if path else Recorded(_ascending(times))
    named = asked.get("world")
    world = chosen_world(file, None if named is None else str(named)).world
    lists = {name: asked[name] for name in _SWEPT if isinstance(asked.get(name), (list, tuple))}
    one = {name: value for name, value in asked.items() if name not in lists}
    request = _request(SimulationRequest, {**one, "arrivals": times, "world": world})
    return request, Sweep(**{_SWEPT[name]: values for name, values in lists.items()})


def _request(kind: type[T], asked: Mapping[str, Any]) -> T:
    """Return the request with these fields; raise ``TypeError`` for a name that it lacks."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise TypeError(f"there is no argument {unknown[0]!r}; there are {', '.join(names)}")
    return kind(**asked)


def _ascending(times: Sequence[float]) -> Times:
    found = np.asarray(times, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all() or found[0] < 0:
        raise ArrivalsError("arrivals must be finite seconds from 0 on, one at least")
    if (np.diff(found) < 0).any():
        raise ArrivalsError("arrivals must ascend; sort them")
    return found


def compared_points(
    file: PipelineFile, asked: SimulationRequest, sweep: Sweep
) -> list[tuple[Label, Comparison]]:
    """Compare the policies at every point; raises as ``comparison.compare`` does."""
    return [(label, comparison.compare(file, request)) for label, request in points(asked, sweep)]
