"""Solve a PuLP model with CBC or HiGHS.

Solvers use one thread and fixed seeds, so that the same model has the same solution. Work is
bounded by gap and nodes (docs/decisions/0003), and by seconds only in live runs, which set
``Bounds.stop_s``. A ``Meter`` measures CPU seconds, including child processes, and wall seconds.
The caller provides it, because no decision reads a clock.
"""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pulp

from control.problem.problem import Meter, PlanError, SolverRun

OPTIMAL, STOPPED, INFEASIBLE, UNKNOWN = "optimal", "stopped", "infeasible", "unknown"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a solver's work: the relative gap that it may leave, the nodes that it may explore,
    and the wall seconds of the meter at which it stops."""

    gap: float
    nodes: int
    stop_s: float = inf


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a solve. ``gap`` is the proven one; None without a solution."""

    status: str
    run: SolverRun

    @property
    def solved(self) -> bool:
        """Whether the model's variables hold a solution."""
        return self.status in (OPTIMAL, STOPPED)


def solve_model(model: Any, solver: str, bounds: Bounds, meter: Meter) -> Outcome:
    """Solve a PuLP model; raise ``PlanError`` for an unknown solver, or one that cannot run."""
    try:
        run = SOLVERS[solver]
    except KeyError as error:
        raise PlanError(f"no solver {solver!r}; there are {', '.join(SOLVERS)}") from error
    cpu_s, wall_s = meter()
    if wall_s >= bounds.stop_s:
        return Outcome(UNKNOWN, SolverRun(solver, None))
    status, gap = run(model, replace(bounds, stop_s=bounds.stop_s - wall_s))
    after_cpu_s, after_wall_s = meter()
    return Outcome(status, SolverRun(solver, gap, after_cpu_s - cpu_s, after_wall_s - wall_s))


# The runs take ``stop_s`` as the remaining seconds.


def _highs(model: Any, bounds: Bounds) -> tuple[str, float | None]:
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in {**HIGHS, "mip_rel_gap": bounds.gap, "mip_max_nodes": bounds.nodes}.items():
        solver.setOptionValue(name, value)
    if bounds.stop_s < inf:
        solver.setOptionValue("time_limit", bounds.stop_s)
    columns = model.variables()
    solver.passModel(_handed_over(model, columns))
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if status == highspy.HighsModelStatus.kInfeasible or not found:
        infeasible = status in (
            highspy.HighsModelStatus.kInfeasible,
            highspy.HighsModelStatus.kUnboundedOrInfeasible,
        )
        return (INFEASIBLE if infeasible else UNKNOWN), None
    for variable, value in zip(columns, solver.getSolution().col_value, strict=True):
        variable.varValue = value
    optimal = status == highspy.HighsModelStatus.kOptimal
    return (OPTIMAL if optimal else STOPPED), _proven(optimal, bounds, float(info.mip_gap))


HIGHS: Mapping[str, Any] = {
    "output_flag": False,
    "threads": 1,
    # The models are already reduced: on Loki's problems presolve doubles the time, and so do
    # heuristics that start further searches (python -m benchmarks.allocation).
    "presolve": "off",
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}


def _handed_over(model: Any, columns: list[Any]) -> Any:
    """Return a PuLP model as input of one HiGHS call; row by row takes as long as the solve."""
    at = {id(variable): index for index, variable in enumerate(columns)}
    rows = model.constraints()
    entries = [(at[id(v)], value) for row in rows for v, value in row.items()]
    sense = -1.0 if model.sense == pulp.LpMaximize else 1.0
    linear = highspy.HighsLp()
    linear.num_col_, linear.num_row_ = len(columns), len(rows)
    linear.col_cost_ = np.array([sense * model.objective.get(v, 0.0) for v in columns])
    linear.col_lower_ = np.array([_or(v.lowBound, -highspy.kHighsInf) for v in columns])
    linear.col_upper_ = np.array([_or(v.upBound, highspy.kHighsInf) for v in columns])
    kinds = {True: highspy.HighsVarType.kInteger, False: highspy.HighsVarType.kContinuous}
    linear.integrality_ = [kinds[v.cat == pulp.LpInteger] for v in columns]
    linear.row_lower_ = np.array([_or(row.getLb(), -highspy.kHighsInf) for row in rows])
    linear.row_upper_ = np.array([_or(row.getUb(), highspy.kHighsInf) for row in rows])
    matrix = linear.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
    matrix.index_ = np.array([index for index, _ in entries], dtype=np.int32)
    matrix.value_ = np.array([value for _, value in entries], dtype=np.float64)
    return linear


def _or(bound: float | None, otherwise: float) -> float:
    return otherwise if bound is None else float(bound)


def _cbc(model: Any, bounds: Bounds) -> tuple[str, float | None]:
    with tempfile.TemporaryDirectory(prefix="headrace-cbc-") as folder:
        log = Path(folder) / "log"
        solver = pulp.COIN_CMD(
            path=pulp.PULP_CBC_CMD.pulp_cbc_path,  # the one shipped with PuLP
            msg=False,
            threads=1,
            gapRel=bounds.gap,
            maxNodes=bounds.nodes,
            timeLimit=None if bounds.stop_s == inf else bounds.stop_s,
            logPath=str(log),
            # The default requires the next solution to improve by 1e-5, which hides optima.
            options=["increment 1e-9"],
        )
        solver.tmpDir = folder
        try:
            model.solve(solver)
        except pulp.PulpSolverError as error:  # the program is missing, or was killed
            raise PlanError(
                f"the solver CBC gave no result ({error}); try again, or use `solver: highs`"
            ) from error
        text = log.read_text(encoding="utf-8", errors="replace")
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return (INFEASIBLE if model.status == pulp.LpStatusInfeasible else UNKNOWN), None
    figures = {name: float(value) for name, value in _FIGURE.findall(text)}
    value = figures.get("Objective value", 0.0)
    bound = figures.get("Lower bound", figures.get("Upper bound", value))
    optimal = model.sol_status == pulp.LpSolutionOptimal
    gap = abs(bound - value) / max(abs(value), 1e-9)
    return (OPTIMAL if optimal else STOPPED), _proven(optimal, bounds, gap)


_FIGURE = re.compile(r"^(Objective value|Lower bound|Upper bound): +(\S+)", re.MULTILINE)


def _proven(optimal: bool, bounds: Bounds, found: float) -> float | None:
    """Return the proven gap; a solution that the solver calls optimal is within the gap bound."""
    if optimal:
        return found if 0 <= found <= bounds.gap else bounds.gap
    return found if found < float("inf") else None


SOLVERS: Mapping[str, Callable[[Any, Bounds], tuple[str, float | None]]] = {
    "highs": _highs,
    "cbc": _cbc,
}
