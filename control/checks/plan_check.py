"""Check a plan before it is in force: leases, slots, routes, memory, latency.

Every plan must keep its structure: one lease per worker, known tasks and variants, slots read and
open once, routes that lead to open slots and sum to 1, and an open slot of each task where the plan
calls itself feasible. With ``PlanConditions`` beyond the pipeline it must also keep

    memory       a worker that is to load a variant has the memory for it and for all that may be
                 on its device until then (make before break); leases that change no variant pass,
                 so that the slots of a lost worker are reassigned whatever their size
    latency      under a policy that keeps routes within the compute budget, no used path breaks
                 it where another leaf variant keeps it on every way to the leaf
    admitted     the workers of every task serve the load that ingress may admit

The last two are not checked where a variant or its fan-out was not profiled: such a plan is
possible. Best-effort plans and hand-written plans keep the same constraints, as none of them
concerns the demand; ``allocation_check.py`` has those that do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import isclose
from typing import TypeVar

from control.checks.violations import Constraint, Violation
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy, Task
from schemas.records import Lease, Plan
from schemas.variant_id import variant_id

T = TypeVar("T")
UNUSED = 1e-6  # a smaller share counts as none
ROUNDING = 1e-4  # relative


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConditions:
    """The conditions of a plan.

    ``devices`` and ``loaded`` ("task/variant") are by worker, ``memory`` is in bytes by device,
    ``held`` are the leases in force by worker, and ``multiplicity`` are observed fan-outs, which
    take precedence over the profile's.
    """

    pipeline: Pipeline
    policy: Policy
    profile: ProfileTable | None = None
    within_budget: bool = False  # the policy keeps routes within the compute budget
    memory: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    loaded: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, Lease] = field(default_factory=dict)
    multiplicity: Mapping[tuple[str, str], float] = field(default_factory=dict)


def check_plan(plan: Plan, conditions: PlanConditions) -> tuple[Violation, ...]:
    """Return the constraints that a plan violates."""
    broken = check_structure(plan, conditions.pipeline)
    if broken:
        return broken
    judge = _Judge(plan, conditions)
    try:
        figures = (*_latency(judge), *_admitted(judge))
    except ProfileError:
        figures = ()
    return (*_memory(judge), *figures)


# ---------------------------------------------------------------------- structure


def check_structure(plan: Plan, pipeline: Pipeline) -> tuple[Violation, ...]:
    """Return a plan's violations under any conditions: leases, slots, routes."""
    tasks = {task.name: task for task in pipeline.tasks}
    known = [lease for lease in plan.leases if lease.task in tasks]
    broken = [*_workers(plan, tasks), *_routes(plan)]
    for lease in known:
        broken += _lease(lease, tasks[lease.task])
    for task in pipeline.tasks:
        broken += _task(task, [lease for lease in known if lease.task == task.name])
    served = {lease.task for lease in known if lease.open_slot >= 0}
    if plan.feasible:
        broken += [Violation(Constraint.TASK_SERVED, (t,)) for t in tasks if t not in served]
    return tuple(broken)


def _workers(plan: Plan, tasks: Mapping[str, Task]) -> Iterator[Violation]:
    for worker, count in _repeated(lease.worker for lease in plan.leases):
        yield Violation(Constraint.ONE_LEASE, (worker,), count, 1)
    for lease in plan.leases:
        if lease.task not in tasks:
            yield Violation(Constraint.KNOWN_TASK, (lease.worker, lease.task))


def _lease(lease: Lease, task: Task) -> Iterator[Violation]:
    if lease.variant not in {variant.name for variant in task.variants}:
        yield Violation(Constraint.KNOWN_VARIANT, (lease.worker, _key(lease)))
    if lease.batch < 1:
        yield Violation(Constraint.BATCH, (lease.worker,), lease.batch, 1)
    if lease.open_slot >= 0 and lease.open_slot not in lease.slots:
        yield Violation(Constraint.OPEN_SLOT_READ, (lease.worker,), lease.open_slot)
    for slot in lease.slots:
        if not 0 <= slot < task.slots:
            yield Violation(Constraint.SLOT_RANGE, (lease.worker, task.name), slot, task.slots)


def _task(task: Task, leases: list[Lease]) -> Iterator[Violation]:
    open_slots = [lease.open_slot for lease in leases if lease.open_slot >= 0]
    for slot, count in _repeated(open_slots):
        yield Violation(Constraint.OPEN_ONCE, (task.name, str(slot)), count, 1)
    for slot, count in _repeated(slot for lease in leases for slot in lease.slots):
        yield Violation(Constraint.READ_ONCE, (task.name, str(slot)), count, 1)
    if len(open_slots) > task.slots:
        yield Violation(Constraint.TASK_SLOTS, (task.name,), len(open_slots), task.slots)


