"""Check a plan before it is in force: leases, slots, routes, memory, latency.

Every plan must keep its structure: one lease per worker, known tasks and variants, slots read and
open once, routes that lead to open slots and sum to 1, and an open slot of each task if the plan is
marked feasible. With ``PlanConditions`` beyond the pipeline it must also keep

    memory       a worker that is to load a variant has the memory for it, for the further variants
                 that it chooses among, and for all variants that may be on its device until then
                 (make before break); leases that change no variant pass, so that the slots of a
                 lost worker can always be reassigned
    latency      the ``LatencyBound``s of the policy
    admitted     the workers of every task serve the load that ingress may admit

The last two are not checked if a variant or its fan-out was not profiled, because such plans are
permitted. Best-effort plans and hand-written plans keep the same constraints, because none of them
concerns the demand; ``allocation_check.py`` has those that do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import product

from control.checks.structure_check import check_structure
from control.checks.violations import Constraint, Violation
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease, Plan
from schemas.variant_id import variant_id

UNUSED = 1e-6  # a smaller share counts as none
ROUNDING = 1e-4  # relative


class LatencyBound(Enum):
    """A guarantee of plans about latency, which also holds on the way to an allocation.

    ``ROUTED``    by the policy's routing: no used path exceeds the compute budget if another leaf
                  variant keeps it on every way to the leaf
    ``ASSIGNED``  by planners that guarantee a demand: a worker gets a variant only if a path
                  through it keeps the compute budget, or if it is the task's fastest one there
    ``BATCH``     by policies whose workers choose a variant for every batch: the lease's variant,
                  which they run without tables, takes no longer than the SLO less hops
    """

    ROUTED = "routed"
    ASSIGNED = "assigned"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConditions:
    """The conditions of a plan.

    ``devices``, ``loaded`` ("task/variant") and ``beside``, the further variants that a worker may
    hold, are by worker; ``sets`` are the variants that every worker of a task is to hold;
    ``memory`` is in bytes by device, ``held`` are the leases in force by worker, and
    ``multiplicity`` are observed fan-outs, which take precedence over the profile's.
    """

    pipeline: Pipeline
    policy: Policy
    profile: ProfileTable | None = None
    latency: frozenset[LatencyBound] = frozenset()
    memory: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    loaded: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, Lease] = field(default_factory=dict)
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    multiplicity: Mapping[tuple[str, str], float] = field(default_factory=dict)


def check_plan(plan: Plan, conditions: PlanConditions) -> tuple[Violation, ...]:
    """Return the constraints that a plan violates."""
    broken = check_structure(plan, conditions.pipeline)
    if broken:
        return broken
    judge = _PlanJudge(plan, conditions)
    try:
        figures = (*_latency(judge), *_admitted(judge))
    except ProfileError:
        figures = ()
    return (*_memory(judge), *figures)


# ---------------------------------------------------------------------- memory and figures


@dataclass(frozen=True)
class _PlanJudge:
    """A plan with its conditions, and the lookups that the constraints need."""

    plan: Plan
    conditions: PlanConditions

    @cached_property
    def open_leases(self) -> dict[tuple[str, int], Lease]:
        """The leases with an open slot, by task and slot."""
        return {(x.task, x.open_slot): x for x in self.plan.leases if x.open_slot >= 0}

    def profiled(self) -> ProfileTable:
        """Return the profile; raise ``ProfileError`` if there is none."""
        if self.conditions.profile is None:
            raise ProfileError("nothing was profiled")
        return self.conditions.profile

    def seconds(self, lease: Lease, quantile: str) -> float:
        """Return the latency of a lease's batch in seconds; raise ``ProfileError``."""
        device = self.conditions.devices.get(lease.worker, "")
        return self.profiled().latency_s(lease.task, lease.variant, device, lease.batch, quantile)

    def spans(self, task: str) -> dict[str, tuple[float, float]]:
        """Return the fastest and slowest latency of each variant that serves a task, in seconds."""
        found: dict[str, tuple[float, float]] = {}
        for (name, _), lease in self.open_leases.items():
            if name == task:
                took_s = self.seconds(lease, self.conditions.policy.latency)
                least, most = found.get(lease.key, (took_s, took_s))
                found[lease.key] = min(least, took_s), max(most, took_s)
        return found

    def budget_s(self, way: Sequence[str]) -> float:
        """Return the compute budget in seconds of a way through tasks."""
        pipeline = self.conditions.pipeline
        left_s = self.plan.tightest_slo_s - (len(way) + 1) * pipeline.comm_s
        return pipeline.compute_share * left_s

    def fastest_s(self, task: str, worker: str = "") -> float:
        """Return the least latency of a task's profiled variants on a worker's device, or on any
        device of the plan; 0 if none was profiled."""
        devices = self.conditions.devices
        on = {devices.get(worker, "")} if worker else set(devices.values())
        found_s = []
        for variant, device in product(self.conditions.pipeline.task(task).variants, on):
            with suppress(ProfileError):
                entry = self.profiled().entry(task, variant.name, device)
                quantile = self.conditions.policy.latency
                first = entry.latency[0].batch
                found_s.append(
                    self.profiled().latency_s(task, variant.name, device, first, quantile)
                )
        return min(found_s, default=0.0)

    def sent(self, task: str, sender: str) -> dict[str, float]:
        """Return the shares of a task's variants in the items that a sender makes for it."""
        own = [r for r in self.plan.routes if r.task == task and r.source == sender]
        shares: dict[str, float] = {}
        for route in own or [r for r in self.plan.routes if r.task == task and not r.source]:
            key = self.open_leases[task, route.slot].key
            shares[key] = shares.get(key, 0.0) + route.share
        return {key: share for key, share in shares.items() if share > UNUSED}

    def factor(self, key: str, child: str) -> float:
        """Return the items for a child that one item of a variant makes; raise ``ProfileError``."""
        seen = self.conditions.multiplicity.get((key, child))
        task, variant = variant_id(key)
        return self.profiled().children_mean(task, variant, child) if seen is None else seen


