"""Routing tables: fill the workers of each task in falling accuracy.

MostAccurateFirst (Loki, section 5.1, algorithm 1) visits the tasks from the root on. The items that
a sending variant makes for a child fill the child's workers in falling accuracy, each up to its
capacity,

    made(v, c)  =  load(v) x factor(v, c)          c a child of v's task, v in falling accuracy
    load(w)    +=  routed(v, w),   share(v, w) = routed(v, w) / made(v, c)

and the excess over all capacities is spread in proportion to capacity. A worker's capacity is that
at its batch in the plan (the authors' code takes the largest batch that fits the SLO). The
remaining capacity is the backup table: ``Route.spare_qps``, with the worker's latency beside it.

``PAPER`` fills the workers completely, one after the other. ``BALANCED`` differs in three ways:

- Workers of equal accuracy share evenly, because a full worker beside an idle one causes queues.
- They are filled to ``up_to`` of their capacity before less accurate ones get items, because the
  queue of a pool grows without bound as its load nears 1. All workers share the rest in proportion.
- A variant sends nothing over a path that exceeds the compute budget if there is another path, like
  the plan's shares.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from schemas.pipeline import Pipeline
from schemas.records import Route

# The nominal load of a sender without load: its shares route the next item.
NEXT = 1e-9
FITS_S = 1e-9  # latencies are sums of floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A worker that serves a task, with its open slot.

    ``capacity_qps`` are items per second and ``latency_s`` seconds for a batch, both at its batch
    in the plan.
    """

    variant: str  # "task/variant"
    slot: int
    accuracy: float
    capacity_qps: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class FillOrder:
    """The order in which receivers are filled: up to ``up_to`` of their capacity, and those of
    equal accuracy ``together`` or one by one."""

    up_to: float = 1.0
    together: bool = True
    within_budget: bool = True  # only over paths that keep the compute budget


PAPER = FillOrder(1.0, together=False, within_budget=False)
BALANCED = FillOrder()

# By name in a policy; None: by throughput, regardless of accuracy (``forecast.routes``).
ROUTINGS: Mapping[str, FillOrder | None] = {
    "throughput": None,
    "most-accurate-first": PAPER,
    "balanced": BALANCED,
}

Receivers = Mapping[str, Sequence[Receiver]]  # by task
Factor = Callable[[str, str], float]  # ("task/variant", child) -> items per item
Barred = Collection[tuple[str, str]]  # (sending "task/variant", receiving "task/variant")


def most_accurate_first(
    pipeline: Pipeline,
    receivers: Receivers,
    demand_qps: float,
    factor: Factor,
    filling: FillOrder,
    barred: Barred = (),
) -> tuple[Route, ...]:
    """Return routes to every receiver; one with a share of 0 may have spare capacity.

    Every task with a receiver has routes for source "", and for each variant of its parent if
    several send to it. Routes of one task and source are in falling accuracy.
    """
    pools = {task: _Pool(found, filling) for task, found in receivers.items() if found}
    loads: dict[str, dict[str, float]] = {}  # task -> variant -> items per second
    tables: list[tuple[str, str, list[float]]] = []
    root = pipeline.root.name
    if root in pools:
        tables.append((root, "", pools[root].fill(demand_qps, ())))
        loads[root] = pools[root].by_variant()
    for task in pipeline.tasks:
        senders = loads.get(task.name, {})
        for child in task.children:
            if child in pools:
                tables += _child_tables(child, pools[child], senders, factor, barred)
                loads[child] = pools[child].by_variant()
    spares = {task: pool.spares() for task, pool in pools.items()}
    return tuple(
        Route(task, to.slot, share, source, spare, to.latency_s)
        for task, source, shares in tables
        for to, share, spare in zip(pools[task].receivers, shares, spares[task], strict=True)
    )


def too_slow(
    pipeline: Pipeline, receivers: Receivers, budget_s: Mapping[str, float]
) -> frozenset[tuple[str, str]]:
    """Return pairs of variants (sender, receiver) whose paths exceed a leaf's compute budget.

    ``budget_s`` is by leaf task. A path's latency is that of the slowest way to the sender and the
    fastest from the receiver. If all receivers of a sender are too slow, none is barred.
    """
    latency = {task: {r.variant: r.latency_s for r in found} for task, found in receivers.items()}
    may_end_s = {task.name: _may_end_s(pipeline, task.name, latency, budget_s)
                 for task in pipeline.tasks}  # fmt: skip
    ways = dict(latency.get(pipeline.root.name, {}))  # the slowest way up to a variant's end
    found: set[tuple[str, str]] = set()
    for task in pipeline.tasks:
        for child in task.children:
            for sender in latency.get(task.name, {}):
                ends = {to: ways[sender] + own for to, own in latency.get(child, {}).items()}
                slow = {to for to, end in ends.items() if end > may_end_s[child] + FITS_S}
                kept = ends if len(slow) == len(ends) else ends.keys() - slow
                found |= {(sender, to) for to in ends.keys() - kept}
                for to in kept:
                    ways[to] = max(ways.get(to, 0.0), ends[to])
            for to, own in latency.get(child, {}).items():
                ways.setdefault(to, own)
    return frozenset(found)


