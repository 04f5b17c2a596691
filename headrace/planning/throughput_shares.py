"""Shares of paths for plans whose policy names none: those of throughput routing.

``static``, ``proteus`` and policies of other packages say how many workers run which variant; their
traffic is shared among the workers of a task by what each can serve.
"""

from dataclasses import replace
from itertools import product
from math import prod

from control.checks.allocation_check import accuracy_of, rate
from control.policies.option_fields import TRAFFIC
from control.problem.candidates import paths
from control.problem.problem import Allocation, PathShare, Problem, Replicas
from profiles.measurements import ProfileError


def with_shares(plan: Allocation, problem: Problem) -> Allocation:
    """Return the plan with shares and accuracy; as it is where it has shares or traffic of its
    own, a task has no worker or no profile, or the branches are untied."""
    named = plan.shares or problem.pipeline.branches == "untied" or TRAFFIC.of(problem.policy)
    if named or problem.profile is None:
        return plan
    try:
        able = {each: each.count * rate(problem, each) for each in plan.replicas}
        shares = tuple(_shares(able, problem))
        found = replace(plan, shares=shares)
        return replace(found, accuracy=accuracy_of(found, problem)) if shares else plan
    except ProfileError:
        return plan


def _shares(able: dict[Replicas, float], problem: Problem) -> list[PathShare]:
    """Return a share for every way through the variants to every leaf task."""
    total: dict[str, float] = {}
    for each, items_per_s in able.items():
        total[each.task] = total.get(each.task, 0.0) + items_per_s
    return [
        PathShare(
            path=tuple(each.key for each in chosen),
            share=prod(able[each] / total[each.task] for each in chosen),
            devices=tuple(each.device for each in chosen),
        )
        for way in paths(problem.pipeline.tasks).values()
        for chosen in product(*([r for r in able if r.task == task] for task in way))
    ]