def _memory(judge: _PlanJudge) -> Iterator[Violation]:
    conditions = judge.conditions
    for lease in judge.plan.leases:
        device, before = conditions.devices.get(lease.worker, ""), conditions.held.get(lease.worker)
        room = conditions.memory.get(device)
        loaded = conditions.loaded.get(lease.worker, "")
        # The variant of the lease in force may still be loading.
        old = {loaded, before.key if before else "", *conditions.beside.get(lease.worker, ())}
        new = {lease.key, *conditions.sets.get(lease.task, ())}
        if room is None or new <= old:
            continue
        size = sum(_bytes(judge, key, device) for key in new)
        left = sorted(old - new - {""})
        together = size + sum(_bytes(judge, key, device) for key in left)
        if size > room:
            yield Violation(Constraint.MEMORY, (" and ".join(sorted(new)), device), size, room)
        elif together > room:
            subject = (lease.worker, " and ".join(sorted(new)), *left)
            yield Violation(Constraint.SWAP_MEMORY, subject, together, room)


def _bytes(judge: _PlanJudge, key: str, device: str) -> int:
    """Return a variant's memory in bytes; 0 if it was not profiled."""
    task, variant = variant_id(key)
    try:
        return judge.profiled().entry(task, variant, device).memory_bytes
    except ProfileError:
        return 0


def _latency(judge: _PlanJudge) -> Iterator[Violation]:
    for bound in sorted(judge.conditions.latency, key=lambda each: each.value):
        yield from _LATENCY[bound](judge)


def _batches(judge: _PlanJudge) -> Iterator[Violation]:
    """Yield variants whose batch takes longer than the SLO less the hops of a query."""
    pipeline = judge.conditions.pipeline
    most_s = judge.plan.tightest_slo_s - (len(pipeline.tasks) + 2) * pipeline.comm_s
    for lease in judge.open_leases.values():
        took_s = judge.seconds(lease, judge.conditions.policy.latency)
        if took_s > most_s * (1 + ROUNDING):
            yield Violation(Constraint.LATENCY, (lease.key,), took_s, most_s)