def _may_end_s(
    pipeline: Pipeline,
    task: str,
    latency: Mapping[str, Mapping[str, float]],
    budget_s: Mapping[str, float],
) -> float:
    """Return the latest end of a task, in compute seconds since the query's start."""
    if task in budget_s:
        return budget_s[task]
    return min(
        _may_end_s(pipeline, child, latency, budget_s)
        - min(latency.get(child, {}).values(), default=0.0)
        for child in pipeline.task(task).children
    )


def _child_tables(
    child: str, pool: "_Pool", senders: Mapping[str, float], factor: Factor, barred: Barred
) -> list[tuple[str, str, list[float]]]:
    own = [
        (child, sender, pool.fill(load * factor(sender, child), _barred(sender, barred)))
        for sender, load in senders.items()
    ]
    # A sender without a table of its own, such as a draining worker, follows the mean.
    everyones = pool.fill(0.0, ()) if not own else own[0][2] if len(own) == 1 else pool.mean()
    return [(child, "", everyones), *(own if len(own) > 1 else ())]


def _barred(sender: str, barred: Barred) -> tuple[str, ...]:
    return tuple(to for source, to in barred if source == sender) if barred else ()


class _Pool:
    """The receivers of a task, in falling accuracy, while they are being filled."""

    __slots__ = ("_capacity", "_filling", "_groups", "_load", "receivers")

    def __init__(self, receivers: Sequence[Receiver], filling: FillOrder) -> None:
        self.receivers = sorted(receivers, key=lambda each: (-each.accuracy, each.slot))
        self._capacity = [each.capacity_qps for each in self.receivers]
        self._load = [0.0] * len(self.receivers)
        self._filling = filling
        groups: dict[float, list[int]] = {}
        for at, each in enumerate(self.receivers):
            groups.setdefault(each.accuracy if filling.together else at, []).append(at)
        self._groups = list(groups.values())

    def fill(self, amount: float, barred: Collection[str]) -> list[float]:
        """Add a sender's load; return its shares, in the order of the receivers."""
        left = amount = max(amount, NEXT)
        routed = [0.0] * len(self._load)
        for group in self._groups:
            left = self._pour(left, self._able(group, barred), self._filling.up_to, routed)
            if left <= 0:
                break
        else:
            able = self._able(range(len(routed)), barred)
            left = self._pour(left, able, 1.0, routed)
            self._spill(left, able, routed)
        return [each / amount for each in routed]

    def _able(self, group: Sequence[int], barred: Collection[str]) -> Sequence[int]:
        if not barred:
            return group
        return [at for at in group if self.receivers[at].variant not in barred]

    def _pour(self, amount: float, into: Sequence[int], up_to: float, routed: list[float]) -> float:
        """Fill up to a fraction of capacity, in proportion to free capacity; return the excess."""
        room = [max(0.0, up_to * self._capacity[at] - self._load[at]) for at in into]
        total = sum(room)
        if total <= 0:
            return amount
        part = min(1.0, amount / total)
        for at, each in zip(into, room, strict=True):
            routed[at] += each * part
            self._load[at] += each * part
        return max(0.0, amount - total)

    def _spill(self, amount: float, into: Sequence[int], routed: list[float]) -> None:
        """Spread the excess over all capacities, in proportion to capacity."""
        if amount <= 0:
            return
        total = sum(self._capacity[at] for at in into)
        for at in into:
            part = amount * self._capacity[at] / total if total else amount / len(into)
            routed[at] += part
            self._load[at] += part

    def mean(self) -> list[float]:
        """Return the shares of the total load."""
        total = sum(self._load)
        return [load / total for load in self._load]

    def spares(self) -> list[float]:
        """Return the remaining capacity, in the order of the receivers."""
        return [max(0.0, c - load) for c, load in zip(self._capacity, self._load, strict=True)]

    def by_variant(self) -> dict[str, float]:
        """Return the load by variant, in falling accuracy."""
        sums: dict[str, float] = {}
        for each, load in zip(self.receivers, self._load, strict=True):
            sums[each.variant] = sums.get(each.variant, 0.0) + load
        return sums
