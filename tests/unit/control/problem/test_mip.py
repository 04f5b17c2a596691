"""control/problem/mip.py: solvers that cannot run."""

from pathlib import Path

import pulp
import pytest

from control.problem.mip import Bounds, solve_model
from control.problem.problem import PlanError, unmetered


def a_model() -> pulp.LpProblem:
    model = pulp.LpProblem("one", pulp.LpMaximize)
    model.setObjective(+model.add_variable("x", 0, 3, pulp.LpInteger))
    return model


@pytest.mark.parametrize("does", ["", "kill -9 $$", "exit 1", "exit 0"])
def test_a_solver_that_cannot_run_or_is_killed_is_a_plan_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    program = tmp_path / "cbc"
    if does:
        program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", str(program))
    with pytest.raises(PlanError, match=r"CBC gave no result .* `solver: highs`"):
        solve_model(a_model(), "cbc", Bounds(1e-6, 100), unmetered)
