"""Routes, capacity and accuracy expected of leases.

With s(v) the share of a task's traffic that goes to variant v, f(v, c) the mean number of items for
child c that one item of v makes, and u(w) the throughput of worker w at its batch:

    routes       share(w) = u(w) / sum of u over the task's open slots
    items        n(root) = 1;  n(c) = n(t) x sum over v of s(v) f(v, c),  c a child of t
    capacity     min over tasks t of  (sum of u over the open slots of t) / n(t)
    accuracy     mean over leaves of  sum over the paths to it of  share(path) A(path)

where share(path) is the product of the shares along it, by sender if senders have their own routes
(``routes.py``), and A(path) the accuracy measured for it, else the product of its variants'.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline
from schemas.records import Lease, Route
from schemas.variant_id import variant_id, variant_key

TrafficMix = Mapping[str, Mapping[str, float]]  # task -> variant -> share of the task's traffic
NOTHING_OBSERVED: Mapping[tuple[str, str], float] = {}
NOTHING_SPLIT: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """The traffic to make routes for: root queries per second, and observed fan-out."""

    demand_qps: float = 0.0
    multiplicity: Mapping[tuple[str, str], float] = field(default_factory=dict)


NOTHING = ExpectedTraffic()


def throughputs(
    leases: Iterable[Lease],
    devices: Mapping[str, str],
    profile: ProfileTable | None,
    quantile: str = "mean",
) -> dict[str, float] | None:
    """Return items per second of each worker at its batch; None if one was not measured.

    ``devices`` names each worker's device; ``quantile`` is that of the profile's latencies.
    """
    if profile is None:
        return None
    try:
        return {
            lease.worker: lease.batch
            / profile.latency_s(
                lease.task, lease.variant, devices[lease.worker], lease.batch, quantile
            )
            for lease in leases
        }
    except ProfileError:
        return None


def routes(
    pipeline: Pipeline,
    leases: Sequence[Lease],
    rates: Mapping[str, float] | None,
    traffic: Mapping[str, float] = NOTHING_SPLIT,
) -> tuple[Route, ...]:
    """Return a share for every open slot, by throughput, or equal ones if ``rates`` is None.

    ``traffic`` fixes the share of variants ("task/variant"); the others of the task share the rest.
    If the rest has no open slot, the fixed shares are scaled to 1.
    """
    found: list[Route] = []
    for task in pipeline.task_names:
        receivers = sorted(_open(leases, task), key=lambda lease: lease.open_slot)
        weights = [1.0 if rates is None else rates[lease.worker] for lease in receivers]
        shares = _shares(receivers, weights, traffic)
        found += [
            Route(task, lease.open_slot, share)
            for lease, share in zip(receivers, shares, strict=True)
        ]
    return tuple(found)


def _shares(
    receivers: Sequence[Lease], weights: Sequence[float], traffic: Mapping[str, float]
) -> list[float]:
    """Return the share of each receiver; within a variant, and within the rest, by weight."""
    groups = [lease.key if lease.key in traffic else "" for lease in receivers]
    weight = dict.fromkeys(groups, 0.0)
    for group, each in zip(groups, weights, strict=True):
        weight[group] += each
    fixed = sum(traffic[group] for group in weight if group)
    part = {group: traffic.get(group, max(1.0 - fixed, 0.0)) for group in weight}
    total = sum(part.values())
    return [
        part[group] / total * each / weight[group]
        for group, each in zip(groups, weights, strict=True)
    ]


def mix(leases: Sequence[Lease], routes: Iterable[Route]) -> TrafficMix:
    """Return how each task's traffic is shared among its variants."""
    variants = {(each.task, each.open_slot): each.variant for each in leases}
    shares: dict[str, dict[str, float]] = {}
    for route in routes:
        if route.source:
            continue  # the routes for all senders are the mean
        variant = variants[route.task, route.slot]
        task = shares.setdefault(route.task, {})
        task[variant] = task.get(variant, 0.0) + route.share
    return shares


def items_per_query(
    pipeline: Pipeline,
    profile: ProfileTable,
    mix: TrafficMix,
    observed: Mapping[tuple[str, str], float] = NOTHING_OBSERVED,
) -> dict[str, float]:
    """Return the mean items of one query at each task.

    Raises ``ProfileError`` for an unmeasured fan-out; ``observed`` ("task/variant", child) takes
    precedence over the profile.
    """
    items = {pipeline.root.name: 1.0}
    for task in pipeline.tasks:
        for child in task.children:
            mean = sum(
                share * factor(profile, observed, variant_key(task.name, variant), child)
                for variant, share in mix.get(task.name, {}).items()
            )
            items[child] = items[task.name] * mean
    return items


