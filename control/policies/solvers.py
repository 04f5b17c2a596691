"""Run the solver of a ``Solve`` effect, such as a policy's planner, and quick plans."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from control.policies import spec_of
from control.policies.class_slos import Planner, for_classes
from control.policies.option_fields import NODES, QUICK, SOLVE_WITHIN, with_options
from control.policies.replica_bounds import bounded, short_of, topped_up, without_least
from control.problem.lazy_references import object_named
from control.problem.problem import Allocation, PlanError, Problem

TABLE = "table"  # a ``TableProblem``; every other solver is a kind of policy, for a ``Problem``
SEARCH = "search"  # a ``SearchProblem``, one step of a session's search
SCHEDULE = "schedule"  # a ``ScheduleProblem``
MIX = "mix"  # a ``MixProblem``
TABLE_S = 0.1  # virtual seconds for one table
VIRTUAL_S = {TABLE: TABLE_S, SEARCH: 0.02, SCHEDULE: 0.01, MIX: 1.0}


def solve(solver: str, problem: Any) -> Any:
    """Return the allocation for a ``Problem``, the table for a ``TableProblem``, the next step of
    a search, a schedule, or the throughput of a mix.

    Planners are imported when they first run. Raises ``PlanError`` if there is no plan, and for an
    unknown kind.
    """
    if solver == TABLE:
        return object_named(spec_of(problem.kind).choose)(problem)
    if solver == SEARCH:
        return object_named("control.policies.compass.search.search_step:next_step")(problem)
    if solver == SCHEDULE:
        scheduled = object_named("control.policies.compass.schedule.scheduling:schedule")
        return scheduled(problem.instance, problem.objective)
    if solver == MIX:
        return object_named("control.policies.kairos.mix_play:mix_capacity")(problem)
    return for_classes(problem, partial(_bounded, object_named(spec_of(solver).plan)))


def _bounded(planner: Planner, problem: Problem) -> Allocation | None:
    plan = _planned(planner, asked := bounded(problem))
    if plan is None:
        return None
    plan, short = topped_up(plan, asked), short_of(problem)
    return replace(plan, feasible=False, binding=plan.binding or short) if short else plan


def _planned(planner: Planner, problem: Problem) -> Allocation | None:
    """Return the plan; if it would serve no query, the one without least numbers of replicas."""
    free = without_least(problem)
    if free is problem:
        return planner(problem)
    try:
        plan = planner(problem)
    except PlanError:
        return planner(free)
    if plan is not None and not plan.served_share:
        with suppress(PlanError):  # no time is left
            return planner(free)
    return plan


def has_quick(problem: Problem) -> bool:
    """Return whether the problem's policy makes quick plans."""
    return bool(spec_of(problem.policy.kind).quick) and bool(QUICK.of(problem.policy))


def quick(problem: Problem) -> Allocation | None:
    """Return the policy's quick plan within milliseconds, or None."""
    if not has_quick(problem):
        return None
    try:
        return for_classes(
            problem, partial(_bounded, object_named(spec_of(problem.policy.kind).quick))
        )
    except PlanError:  # the solve that follows reports why
        return None


def virtual_s(solver: str) -> float:
    """Return the virtual seconds of a solve; its real seconds differ between machines."""
    return VIRTUAL_S[solver] if solver in VIRTUAL_S else spec_of(solver).solve_s


def solve_limit_s(problem: Any) -> float:
    """Return the wall seconds that a live solve may take; infinite for a table."""
    if not isinstance(problem, Problem):
        return float("inf")
    return float(SOLVE_WITHIN.of(problem.policy))


def cut(problem: Problem, took_s: float) -> Problem:
    """Return the problem of a solve of ``took_s`` seconds, cut at its deadline: the solver explores
    the same fraction of its nodes. Simulations model the deadline in this way."""
    nodes = int(NODES.of(problem.policy) * solve_limit_s(problem) / took_s)
    return replace(problem, policy=with_options(problem.policy, nodes=max(1, nodes)))
