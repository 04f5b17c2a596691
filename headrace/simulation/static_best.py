"""Search the fixed choice of variants that is best for given arrivals: the static baseline.

Candidates are the most accurate allocations (``control/policies/loki/allocate.py``) for demands
from half the arrivals' mean rate to 1.15 times their busiest second, each optimal for its load;
devices left over are shared in proportion to load. Further candidates are every variant of each
task alone, the file's static policies, and mixes of two variants of a task next to the best
(``headrace/simulation/fixed_mixes.py``). Each is simulated on the arrivals; the best has the
largest

    yield  =  SLO attainment x accuracy      of all queries: complete, in time and right

The search knows all arrivals beforehand, unlike a policy that serves them. Routing and dropping
are those of ``loki``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from control.checks.allocation_check import device_rate, items_per_s
from control.policies import POLICIES, fixed_policies, policy_named
from control.policies.loki.allocate import allocate
from control.policies.static import divide
from control.problem.problem import Allocation, PlanError, Problem
from headrace.arrivals.arrival_processes import Times
from headrace.config.pipeline_file import PipelineFile
from headrace.planning.dry_run import PlanRequest, problem
from headrace.simulation.fixed_mixes import mixes, singles
from headrace.simulation.run_input import Run
from schemas.pipeline import Policy

NAME = "static-best"
FIRST = 6  # candidates
NEXT = 4  # further candidates between the neighbours of the best
BEYOND = 1.15  # largest demand over the busiest second
WITHIN = 0.5  # smallest demand over the mean rate
ROUNDS = 2  # rounds of mixes next to the best

Rows = Callable[[Sequence[Run]], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Tried:
    """A fixed choice, its demand (None: a mix or the file's own), and the row of its run."""

    demand_qps: float | None
    policy: Policy
    row: Mapping[str, Any]

    @property
    def yielded(self) -> float:
        """The yield of the choice, a fraction of all queries."""
        return yielded(self.row)


@dataclass(frozen=True, slots=True)
class StaticSearch:
    """The result of a search: the best choice, named ``static-best``, and all choices tried."""

    best: Policy
    tried: tuple[Tried, ...]  # by ascending demand, then those without one


def search(run: Run, rows: Rows) -> StaticSearch:
    """Return the best fixed choice for a run's arrivals; ``rows`` simulates runs.

    Raises ``PlanError`` if no profiled variants can serve the pipeline.
    """
    rates = rates_qps(run.arrivals.drawn(np.random.default_rng(run.seed)))
    low, high = WITHIN * rates.mean(), BEYOND * rates.max()
    demands = np.linspace(low, high, FIRST).tolist()
    tried = _try(run, demands, (), rows)
    best = max(tried, key=lambda each: each.yielded)
    at = demands.index(best.demand_qps)
    about = demands[max(0, at - 1)], demands[min(FIRST - 1, at + 1)]
    between = np.linspace(*about, NEXT + 2)[1:-1].tolist()
    tried = _try(run, between, tried, rows)
    asked = _asked(run.file, float(rates.mean()))
    tried += _more(run, singles(asked, f"{NAME} of one variant per task"), tried, rows)
    own = policy_named(run.file.pipeline, "static") or POLICIES["static"].usual
    fixed_ones = [p for p in fixed_policies(run.file.pipeline) if p.name != NAME]
    for policy in {each.name: each for each in (own, *fixed_ones)}.values():
        tried.append(Tried(None, policy, rows([replace(run, policy=policy.name)])[0]))
    for _ in range(ROUNDS):
        best = max(tried, key=lambda each: each.yielded)
        better = _more(run, mixes(asked, best.policy, f"{NAME} by a mix"), tried, rows)
        tried += better
        if all(each.yielded <= best.yielded for each in better):
            break
    best = max(tried, key=lambda each: each.yielded)
    return StaticSearch(replace(best.policy, name=NAME), tuple(tried))


def _more(run: Run, policies: Sequence[Policy], known: Sequence[Tried], rows: Rows) -> list[Tried]:
    """Simulate the policies that differ from those tried; return them with their rows."""
    seen = [(each.policy.replicas, each.policy.batch) for each in known]
    fresh: list[Policy] = []
    for policy in policies:
        if (policy.replicas, policy.batch) not in seen:
            seen.append((policy.replicas, policy.batch))
            fresh.append(policy)
    found = rows([_with(run, policy) for policy in fresh]) if fresh else ()
    return [Tried(None, policy, row) for policy, row in zip(fresh, found, strict=True)]


def yielded(row: Mapping[str, Any]) -> float:
    """Return the yield of a run's row: (1 - violation) x accuracy.

    The violation is by query, not by item: a refused query counts once, not by its items.
    """
    return (1 - (row["violation"] or 0.0)) * (row["accuracy"] or 0.0)


def rates_qps(times: Times) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the number of queries in each second, shape (seconds,)."""
    last = int(times[-1]) + 1 if len(times) else 1
    counts, _ = np.histogram(times, bins=last, range=(0.0, float(last)))
    return counts.astype(np.float64)


def _try(run: Run, demands: Sequence[float], known: Sequence[Tried], rows: Rows) -> list[Tried]:
    """Return ``known`` with the choices for further demands, by demand; try equal ones once."""
    seen = [(each.policy.replicas, each.policy.batch) for each in known]
    fresh: list[tuple[float, Policy]] = []
    for demand in demands:
        asked = _asked(run.file, demand)
        policy = fixed(allocate(asked), asked, f"{NAME} for {demand:.0f}/s")
        if (policy.replicas, policy.batch) not in seen:
            seen.append((policy.replicas, policy.batch))
            fresh.append((demand, policy))
    found = rows([_with(run, policy) for _, policy in fresh]) if fresh else ()
    made = [Tried(q, policy, row) for (q, policy), row in zip(fresh, found, strict=True)]
    return sorted([*known, *made], key=lambda each: each.demand_qps or 0.0)


def fixed(plan: Allocation, asked: Problem, name: str) -> Policy:
    """Return the static policy that runs an allocation's variants on all devices.

    Raises ``PlanError`` if devices are of several kinds: a static policy names no devices.
    """
    if any(each.device for each in plan.replicas):
        raise PlanError(
            f"{NAME} needs devices of one kind, and the cluster has several; write a static policy "
            "with its replicas into the pipeline file"
        )
    return replace(
        POLICIES["loki"].usual,
        name=name,
        kind="static",
        replicas=_on_all_devices(plan, asked),
        batch={each.key: each.batch for each in plan.replicas},
    )


def _on_all_devices(plan: Allocation, asked: Problem) -> dict[str, int]:
    items = {key: each for (key, _), each in items_per_s(plan, asked).items()}
    loads = {r.key: items.get(r.key, 0.0) / device_rate(asked, r) for r in plan.replicas}
    slots = {task.name: task.slots for task in asked.pipeline.tasks}
    counts = {each.key: each.count for each in plan.replicas}
    caps = {each.key: slots[each.task] for each in plan.replicas}
    return divide(len(asked.devices), loads, caps, counts)


def _asked(file: PipelineFile, demand: float) -> Problem:
    """Return the problem of ``headrace plan``, but limited to the file's slots."""
    asked = problem(file, PlanRequest(demands_qps=(demand,), policy="loki"))
    return replace(asked, demand_qps=demand, pipeline=file.pipeline)


def _with(run: Run, policy: Policy) -> Run:
    pipeline = replace(run.file.pipeline, policies=(*run.file.pipeline.policies, policy))
    return replace(run, file=replace(run.file, pipeline=pipeline), policy=policy.name)
