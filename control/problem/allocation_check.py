"""Does this allocation keep every promise? Judged from the problem, whoever made the allocation.

Nothing here is shared with those who plan: rates, latencies, multiplicities and budgets are read
from the problem's profile once more.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from control.problem.problem import Allocation, PathShare, Problem, Replicas
from profiles.profile import Entry, ProfileError
from schemas.pipeline import Task

TOLERANCE = 1e-5  # relative: what solvers call equal, and sums of floats

Host = tuple[str, str]  # "task/variant", kind of device


def broken_promises(plan: Allocation, problem: Problem) -> tuple[str, ...]:
    """The promises that an allocation breaks, one sentence each; empty for a good one."""
    judge = _Judge(plan, problem)
    broken = [*_devices(judge), *_slots(judge), *over_memory(plan, problem)]
    unknown = [*_unknown(judge), *_astray(judge)]
    if broken or unknown:  # nothing more can be told of variants that nobody knows
        return (*broken, *unknown)
    return (*_sums(judge), *_latency(judge), *_capacity(judge), *_accuracy(judge))


def items_per_s(plan: Allocation, problem: Problem) -> dict[Host, float]:
    """Items per second that arrive at each variant on each kind of device, by the plan's shares.

    Raises ``KeyError`` for a path that is none.
    """
    judge = _Judge(plan, problem)
    found: dict[Host, float] = defaultdict(float)
    for prefix, share in judge.prefixes().items():
        found[prefix[-1]] += problem.demand_qps * share * judge.items(prefix)
    return dict(found)


def rate(problem: Problem, replicas: Replicas) -> float:
    """Items per second of one device that runs these replicas' batches."""
    return replicas.batch / _Judge(Allocation((replicas,)), problem).seconds(
        (replicas.key, replicas.device), replicas.batch, problem.policy.rate
    )