def _assigned(judge: _PlanJudge) -> Iterator[Violation]:
    """Yield newly assigned variants that are on no path within the budget."""
    pipeline = judge.conditions.pipeline
    for lease in judge.open_leases.values():
        before = judge.conditions.held.get(lease.worker)
        if before is not None and (before.key, before.batch) == (lease.key, lease.batch):
            continue
        took_s = judge.seconds(lease, judge.conditions.policy.latency)
        if took_s <= judge.fastest_s(lease.task, lease.worker) * (1 + ROUNDING):
            continue
        ways = [way for way in _ways(pipeline, pipeline.root.name) if lease.task in way]
        over = [
            (took_s + sum(judge.fastest_s(t) for t in way if t != lease.task), judge.budget_s(way))
            for way in ways
        ]
        if all(least_s > budget_s * (1 + ROUNDING) for least_s, budget_s in over):
            yield Violation(Constraint.LATENCY, (lease.key,), *min(over))


def _ways(pipeline: Pipeline, task: str) -> Iterator[tuple[str, ...]]:
    """Yield the tasks of every way from a task to a leaf."""
    children = pipeline.task(task).children
    if not children:
        yield (task,)
    for child in children:
        for way in _ways(pipeline, child):
            yield (task, *way)


def _routed(judge: _PlanJudge) -> Iterator[Violation]:
    """Yield used paths that exceed the budget although another leaf variant keeps it."""
    spans = {task.name: judge.spans(task.name) for task in judge.conditions.pipeline.tasks}
    for path in _used_paths(judge):
        *way, leaf = (variant_id(key).task for key in path)
        budget_s = judge.budget_s(path)
        took_s = sum(spans[task][key][0] for task, key in zip((*way, leaf), path, strict=True))
        # The slowest of all ways to the leaf: a variant that fits behind it always fits.
        behind_s = sum(max(most for _, most in spans[task].values()) for task in way)
        fits = any(behind_s + most <= budget_s for _, most in spans[leaf].values())
        if way and fits and took_s > budget_s * (1 + ROUNDING):
            yield Violation(Constraint.LATENCY, path, took_s, budget_s)


_LATENCY: Mapping[LatencyBound, Callable[[_PlanJudge], Iterator[Violation]]] = {
    LatencyBound.ROUTED: _routed,
    LatencyBound.ASSIGNED: _assigned,
    LatencyBound.BATCH: _batches,
}


def _used_paths(judge: _PlanJudge) -> Iterator[tuple[str, ...]]:
    """Yield the paths of variants, from the root to a leaf task, that routes use."""
    pipeline = judge.conditions.pipeline
    ways: dict[str, list[tuple[str, ...]]] = {pipeline.root.name: [()]}
    for task in pipeline.tasks:
        own = [
            (*way, key)
            for way in ways.get(task.name, [])
            for key in judge.sent(task.name, way[-1] if way else "")
        ]
        for path, child in product(own, task.children):
            judge.factor(path[-1], child)  # raises without one: routes go by throughput then
        ways.update({child: own for child in task.children})
        if not task.children:
            yield from own


def _admitted(judge: _PlanJudge) -> Iterator[Violation]:
    admitted = judge.plan.capacity_qps
    if not admitted:
        return
    items = {judge.conditions.pipeline.root.name: 1.0}
    for task in judge.conditions.pipeline.tasks:
        shares = judge.sent(task.name, "")
        for child in task.children:
            made = sum(share * judge.factor(key, child) for key, share in shares.items())
            items[child] = items[task.name] * made
        serving = [x for (name, _), x in judge.open_leases.items() if name == task.name]
        able = sum(x.batch / judge.seconds(x, judge.conditions.policy.rate) for x in serving)
        if admitted * items[task.name] > able * (1 + ROUNDING):
            limit = able / items[task.name]
            yield Violation(Constraint.ADMITTED, (task.name,), admitted, limit)
