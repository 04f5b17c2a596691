"""Check an allocation against its problem, independently of its planner.

The check shares no code with planners: it computes rates, latencies, multiplicities and budgets
from the problem's profile (``pyproject.toml`` forbids imports either way). The constraints depend
on the allocation's guarantee:

    always            devices of each kind, slots of each task, bounds of its replicas, memory
                      of each device for all variants that it holds, replicas listed once and at
                      least one of each
    mode "" without   no further ones: hand-written replicas (``static``) and those that follow
    shares, or none   tables (``ramsis``) guarantee no demand, and a plan that serves no part of
    of it served      the demand guarantees no latency
    with shares       paths from the root to a leaf over listed, profiled replicas; shares that sum
                      to the served share and keep ties and bounds; the latency of every used path
                      within its compute budget; capacity for the items of the shares; the stated
                      accuracy
    mode without      capacity for the items that the demand makes at each task, by the variants
    shares            observed there (``proteus``, which plans tasks separately, without paths)

A best-effort allocation guarantees only the part of the demand that it serves. An allocation that
states an accuracy must state the paths that give it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

from control.checks.violations import Constraint, Violation
from control.problem.problem import HARDWARE, Allocation, PathShare, Problem, Replicas
from profiles.measurements import Entry, ProfileError
from schemas.pipeline import Task
from schemas.variant_id import variant_id

TOLERANCE = 1e-5  # relative: the tolerance of solvers, and sums of floats
UNUSED = TOLERANCE / 10  # a smaller share counts as none

Host = tuple[str, str]  # "task/variant", kind of device


def check_allocation(plan: Allocation, problem: Problem) -> tuple[Violation, ...]:
    """Return the constraints that an allocation violates."""
    judge = _AllocationJudge(plan, problem)
    broken = (*_resources(judge), *_listed(judge))
    if not plan.shares and (not plan.mode or plan.served_share == 0):
        return broken
    unknown = tuple(_unprofiled(judge)) or (*_astray(judge), *_fan_outs(judge))
    if broken or unknown:  # variants without a profile allow no further computation
        return (*broken, *unknown)
    if not plan.shares and plan.accuracy is None:
        return (*_task_capacity(judge), *_path_latency(judge))
    return (*_sums(judge), *_latency(judge), *_capacity(judge), *_accuracy(judge))


def check_resources(plan: Allocation, problem: Problem) -> tuple[Violation, ...]:
    """Return the devices, slots and memory that an allocation uses beyond a problem's, for any
    demand."""
    return tuple(_resources(_AllocationJudge(plan, problem)))


def items_per_s(plan: Allocation, problem: Problem) -> dict[Host, float]:
    """Return items per second at each variant on each kind of device, by the plan's shares.

    Raises ``KeyError`` for an invalid path.
    """
    judge = _AllocationJudge(plan, problem)
    found: dict[Host, float] = defaultdict(float)
    for prefix, share in judge.prefixes().items():
        found[prefix[-1]] += problem.demand_qps * share * judge.items(prefix)
    return dict(found)


def device_rate(problem: Problem, replicas: Replicas) -> float:
    """Return items per second of one device that runs these replicas' batches."""
    return _AllocationJudge(Allocation((replicas,)), problem).rate(replicas)


