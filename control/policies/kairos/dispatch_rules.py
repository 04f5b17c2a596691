"""Dispatch rules: assign waiting queries to devices.

    kairos       matching of the n oldest queries to the n devices at least cost (matching.py)
    kairos-paper as kairos, of the 2 n oldest queries, with urgency 0
    fcfs         oldest query first, to a free device, base types preferred (Ribbon, SC 2021)
    threshold    queries above a size to base devices only, the others to auxiliary devices only
                 (DeepRecSys, ISCA 2020)
    earliest     each query, on arrival, to the queue of the device with the earliest predicted
                 finish; one queue per device (Clockwork, OSDI 2020)

A rule takes a ``Round``, queries in order and devices with the time until each is free, and
returns pairs (query, device). A device is eligible if it is free within ``lead_s``. The order is
that of the deadlines, which is that of arrival if all have one SLO (operators/dispatch/).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from control.policies.kairos.dispatch_options import CONSIDERED, GUARD, URGENCY
from control.policies.kairos.matching import (
    Blocking,
    MatchingWeights,
    Matrix,
    Vector,
    costs_of,
    matched,
)
from schemas.pipeline import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTable:
    """The devices of a plan.

    For device j: ``kinds[j]`` is the row of its type, ``coefficients[j]`` its C_j, ``base[j]``
    whether its type is the base type. ``blocking`` has the types that some queries need.
    """

    kinds: tuple[int, ...]
    coefficients: Vector
    base: tuple[bool, ...]
    blocking: tuple[Blocking, ...] = ()
    columns: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)
    preference: tuple[int, ...] = field(
        init=False
    )  # base devices first, then by decreasing coefficient

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", np.array(self.kinds, dtype=np.int64))
        order = sorted(
            range(len(self.kinds)), key=lambda j: (not self.base[j], -self.coefficients[j], j)
        )
        object.__setattr__(self, "preference", tuple(order))

    @classmethod
    def of(
        cls, kinds: Sequence[int], costs: Vector, base: int, blocking: tuple[Blocking, ...] = ()
    ) -> "DeviceTable":
        """Return the table of devices of these types; ``costs`` are by type, ``base`` is one."""
        return cls(
            kinds=tuple(kinds),
            coefficients=np.array([costs[kind] for kind in kinds]),
            base=tuple(kind == base for kind in kinds),
            blocking=blocking,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The input of one dispatch decision: waiting queries and the state of the devices.

    Queries are in the order of service. For each query there are the seconds waited (counted back
    from the deadline, so that a tighter class has waited longer), the seconds until the deadline,
    and the predicted seconds on each type: the mean (``latency_s``) and the quantile for the
    deadline check (``worst_s``). ``held[i]`` is the device that an earlier round chose for query i,
    or -1 (``earliest``).
    """

    sizes: list[int]
    wait_s: list[float]
    slack_s: list[float]
    latency_s: list[tuple[float, ...]]  # by query, by type
    worst_s: list[tuple[float, ...]]
    held: list[int]
    remaining_s: list[float]  # by device; 0: idle
    factors: Vector  # by device: slowdown against its type
    devices: DeviceTable
    lead_s: float = 0.0
    hop_s: float = 0.0  # from the dispatcher to a device: no query begins earlier

    def free(self, device: int) -> bool:
        """Return whether the device is eligible for a query now."""
        return self.remaining_s[device] <= self.lead_s

    def free_devices(self) -> list[int]:
        """Return the eligible devices in order of preference, base devices first."""
        return [j for j in self.devices.preference if self.remaining_s[j] <= self.lead_s]


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """Options of the rules: weights of the matching; size above which the rule ``threshold`` uses
    base devices only; oldest queries per device that one matching considers."""

    weights: MatchingWeights
    threshold: int = 0
    considered: int = 1

    @classmethod
    def of(cls, policy: Policy, slo_s: float, threshold: int) -> "DispatchOptions":
        """Return the options of a policy."""
        weights = MatchingWeights(slo_s, GUARD.of(policy), URGENCY.of(policy))
        return cls(weights, threshold, CONSIDERED.of(policy))


Pairs = list[tuple[int, int]]
Rule = Callable[[Round, DispatchOptions], Pairs]


def match(round_: Round, options: DispatchOptions) -> Pairs:
    """Kairos: match queries to all devices, busy ones included; return the pairs of free ones."""
    columns, factors = round_.devices.columns, round_.factors
    count = min(len(round_.sizes), options.considered * len(columns))
    remaining = np.maximum(round_.remaining_s, round_.hop_s)
    finish: Matrix = np.array(round_.latency_s[:count])[:, columns] * factors + remaining
    worst = finish
    if round_.worst_s is not round_.latency_s:
        worst = np.array(round_.worst_s[:count])[:, columns] * factors + remaining
    cost = costs_of(
        options.weights, finish, worst, np.array(round_.slack_s[:count]),
        np.array(round_.wait_s[:count]), round_.devices.coefficients,
    )  # fmt: skip
    for blocking in round_.devices.blocking:
        for j, others_s in blocking.free(round_.remaining_s, round_.lead_s):
            busy_s = np.minimum(finish[:, j], others_s)
            cost[:, j] = blocking.add(cost[:, j], options.weights.slo_s, busy_s)
    return [(i, j) for i, j in matched(cost) if round_.remaining_s[j] <= round_.lead_s]


def first_come(round_: Round, options: DispatchOptions) -> Pairs:
    """Ribbon: assign the oldest queries to the free devices, base devices first."""
    return list(zip(range(len(round_.sizes)), round_.free_devices(), strict=False))


def by_threshold(round_: Round, options: DispatchOptions) -> Pairs:
    """DeepRecSys: assign large queries to base devices and small ones to auxiliary devices, the
    oldest query first, to the fastest free device. If all devices are on one side, that side
    takes every query."""
    base = round_.devices.base
    both = any(base) and not all(base)
    free = round_.free_devices()
    large = [j for j in free if base[j] or not both]
    small = [j for j in free if not base[j] or not both]
    if not both:
        small = large
    pairs: Pairs = []
    for i, size in enumerate(round_.sizes):
        side = large if size > options.threshold else small
        if side:
            pairs.append((i, side.pop(0)))
        if not large and not small:
            break
    return pairs


def earliest_finish(round_: Round, options: DispatchOptions) -> Pairs:
    """Clockwork: append each new query to the queue of the device with the earliest predicted
    finish; return the head of each queue whose device is free. Choices persist in
    ``round_.held``."""
    kinds, factors = round_.devices.kinds, round_.factors
    until = [max(each, round_.hop_s) for each in round_.remaining_s]
    heads: dict[int, int] = {}
    for i, row in enumerate(round_.latency_s):
        j = round_.held[i]
        if j < 0:
            j = min(range(len(until)), key=lambda j: until[j] + row[kinds[j]] * factors[j])
            round_.held[i] = j
        until[j] += row[kinds[j]] * factors[j]
        heads.setdefault(j, i)
    return [(i, j) for j, i in heads.items() if round_.free(j)]
