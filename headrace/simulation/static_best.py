"""Which fixed choice of variants would have been best for these arrivals? Found by search.

The baseline that changes nothing while it runs. Candidates are the most accurate allocations for
demands between half the mean rate of the arrivals and beyond their highest second, so that each
is the best there is for some load (``control/policies/loki/allocate.py``); devices that it leaves
over are shared in proportion to load. Beside them stand every variant of each task alone and the
file's own static policies, and then mixes of two variants of a task next to the best
(``headrace/simulation/fixed_mixes.py``). Every one is simulated on the arrivals themselves; the
best has the largest

    yield  =  SLO attainment x accuracy      of all queries: complete, in time and right

It knows the whole of the arrivals beforehand, which no policy that serves them does. Routing and
dropping are those of ``loki``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from control.checks.allocation_check import items_per_s, rate
from control.policies import POLICIES, policy_named
from control.policies.loki.allocate import allocate
from control.policies.static import divide
from control.problem.problem import Allocation, PlanError, Problem
from headrace.arrivals.arrival_processes import Times
from headrace.config.pipeline_file import PipelineFile
from headrace.planning.dry_run import PlanRequest, problem
from headrace.simulation.fixed_mixes import mixes, singles
from headrace.simulation.simulation_run import Run
from schemas.pipeline import Policy

NAME = "static-best"
FIRST = 6  # candidates
NEXT = 4  # between the neighbours of the best of them
BEYOND = 1.15  # times the highest second
WITHIN = 0.5  # times the mean
ROUNDS = 2  # of mixes next to the best

Rows = Callable[[Sequence[Run]], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Tried:
    """A fixed choice, made for a demand (None: a mix or the file's own), and what it came to."""

    demand_qps: float | None
    policy: Policy
    row: Mapping[str, Any]

    @property
    def yielded(self) -> float:
        """Of all queries: complete, in time and right."""
        return yielded(self.row)


@dataclass(frozen=True, slots=True)
class StaticSearch:
    """What a search came to: the best choice, called ``static-best``, and all that were tried."""

    best: Policy
    tried: tuple[Tried, ...]  # by growing demand, the file's own last


def search(run: Run, rows: Rows) -> StaticSearch:
    """The best fixed choice for a run's arrivals; ``rows`` simulates.

    Raises ``PlanError`` where nothing that is profiled can serve the pipeline.
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
    fixed_ones = [p for p in run.file.pipeline.policies if p.kind == "static" and p.name != NAME]
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
    """The policies that differ from what was tried, with what they come to."""
    seen = [(each.policy.replicas, each.policy.batch) for each in known]
    fresh: list[Policy] = []
    for policy in policies:
        if (policy.replicas, policy.batch) not in seen:
            seen.append((policy.replicas, policy.batch))
            fresh.append(policy)
    found = rows([_with(run, policy) for policy in fresh]) if fresh else ()
    return [Tried(None, policy, row) for policy, row in zip(fresh, found, strict=True)]


def yielded(row: Mapping[str, Any]) -> float:
    """Of all queries: complete, in time and right, by a run's account.

    By query, not by item: a refused query is one bad item, whatever it would have made.
    """
    return (1 - (row["violation"] or 0.0)) * (row["accuracy"] or 0.0)


def rates_qps(times: Times) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Queries in each second."""
    last = int(times[-1]) + 1 if len(times) else 1
    counts, _ = np.histogram(times, bins=last, range=(0.0, float(last)))
    return counts.astype(np.float64)


def _try(run: Run, demands: Sequence[float], known: Sequence[Tried], rows: Rows) -> list[Tried]:
    """With the choices for more demands; equal choices are tried once."""
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
    """The policy that runs an allocation's variants for good, on all devices.

    Raises ``PlanError`` where devices are of several kinds: a fixed policy names none.
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
    loads = {r.key: items.get(r.key, 0.0) / rate(asked, r) for r in plan.replicas}
    slots = {task.name: task.slots for task in asked.pipeline.tasks}
    counts = {each.key: each.count for each in plan.replicas}
    caps = {each.key: slots[each.task] for each in plan.replicas}
    return divide(len(asked.devices), loads, caps, counts)


def _asked(file: PipelineFile, demand: float) -> Problem:
    """As ``headrace plan`` has it, but with the slots that there are."""
    asked = problem(file, PlanRequest(demands_qps=(demand,), policy="loki"))
    return replace(asked, demand_qps=demand, pipeline=file.pipeline)


def _with(run: Run, policy: Policy) -> Run:
    pipeline = replace(run.file.pipeline, policies=(*run.file.pipeline.policies, policy))
    return replace(run, file=replace(run.file, pipeline=pipeline), policy=policy.name)