def factor(
    profile: ProfileTable, observed: Mapping[tuple[str, str], float], key: str, child: str
) -> float:
    """Return items for a child that one item of "task/variant" makes; raise ``ProfileError``."""
    seen = observed.get((key, child))
    if seen is not None:
        return seen
    task, variant = variant_id(key)
    return profile.children_mean(task, variant, child)


def capacity_qps(
    pipeline: Pipeline,
    leases: Sequence[Lease],
    rates: Mapping[str, float] | None,
    items: Mapping[str, float],
    traffic: Mapping[str, float] = NOTHING_SPLIT,
) -> float | None:
    """Return the capacity of the open slots in queries per second; None without ``rates``.

    If ``traffic`` fixes shares, the receiver that fills first limits its task.
    """
    if rates is None:
        return None
    lowest = inf
    for task in pipeline.task_names:
        receivers = list(_open(leases, task))
        served = sum(rates[lease.worker] for lease in receivers)
        if traffic and served:
            weights = [rates[lease.worker] for lease in receivers]
            shares = _shares(receivers, weights, traffic)
            served = min(w / s for w, s in zip(weights, shares, strict=True) if s > 0)
        if served == 0.0:
            return 0.0
        if items[task] > 0:
            lowest = min(lowest, served / items[task])
    return lowest


def expected_accuracy(pipeline: Pipeline, profile: ProfileTable, mix: TrafficMix) -> float | None:
    """Return an answer's accuracy, 0..1; None without an open slot of a task or a profile."""

    def sent(task: str, _sender: str) -> Mapping[str, float]:
        return {variant_key(task, variant): share for variant, share in mix.get(task, {}).items()}

    try:
        return _accuracy(pipeline, profile, sent)
    except ProfileError:
        return None


def accuracy_by_path(
    pipeline: Pipeline,
    profile: ProfileTable,
    leases: Sequence[Lease],
    routes: Sequence[Route],
) -> float | None:
    """Return an answer's accuracy, 0..1, if senders have their own routes.

    Return None if a task has no open slot. Raises ``ProfileError`` for a variant without a profile.
    """
    variants = {(each.task, each.open_slot): each.variant for each in leases}
    return _accuracy(pipeline, profile, lambda task, way: _sent(routes, task, way, variants))


def _accuracy(
    pipeline: Pipeline, profile: ProfileTable, sent: Callable[[str, str], Mapping[str, float]]
) -> float | None:
    """Return the weighted mean over leaf tasks of the accuracy of the paths to each.

    ``sent`` maps a task and a sender ("task/variant", "" for ingress) to the shares of the task's
    variants in the items that the sender makes for it.
    """
    above = {child: task.name for task in pipeline.tasks for child in task.children}
    ways: dict[str, dict[tuple[str, ...], float]] = {"": {(): 1.0}}  # task -> path -> its share
    leaves: list[tuple[float, float]] = []
    for task in pipeline.tasks:
        own: dict[tuple[str, ...], float] = {}
        shares: dict[str, Mapping[str, float]] = {}
        for way, part in ways[above.get(task.name, "")].items():
            sender = way[-1] if way else ""
            if sender not in shares:
                shares[sender] = sent(task.name, sender)
            for key, share in shares[sender].items():
                own[*way, key] = own.get((*way, key), 0.0) + part * share
        if not own:
            return None
        ways[task.name] = own
        if not task.children:
            right = sum(share * profile.along(way) for way, share in own.items())
            leaves.append((task.weight, right))
    return sum(weight * each for weight, each in leaves) / sum(weight for weight, _ in leaves)


def _sent(
    routes: Sequence[Route], task: str, sender: str, variants: Mapping[tuple[str, int], str]
) -> dict[str, float]:
    """Return how the items that a sender makes for a task are shared among the task's variants."""
    own = [r for r in routes if r.task == task and r.source == sender]
    own = own or [r for r in routes if r.task == task and not r.source]
    shares: dict[str, float] = {}
    for route in own:
        key = variant_key(task, variants[task, route.slot])
        shares[key] = shares.get(key, 0.0) + route.share
    return shares


def _open(leases: Iterable[Lease], task: str) -> list[Lease]:
    return [lease for lease in leases if lease.task == task and lease.open_slot >= 0]