def _routes(plan: Plan) -> Iterator[Violation]:
    open_slots = {(each.task, each.open_slot) for each in plan.leases if each.open_slot >= 0}
    sums: dict[tuple[str, str], float] = {(task, ""): 0.0 for task, _ in sorted(open_slots)}
    for route in plan.routes:
        key = (route.task, route.source)
        sums[key] = sums.get(key, 0.0) + route.share
        if (route.task, route.slot) not in open_slots:
            yield Violation(Constraint.ROUTE_OPEN, (route.task, str(route.slot)))
        if not 0 <= route.share <= 1 + 1e-9:
            yield Violation(Constraint.ROUTE_SHARE, (route.task,), route.share, 1)
        if route.spare_qps < 0 or route.latency_s < 0:
            least = min(route.spare_qps, route.latency_s)
            yield Violation(Constraint.ROUTE_FIGURES, (route.task,), least)
    for (task, source), total in sums.items():
        if not isclose(total, 1.0, abs_tol=1e-6):
            yield Violation(Constraint.SUM_OF_ROUTES, (task, source), total, 1)
    for (task, slot, _), count in _repeated((r.task, r.slot, r.source) for r in plan.routes):
        yield Violation(Constraint.ROUTE_ONCE, (task, str(slot)), count, 1)


def _repeated(values: Iterable[T]) -> list[tuple[T, int]]:
    return [(value, count) for value, count in Counter(values).items() if count > 1]


# ---------------------------------------------------------------------- memory and figures


@dataclass(frozen=True)
class _Judge:
    """A plan with its conditions, and the lookups that the constraints need."""

    plan: Plan
    conditions: PlanConditions

    @cached_property
    def open_leases(self) -> dict[tuple[str, int], Lease]:
        """The leases with an open slot, by task and slot."""
        return {(x.task, x.open_slot): x for x in self.plan.leases if x.open_slot >= 0}

    def profiled(self) -> ProfileTable:
        """Return the profile; raise ``ProfileError`` where there is none."""
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
                least, most = found.get(_key(lease), (took_s, took_s))
                found[_key(lease)] = min(least, took_s), max(most, took_s)
        return found

    def sent(self, task: str, sender: str) -> dict[str, float]:
        """Return how the items that a sender makes for a task are shared among its variants."""
        own = [r for r in self.plan.routes if r.task == task and r.source == sender]
        shares: dict[str, float] = {}
        for route in own or [r for r in self.plan.routes if r.task == task and not r.source]:
            key = _key(self.open_leases[task, route.slot])
            shares[key] = shares.get(key, 0.0) + route.share
        return {key: share for key, share in shares.items() if share > UNUSED}

    def factor(self, key: str, child: str) -> float:
        """Return the items for a child that one item of a variant makes; raise ``ProfileError``."""
        seen = self.conditions.multiplicity.get((key, child))
        task, variant = variant_id(key)
        return self.profiled().children_mean(task, variant, child) if seen is None else seen


def _memory(judge: _Judge) -> Iterator[Violation]:
    conditions = judge.conditions
    for lease in judge.plan.leases:
        device, before = conditions.devices.get(lease.worker, ""), conditions.held.get(lease.worker)
        room, new = conditions.memory.get(device), _key(lease)
        loaded = conditions.loaded.get(lease.worker, "")
        if room is None or new in (loaded, _key(before) if before else ""):
            continue
        # The variant of the lease in force may be loading, whichever serves meanwhile.
        old = sorted({loaded, _key(before) if before else ""} - {""})
        size = _bytes(judge, new, device)
        together = size + sum(_bytes(judge, key, device) for key in old)
        if size > room:
            yield Violation(Constraint.MEMORY, (new, device), size, room)
        elif together > room:
            yield Violation(Constraint.SWAP_MEMORY, (lease.worker, new, *old), together, room)


def _bytes(judge: _Judge, key: str, device: str) -> int:
    """Return a variant's memory in bytes; 0 where it was not profiled."""
    task, variant = variant_id(key)
    try:
        return judge.profiled().entry(task, variant, device).memory_bytes
    except ProfileError:
        return 0


def _latency(judge: _Judge) -> Iterator[Violation]:
    conditions, pipeline = judge.conditions, judge.conditions.pipeline
    if not conditions.within_budget:
        return
    spans = {task.name: judge.spans(task.name) for task in pipeline.tasks}
    for path in _used_paths(judge):
        *way, leaf = (variant_id(key).task for key in path)
        left_s = judge.plan.settings.slo_s - (len(path) + 1) * pipeline.comm_s
        budget_s = pipeline.compute_share * left_s
        took_s = sum(spans[task][key][0] for task, key in zip((*way, leaf), path, strict=True))
        # The slowest of all ways to the leaf: a variant that fits behind it always fits.
        behind_s = sum(max(most for _, most in spans[task].values()) for task in way)
        fits = any(behind_s + most <= budget_s for _, most in spans[leaf].values())
        if way and fits and took_s > budget_s * (1 + ROUNDING):
            yield Violation(Constraint.LATENCY, path, took_s, budget_s)


def _used_paths(judge: _Judge) -> Iterator[tuple[str, ...]]:
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
            judge.factor(path[-1], child)  # without it routes go by throughput, not by budget
        ways.update({child: own for child in task.children})
        if not task.children:
            yield from own


def _admitted(judge: _Judge) -> Iterator[Violation]:
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


def _key(lease: Lease) -> str:
    return lease.key