@dataclass(frozen=True)
class _AllocationJudge:
    """An allocation with its problem, and the lookups that the constraints need."""

    plan: Allocation
    problem: Problem

    @cached_property
    def hosts(self) -> dict[Host, Replicas]:
        """The replicas by variant and kind of device."""
        return {(r.key, r.device): r for r in self.plan.replicas}

    @cached_property
    def ways(self) -> dict[str, tuple[str, ...]]:
        """The tasks on the way to each leaf task."""
        return dict(_ways(self.problem.pipeline.root, self.problem))

    def entry(self, host: Host) -> Entry:
        """Return the profile of the variant on the kind of device; raise ``ProfileError``."""
        task, variant = variant_id(host[0])
        names = [d for d in self.problem.devices if self.hosts[host].may_run_on(d)]
        if self.problem.profile is None:
            raise ProfileError(
                f"{host[0]} has no profile; run `headrace profile` or name its profile "
                "under profiles"
            )
        if not names:
            raise ProfileError(f"there is no device for {host[0]}")
        return self.problem.profile.entry(task, variant, names[0])

    def seconds(self, host: Host, batch: int, quantile: str) -> float:
        """Return a batch's latency in seconds at a quantile of its profile."""
        entry = self.entry(host)
        assert self.problem.profile is not None
        return self.problem.profile.latency_s(
            entry.task, entry.variant, entry.device, batch, quantile
        )

    def rate(self, replicas: Replicas) -> float:
        """Return items per second of one device; raise ``ProfileError``."""
        host = (replicas.key, replicas.device)
        return replicas.batch / self.seconds(host, replicas.batch, self.problem.policy.rate)

    def hosts_of(self, share: PathShare) -> tuple[Host, ...]:
        """Return the variants of a path with their kinds of device."""
        known = len(share.devices) == len(share.path)
        kinds = share.devices if known else ("",) * len(share.path)
        return tuple(zip(share.path, kinds, strict=True))

    def prefixes(self) -> dict[tuple[Host, ...], float]:
        """Return the share of every path from the root to any task.

        With tied branches the shares of each leaf task sum to that of a common prefix; the first
        leaf's are used.
        """
        tied = self.problem.pipeline.branches == "tied"
        shares: dict[tuple[Host, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for share in self.plan.shares:
            hosts = self.hosts_of(share)
            leaf = _task(hosts[-1])
            for length in range(1, len(hosts) + 1):
                shares[hosts[:length]][leaf] += share.share
        return {
            prefix: next(iter(by_leaf.values())) if tied else sum(by_leaf.values())
            for prefix, by_leaf in shares.items()
        }

    def items(self, prefix: tuple[Host, ...]) -> float:
        """Return the items of one query that reach the end of a path."""
        made = 1.0
        for above, below in pairwise(prefix):
            child = _task(below)
            seen = self.problem.multiplicity.get((above[0], child))
            made *= self.entry(above).children[child].mean if seen is None else seen
        return made


def _ways(task: Task, problem: Problem) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each leaf task with the tasks on the way to it."""
    if not task.children:
        yield task.name, (task.name,)
    for child in task.children:
        for leaf, way in _ways(problem.pipeline.task(child), problem):
            yield leaf, (task.name, *way)


def _task(host: Host) -> str:
    return variant_id(host[0]).task


def _resources(judge: _AllocationJudge) -> Iterator[Violation]:
    yield from _devices(judge)
    for task in judge.problem.pipeline.tasks:
        count = sum(r.count for r in judge.plan.replicas if r.task == task.name)
        if count > task.slots:
            yield Violation(Constraint.TASK_SLOTS, (task.name,), count, task.slots)
        if task.most is not None and count > task.most:
            yield Violation(Constraint.TASK_REPLICAS, (task.name,), count, task.most)
    yield from _memory(judge)


def _devices(judge: _AllocationJudge) -> Iterator[Violation]:
    there = len(judge.problem.devices)
    if judge.plan.devices_used > there:
        yield Violation(Constraint.DEVICES, (), judge.plan.devices_used, there)
    for kind in {r.on: r for r in judge.plan.replicas if r.on}.values():
        used = sum(r.count for r in judge.plan.replicas if r.on == kind.on)
        own = sum(kind.may_run_on(device) for device in judge.problem.devices)
        if used > own:
            yield Violation(Constraint.DEVICES, (kind.device,), used, own)


def _memory(judge: _AllocationJudge) -> Iterator[Violation]:
    """Yield replicas whose variants exceed the memory of a worker on which they may be placed."""
    for replicas in judge.hosts.values():
        short: list[tuple[int, str, int]] = []
        for device in dict.fromkeys(judge.problem.devices):
            room = judge.problem.memory.get(device)
            if room is None or not replicas.may_run_on(device):
                continue
            with suppress(ProfileError):  # not measured there
                if (size := _bytes(judge.problem, replicas, device)) > room:
                    short.append((room, device, size))
        if short:
            room, device, size = min(short)
            yield Violation(Constraint.MEMORY, (replicas.key, device), size, room)


def _bytes(problem: Problem, replicas: Replicas, device: str) -> int:
    """Return the memory in bytes of all variants that a worker holds; raise ``ProfileError``."""
    if problem.profile is None:
        raise ProfileError(f"there is no profile of {replicas.key}")
    names = (replicas.variant, *replicas.beside)
    return sum(problem.profile.entry(replicas.task, name, device).memory_bytes for name in names)


def _listed(judge: _AllocationJudge) -> Iterator[Violation]:
    for replicas in judge.plan.replicas:
        if replicas.count < 1:
            yield Violation(Constraint.REPLICAS, (replicas.key,), replicas.count, 1)
    for (key, _), count in Counter((r.key, r.device) for r in judge.plan.replicas).items():
        if count > 1:
            yield Violation(Constraint.LISTED_ONCE, (key,), count, 1)
    tasks = judge.problem.pipeline.tasks
    enough = sum(task.least for task in tasks) <= len(judge.problem.devices)
    for task in tasks if enough and judge.plan.feasible else ():
        count = sum(r.count for r in judge.plan.replicas if r.task == task.name)
        if task.least > 1 and count < task.least:  # 1: a branch without queries needs none
            yield Violation(Constraint.TASK_REPLICAS, (task.name,), count, task.least)


def _unprofiled(judge: _AllocationJudge) -> Iterator[Violation]:
    for host, replicas in judge.hosts.items():
        try:
            judge.seconds(host, replicas.batch, judge.problem.policy.latency)
        except ProfileError:
            yield Violation(Constraint.PROFILED, (replicas.key,), replicas.batch)


def _astray(judge: _AllocationJudge) -> Iterator[Violation]:
    """Yield invalid paths with traffic, and variants with traffic but no replica."""
    for share in judge.plan.shares:
        hosts = judge.hosts_of(share)
        way = judge.ways.get(_task(hosts[-1])) if hosts else None
        if tuple(map(_task, hosts)) != way:
            yield Violation(Constraint.PATH, share.path)
        for host in hosts:
            if share.share > 0 and host not in judge.hosts:
                yield Violation(Constraint.REPLICA_OF_PATH, (host[0],))


def _fan_outs(judge: _AllocationJudge) -> Iterator[Violation]:
    """Yield fan-outs on used paths that were neither profiled nor observed."""
    hops = {hop for share in judge.plan.shares for hop in pairwise(judge.hosts_of(share))}
    for above, below in sorted(hops):
        child = _task(below)
        observed = (above[0], child) in judge.problem.multiplicity
        if above in judge.hosts and not observed and child not in judge.entry(above).children:
            yield Violation(Constraint.FAN_OUT, (above[0], child))


def _sums(judge: _AllocationJudge) -> Iterator[Violation]:
    plan, served = judge.plan, judge.plan.served_share
    if plan.feasible and abs(served - 1) > TOLERANCE:
        yield Violation(Constraint.SERVED_SHARE, (), served, 1)
    for share in plan.shares:
        if share.share < 0:
            yield Violation(Constraint.SHARE, share.path, share.share)
    for what, total in _totals(judge).items():
        if abs(total - served) > TOLERANCE:
            yield Violation(Constraint.SUM_OF_SHARES, (what,), total, served)
    if judge.problem.pipeline.branches == "tied":
        yield from _untied_prefixes(judge)
    elif plan.mode != HARDWARE:
        yield from _bounds(judge)


def _totals(judge: _AllocationJudge) -> Mapping[str, float]:
    if judge.problem.pipeline.branches != "tied":
        return {"all paths": sum(share.share for share in judge.plan.shares)}
    sums = dict.fromkeys((f"paths to {leaf!r}" for leaf in judge.ways), 0.0)
    for share in judge.plan.shares:
        sums[f"paths to {_task(judge.hosts_of(share)[-1])!r}"] += share.share
    return sums


def _untied_prefixes(judge: _AllocationJudge) -> Iterator[Violation]:
    """Yield prefixes whose share differs between the leaf tasks below, although these are tied."""
    shares: dict[tuple[Host, ...], dict[str, float]] = defaultdict(dict)
    for share in judge.plan.shares:
        hosts = judge.hosts_of(share)
        leaf = _task(hosts[-1])
        for length in range(1, len(hosts)):
            sums = shares[hosts[:length]]
            sums[leaf] = sums.get(leaf, 0.0) + share.share
    for prefix, by_leaf in shares.items():
        end = _task(prefix[-1])
        below = [by_leaf.get(leaf, 0.0) for leaf, way in judge.ways.items() if end in way]
        if max(below) - min(below) > TOLERANCE:
            names = tuple(host[0] for host in prefix)
            yield Violation(Constraint.TIED_SHARES, names, min(below), max(below))


def _bounds(judge: _AllocationJudge) -> Iterator[Violation]:
    served = judge.plan.served_share
    for task in judge.problem.pipeline.tasks:
        share = sum(s for p, s in judge.prefixes().items() if _task(p[-1]) == task.name)
        least, most = (bound * served for bound in task.share)
        if not least - TOLERANCE <= share <= most + TOLERANCE:
            bound = least if share < least else most
            yield Violation(Constraint.TASK_SHARE, (task.name,), share, bound)


def _latency(judge: _AllocationJudge) -> Iterator[Violation]:
    quantile = judge.problem.policy.latency
    for share in judge.plan.shares:
        hosts = judge.hosts_of(share)
        if share.share <= UNUSED:
            continue
        took_s = sum(judge.seconds(h, judge.hosts[h].batch, quantile) for h in hosts)
        budget_s = _budget_s(judge.problem, len(hosts))
        if took_s > budget_s * (1 + 1e-9) + 1e-9:
            yield Violation(Constraint.LATENCY, share.path, took_s, budget_s)


def _budget_s(problem: Problem, tasks: int) -> float:
    """Return the compute budget in seconds of a path through ``tasks`` tasks."""
    pipeline = problem.pipeline
    return pipeline.compute_share * (problem.slo_s - (tasks + 1) * pipeline.comm_s)


def _path_latency(judge: _AllocationJudge) -> Iterator[Violation]:
    """Yield paths of replicas, of a plan by tasks, that exceed their compute budget."""
    by_task: dict[str, list[Replicas]] = defaultdict(list)
    for replicas in judge.plan.replicas:
        by_task[replicas.task].append(replicas)
    for way in judge.ways.values():
        budget_s = _budget_s(judge.problem, len(way))
        if any(task not in by_task or not _has_fast(judge, task) for task in way):
            continue
        slowest = [max((_batch_s(judge, r), r.key) for r in by_task[task]) for task in way]
        took_s = sum(seconds for seconds, _ in slowest)
        if took_s > budget_s * (1 + 1e-9) + 1e-9:
            names = tuple(key for _, key in slowest)
            yield Violation(Constraint.LATENCY, names, took_s, budget_s)


def _batch_s(judge: _AllocationJudge, replicas: Replicas) -> float:
    host = (replicas.key, replicas.device)
    return judge.seconds(host, replicas.batch, judge.problem.policy.latency)


def _has_fast(judge: _AllocationJudge, task: str) -> bool:
    """Return whether a variant of a task takes an equal part of every path's budget or less."""
    problem, quantile = judge.problem, judge.problem.policy.latency
    part_s = min(
        _budget_s(problem, len(way)) / len(way) for way in judge.ways.values() if task in way
    )
    assert problem.profile is not None
    found_s = [float("inf")]
    for variant, device in product(problem.pipeline.task(task).variants, set(problem.devices)):
        with suppress(ProfileError):
            entry = problem.profile.entry(task, variant.name, device)
            if entry.memory_bytes <= problem.memory.get(device, entry.memory_bytes):
                first = entry.latency[0].batch
                found_s.append(
                    problem.profile.latency_s(task, variant.name, device, first, quantile)
                )
    return min(found_s) <= part_s


def _capacity(judge: _AllocationJudge) -> Iterator[Violation]:
    for host, items in items_per_s(judge.plan, judge.problem).items():
        replicas = judge.hosts[host]
        able = replicas.count * judge.rate(replicas)
        if items > able * (1 + TOLERANCE):
            yield Violation(Constraint.CAPACITY, (host[0],), items, able)


def _task_capacity(judge: _AllocationJudge) -> Iterator[Violation]:
    problem, served = judge.problem, judge.plan.served_share
    if judge.plan.feasible and abs(served - 1) > TOLERANCE:
        yield Violation(Constraint.SERVED_SHARE, (), served, 1)
    made = {problem.pipeline.root.name: problem.demand_qps * served}
    for task in problem.pipeline.tasks:
        made |= {child: made[task.name] * _made(judge, task, child) for child in task.children}
    for task in problem.pipeline.tasks:
        items = made[task.name]
        able = sum(r.count * judge.rate(r) for r in judge.plan.replicas if r.task == task.name)
        if items > able * (1 + TOLERANCE):
            yield Violation(Constraint.CAPACITY, (task.name,), items, able)


def _made(judge: _AllocationJudge, task: Task, child: str) -> float:
    """Return the least items for a child that one item of a task makes.

    By the observed shares of the task's variants, else by the variant that makes the fewest.
    """
    problem = judge.problem
    keys = [variant.key for variant in task.variants]
    seen = {key: problem.arriving[key] for key in keys if problem.arriving.get(key, 0.0) > 0}
    try:
        factors = {key: _factor(problem, key, child) for key in seen or keys}
    except ProfileError:
        return 0.0
    if not seen:
        return min(factors.values())
    return sum(rate * factors[key] for key, rate in seen.items()) / sum(seen.values())


def _factor(problem: Problem, key: str, child: str) -> float:
    """Return the observed fan-out, else the least one measured on the problem's devices."""
    observed = problem.multiplicity.get((key, child))
    task, variant = variant_id(key)
    if observed is not None or problem.profile is None:
        return observed or 0.0
    measured: list[float] = []
    for device in dict.fromkeys(problem.devices):
        with suppress(ProfileError):
            children = problem.profile.entry(task, variant, device).children
            measured += [children[child].mean] if child in children else []
    return min(measured) if measured else problem.profile.children_mean(task, variant, child)


def _accuracy(judge: _AllocationJudge) -> Iterator[Violation]:
    stated, found = judge.plan.accuracy, accuracy_of(judge.plan, judge.problem)
    if stated is not None and abs(stated - found) > TOLERANCE:
        yield Violation(Constraint.ACCURACY, (), stated, found)
    least = judge.problem.policy.options.get("accuracy_least", 0.0)
    if judge.plan.served_share > UNUSED and found < least - TOLERANCE:
        yield Violation(Constraint.ACCURACY_LEAST, (), found, least)


def accuracy_of(plan: Allocation, problem: Problem) -> float:
    """Return the accuracy of the served queries from an allocation's shares.

    Raises ``ProfileError`` for a variant that was not measured.
    """
    judge, pipeline = _AllocationJudge(plan, problem), problem.pipeline
    weights = {leaf: pipeline.task(leaf).weight for leaf in judge.ways}
    tied = pipeline.branches == "tied"
    sum_found = 0.0
    for share in plan.shares:
        hosts = judge.hosts_of(share)
        product = 1.0
        for host in hosts:
            product *= judge.entry(host).accuracy
        accuracy = problem.path_accuracy.get(share.path, product)
        weight = weights[_task(hosts[-1])] / sum(weights.values()) if tied else 1.0
        sum_found += share.share * accuracy * weight
    return sum_found / plan.served_share if plan.served_share else 0.0
