"""Plans for SLO classes, under every policy: every used path keeps the SLO of the tightest class.

Queues take the earliest deadline first, but routes know no classes: an item of any class may take
any path that the plan uses. With S the pipeline's SLO and S(c) those of the classes that count
(``control/estimation/class_mix.py``), the plan is made for

    min(S, min of S(c) over the classes that can be met)

A class can be met if for every leaf task a path of the fastest variants keeps its latency budget,
and the policy has a plan for its SLO. The plan is infeasible if a class that counts cannot be met,
or if a policy that plans without latencies has chosen variants that cannot meet it; ``binding``
names the class.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from control.policies import spec_of
from control.problem.candidates import FITS_S, Choices, choices, paths
from control.problem.problem import Allocation, PlanError, Problem
from profiles.measurements import ProfileError

Planner = Callable[[Problem], Allocation | None]


def for_classes(problem: Problem, planner: Planner) -> Allocation | None:
    """Return the plan for the tightest class that can be met; it names those that cannot.

    ``planner`` is called with the problem at that class's SLO. Raises its ``PlanError`` if there is
    no plan even for the pipeline's SLO.
    """
    unmet: dict[str, str] = {}
    for slo_s, names in _tightest_first(problem):
        asked = replace(problem, slo_s=slo_s)
        too_slow = "" if _is_fixed(problem) else _too_slow(asked)
        if too_slow:
            unmet.update(dict.fromkeys(names, too_slow))
            continue
        try:
            return _telling(planner(asked), asked, unmet, slo_s)
        except PlanError as error:
            unmet.update(dict.fromkeys(names, str(error)))
    return _telling(planner(problem), problem, unmet)


def _tightest_first(problem: Problem) -> Iterator[tuple[float, list[str]]]:
    """Yield the SLOs below the pipeline's, with their classes."""
    for slo_s in sorted({each for each in problem.classes.values() if each < problem.slo_s}):
        yield slo_s, [name for name, own in sorted(problem.classes.items()) if own == slo_s]


def _telling(
    plan: Allocation | None, asked: Problem, unmet: Mapping[str, str], slo_s: float = 0.0
) -> Allocation | None:
    """Return the plan with its classes' SLO and a sentence on the classes that it cannot meet."""
    if plan is None:
        return None
    slow = {name: why for name, why in _slow_classes(plan, asked) if name not in unmet}
    said = "; ".join(f"SLO class {name!r}: {why}" for name, why in {**unmet, **slow}.items())
    plan = replace(plan, slo_s=slo_s)
    if not said:
        return plan
    return replace(plan, feasible=False, binding="; ".join(filter(None, (said, plan.binding))))


def _too_slow(problem: Problem) -> str:
    """Return why no path of the fastest variants meets the problem's SLO, or ""."""
    if problem.profile is None:
        return ""
    try:
        every = choices(problem)
    except (PlanError, ProfileError):  # the planner reports what is missing, or needs no profile
        return ""
    if not problem.devices:
        return ""
    fastest_s = {
        task: min((config.latency_s for unit in units for config in unit.configs), default=0.0)
        for task, units in every.units.items()
    }
    for leaf, way in paths(every.tasks).items():
        took_s, left_s = sum(fastest_s[task] for task in way), _budget_s(every, problem, leaf)
        if took_s > left_s + FITS_S:
            return (
                f"the fastest path to {leaf} takes {took_s * 1e3:.3g} ms, and an SLO of "
                f"{problem.slo_s * 1e3:g} ms leaves {max(left_s, 0.0) * 1e3:.3g} ms for it; raise "
                "the SLO of the class, or add a faster variant"
            )
    return ""


def _budget_s(every: Choices, problem: Problem, leaf: str) -> float:
    """Return the latency budget of a path. Policies that decide for each batch or query reserve no
    part of the SLO for queues."""
    spec = spec_of(problem.policy.kind)
    whole = spec.choose or spec.dispatch
    return every.budget_s[leaf] / (problem.pipeline.compute_share if whole else 1.0)


def _is_fixed(problem: Problem) -> bool:
    """Return whether the policy plans without latencies, as ``static`` does."""
    spec = spec_of(problem.policy.kind)
    return not (spec.follows_demand or spec.dispatch)


def _slow_classes(plan: Allocation, problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield the classes that a fixed plan's variants cannot meet, even in the smallest batches."""
    profile = problem.profile
    if profile is None or not _is_fixed(problem) or not plan.replicas:
        return
    slowest_s: dict[str, float] = {}
    for each in plan.replicas:
        device = next((name for name in problem.devices if each.may_run_on(name)), "")
        try:
            entry = profile.entry(each.task, each.variant, device)
            took_s = profile.latency_s(
                each.task, each.variant, device, entry.latency[0].batch, problem.policy.latency
            )
        except ProfileError:
            return
        slowest_s[each.task] = max(slowest_s.get(each.task, 0.0), took_s)
    for leaf, way in paths(problem.pipeline.tasks).items():
        took_s = sum(slowest_s.get(task, 0.0) for task in way)
        for name, slo_s in sorted(problem.classes.items()):
            left_s = slo_s - (len(way) + 1) * problem.pipeline.comm_s
            if took_s > left_s + FITS_S:
                yield (
                    name,
                    (
                        f"the plan's variants take {took_s * 1e3:.3g} ms to {leaf}, and its SLO of "
                        f"{slo_s * 1e3:g} ms leaves {max(left_s, 0.0) * 1e3:.3g} ms; name faster "
                        "variants, or raise the SLO of the class"
                    ),
                )
