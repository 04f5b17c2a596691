"""Refuse whole-pipeline plans for the policies that plan sessions."""

from typing import NoReturn

from control.problem.problem import PlanError, Problem


def allocate(problem: Problem) -> NoReturn:
    """Raise ``PlanError``: these policies plan sessions one by one."""
    raise PlanError(
        f"policy {problem.policy.name!r} plans sessions (`headrace search`, `headrace schedule`) "
        "and cannot run the whole pipeline; name another policy, such as static"
    )