class _Judge:
    """A plan beside its problem, with the look-ups that every promise needs."""

    def __init__(self, plan: Allocation, problem: Problem) -> None:
        self.plan = plan
        self.problem = problem
        self.hosts: dict[Host, Replicas] = {(r.key, r.device): r for r in plan.replicas}
        self.ways = dict(_ways(problem.pipeline.root, problem))

    def entry(self, host: Host) -> Entry:
        """What was measured of the variant on the kind; raises ``ProfileError``."""
        task, _, variant = host[0].partition("/")
        names = [d for d in self.problem.devices if self.hosts[host].may_run_on(d)]
        if self.problem.profile is None or not names:
            raise ProfileError(f"there is no device for {host[0]}, or no profile")
        return self.problem.profile.entry(task, variant, names[0])

    def seconds(self, host: Host, batch: int, quantile: str) -> float:
        """A batch of the variant, at a quantile of its profile."""
        entry = self.entry(host)
        assert self.problem.profile is not None
        return self.problem.profile.latency_s(
            entry.task, entry.variant, entry.device, batch, quantile
        )

    def hosts_of(self, share: PathShare) -> tuple[Host, ...]:
        """The variants of a path with their kinds."""
        kinds = share.devices or ("",) * len(share.path)
        return tuple(zip(share.path, kinds, strict=True))

    def prefixes(self) -> dict[tuple[Host, ...], float]:
        """The share of every path from the root to any task.

        Where branches are tied each leaf task tells the share of a common prefix; the first does.
        """
        tied = self.problem.pipeline.branches == "tied"
        told: dict[tuple[Host, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for share in self.plan.shares:
            hosts = self.hosts_of(share)
            leaf = _task(hosts[-1])
            for length in range(1, len(hosts) + 1):
                told[hosts[:length]][leaf] += share.share
        return {
            prefix: next(iter(by_leaf.values())) if tied else sum(by_leaf.values())
            for prefix, by_leaf in told.items()
        }

    def items(self, prefix: tuple[Host, ...]) -> float:
        """Items of one query that reach the end of a path."""
        made = 1.0
        for above, below in pairwise(prefix):
            child = _task(below)
            seen = self.problem.multiplicity.get((above[0], child))
            made *= self.entry(above).children[child].mean if seen is None else seen
        return made


def _ways(task: Task, problem: Problem) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each leaf task with the tasks on the way to it."""
    if not task.children:
        yield task.name, (task.name,)
    for child in task.children:
        for leaf, way in _ways(problem.pipeline.task(child), problem):
            yield leaf, (task.name, *way)


def _task(host: Host) -> str:
    return host[0].partition("/")[0]


def _devices(judge: _Judge) -> Iterator[str]:
    there = len(judge.problem.devices)
    if judge.plan.devices_used > there:
        yield f"the plan uses {judge.plan.devices_used} devices and there are {there}"
    for kind in {r.on: r for r in judge.plan.replicas if r.on}.values():
        used = sum(r.count for r in judge.plan.replicas if r.on == kind.on)
        own = sum(kind.may_run_on(device) for device in judge.problem.devices)
        if used > own:
            yield f"the plan uses {used} devices of kind {kind.device!r} and there are {own}"


def _slots(judge: _Judge) -> Iterator[str]:
    for task in judge.problem.pipeline.tasks:
        count = sum(r.count for r in judge.plan.replicas if r.task == task.name)
        if count > task.slots:
            yield f"task {task.name!r} has {count} replicas for {task.slots} slots"


def over_memory(plan: Allocation, problem: Problem) -> Iterator[str]:
    """Variants that a worker they may be placed on has not the memory for, one sentence each."""
    judge = _Judge(plan, problem)
    for host, replicas in judge.hosts.items():
        try:
            entry = judge.entry(host)
        except ProfileError:
            continue
        for device in judge.problem.devices:
            room = judge.problem.memory.get(device, entry.memory_bytes)
            if entry.memory_bytes > room and replicas.may_run_on(device):
                yield (
                    f"{replicas.key} takes {entry.memory_bytes / 1e6:.0f} MB and a worker of "
                    f"{device} has {room / 1e6:.0f} MB"
                )
                break


def _unknown(judge: _Judge) -> Iterator[str]:
    """Replicas of what nobody measured, or of none."""
    for host, replicas in judge.hosts.items():
        try:
            judge.seconds(host, replicas.batch, judge.problem.policy.latency)
        except ProfileError as error:
            yield str(error)
        if replicas.count < 1:
            yield f"{replicas.key} is listed with {replicas.count} replicas"
    for key, count in Counter((r.key, r.device) for r in judge.plan.replicas).items():
        if count > 1:
            yield f"{key[0]} is listed {count} times"


def _astray(judge: _Judge) -> Iterator[str]:
    """Traffic over what is no path, or to a variant without a replica."""
    for share in judge.plan.shares:
        hosts = judge.hosts_of(share)
        way = judge.ways.get(_task(hosts[-1]))
        if tuple(map(_task, hosts)) != way:
            yield f"{' > '.join(share.path)} is no path from the root to a leaf task"
        for host in hosts:
            if share.share > 0 and host not in judge.hosts:
                yield f"{host[0]} gets traffic and has no replica"


def _sums(judge: _Judge) -> Iterator[str]:
    plan, served = judge.plan, judge.plan.served_share
    if plan.feasible and abs(served - 1) > TOLERANCE:
        yield f"the plan calls itself feasible and serves a share of {served:g}"
    if any(share.share < 0 for share in plan.shares):
        yield "a path has a negative share"
    for what, total in _totals(judge).items():
        if abs(total - served) > TOLERANCE:
            yield f"the shares of {what} sum to {total:g} and {served:g} is served"
    if judge.problem.pipeline.branches == "tied":
        yield from _untied_prefixes(judge)
    elif plan.mode != "hardware":
        yield from _bounds(judge)


def _totals(judge: _Judge) -> Mapping[str, float]:
    if judge.problem.pipeline.branches != "tied":
        return {"all paths": sum(share.share for share in judge.plan.shares)}
    sums = dict.fromkeys((f"paths to {leaf!r}" for leaf in judge.ways), 0.0)
    for share in judge.plan.shares:
        sums[f"paths to {_task(judge.hosts_of(share)[-1])!r}"] += share.share
    return sums


def _untied_prefixes(judge: _Judge) -> Iterator[str]:
    """Prefixes whose share the leaf tasks below tell differently, although they are tied."""
    told: dict[tuple[Host, ...], dict[str, float]] = defaultdict(dict)
    for share in judge.plan.shares:
        hosts = judge.hosts_of(share)
        leaf = _task(hosts[-1])
        for length in range(1, len(hosts)):
            sums = told[hosts[:length]]
            sums[leaf] = sums.get(leaf, 0.0) + share.share
    for prefix, by_leaf in told.items():
        end = _task(prefix[-1])
        below = [leaf for leaf, way in judge.ways.items() if end in way]
        sums_below = [by_leaf.get(leaf, 0.0) for leaf in below]
        if max(sums_below) - min(sums_below) > TOLERANCE:
            yield (
                f"{' > '.join(host[0] for host in prefix)} has the share {max(sums_below):g} for "
                f"one branch and {min(sums_below):g} for another, which are tied"
            )


def _bounds(judge: _Judge) -> Iterator[str]:
    served = judge.plan.served_share
    for task in judge.problem.pipeline.tasks:
        share = sum(s for p, s in judge.prefixes().items() if _task(p[-1]) == task.name)
        least, most = task.share
        if not least * served - TOLERANCE <= share <= most * served + TOLERANCE:
            yield f"task {task.name!r} gets a share of {share:g}, outside {least:g} to {most:g}"


def _latency(judge: _Judge) -> Iterator[str]:
    pipeline, quantile = judge.problem.pipeline, judge.problem.policy.latency
    for share in judge.plan.shares:
        hosts = judge.hosts_of(share)
        if share.share <= TOLERANCE / 10:
            continue
        took = sum(judge.seconds(h, judge.hosts[h].batch, quantile) for h in hosts)
        left = judge.problem.slo_s - (len(hosts) + 1) * pipeline.comm_s
        if took > pipeline.compute_share * left * (1 + 1e-9) + 1e-9:
            yield (
                f"{' > '.join(share.path)} takes {took * 1e3:g} ms of compute and may take "
                f"{pipeline.compute_share * left * 1e3:g} ms"
            )


def _capacity(judge: _Judge) -> Iterator[str]:
    for host, items in items_per_s(judge.plan, judge.problem).items():
        replicas = judge.hosts[host]
        able = replicas.count * rate(judge.problem, replicas)
        if items > able * (1 + TOLERANCE):
            yield f"{host[0]} gets {items:g} items/s and its {replicas.count} replicas do {able:g}"


def _accuracy(judge: _Judge) -> Iterator[str]:
    told, found = judge.plan.accuracy, accuracy_of(judge.plan, judge.problem)
    if told is not None and abs(told - found) > TOLERANCE:
        yield f"the plan tells an accuracy of {told:g} and its shares give {found:g}"


def accuracy_of(plan: Allocation, problem: Problem) -> float:
    """What an allocation's shares make of the accuracies of paths and variants, of what is served
    (design section 8). Raises ``ProfileError`` for a variant that was not measured."""
    judge, pipeline = _Judge(plan, problem), problem.pipeline
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
